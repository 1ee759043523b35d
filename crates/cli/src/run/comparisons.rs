//! Comparisons of times: whether two ways of running a program differ by more than chance.

use tiermem_place::run::welch::{self, Sample};

use crate::output::{Cell, Rows};

/// The times of one way, in seconds.
#[derive(Clone, Debug)]
pub struct Times {
    /// Its name.
    pub name: String,
    /// From start to end.
    pub real: Sample,
    /// Of the processor in the program.
    pub user: Sample,
    /// Of the processor in the kernel for it.
    pub system: Sample,
}

/// A row for each pair and each time; the second field names what is compared, as the caller calls it.
pub fn rows(all: &[Times], fields: &'static [&'static str]) -> Rows {
    debug_assert_eq!(fields.len(), 8, "a name for each cell below");
    let mut rows = Vec::new();
    for name in ["real", "user", "system"] {
        let figure = |times: &Times| match name {
            "real" => times.real,
            "user" => times.user,
            _ => times.system,
        };
        for (at, second) in all.iter().enumerate() {
            for first in &all[at + 1..] {
                // The first one named is the baseline of the others.
                let (a, b) = (figure(first), figure(second));
                let test = welch::test(&a, &b);
                let of = |value: fn(&welch::Test) -> f64| test.as_ref().map_or(f64::NAN, value);
                rows.push(vec![
                    Cell::Text(name.to_owned()),
                    Cell::Text(first.name.clone()),
                    Cell::Text(second.name.clone()),
                    Cell::Number(a.mean - b.mean, 4),
                    Cell::Number(a.mean / b.mean, 4),
                    Cell::Number(of(|test| test.t), 2),
                    Cell::Number(of(|test| test.freedom), 1),
                    Cell::Power(of(|test| test.p)),
                ]);
            }
        }
    }
    Rows { fields, rows }
}
