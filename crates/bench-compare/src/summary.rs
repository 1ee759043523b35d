//! Medians and ranges of a few measurements.

use crate::output::{Cell, Rows};

/// The middle of `values`, or the mean of the two in the middle; not a number when there are none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The arithmetic mean; not a number when there are none.
pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    values.iter().sum::<f64>() / values.len() as f64
}

/// The commands of a run as a list, each once, in the order of their first use.
pub fn command_rows(commands: &[String]) -> Rows {
    let mut once: Vec<&String> = Vec::new();
    for command in commands {
        if !once.contains(&command) {
            once.push(command);
        }
    }
    let rows = once.into_iter().map(|command| vec![Cell::Text(command.clone())]).collect();
    Rows { fields: &["command"], rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
        assert_eq!(mean([1.0, 2.0, 6.0]), 3.0);
    }

    #[test]
    fn a_command_is_listed_once() {
        let rows = command_rows(&["a".into(), "b".into(), "a".into()]).rows;
        assert_eq!(rows, [[Cell::Text("a".into())], [Cell::Text("b".into())]]);
    }
}
