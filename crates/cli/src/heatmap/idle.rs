//! Table of idle ages: how long ago memory was last accessed.

use tiermem_report::heatmap::Field;

use super::asked::Asked;
use crate::output::{Cell, Rows};

const FIELDS: &[&str] = &[
    "of",
    "name",
    "bytes",
    "touched_bytes",
    "idle_s",
    "idle_1s_bytes",
    "idle_10s_bytes",
    "idle_60s_bytes",
    "never_accessed_bytes",
];
/// Ages of the fields, in seconds.
const AGES_S: [u64; 3] = [1, 10, 60];

/// A line for all of the fields that are still mapped together, and one for each field.
pub fn table(asked: &Asked, fields: &[Field]) -> Rows {
    let ages: Vec<Ages> = fields.iter().map(|field| Ages::of(asked, field)).collect();
    let regions = &asked.recording.head.regions;
    let mut rows = vec![row(("all", "all"), &ages)];
    for (field, ages) in fields.iter().zip(&ages) {
        rows.push(row(("region", &regions[field.window.region].name), std::slice::from_ref(ages)));
    }
    Rows { fields: FIELDS, rows }
}

fn row((of, name): (&str, &str), ages: &[Ages]) -> Vec<Cell> {
    // Bytes of which some are not known are not known.
    let sum = |bytes: &dyn Fn(&Ages) -> Option<u64>| ages.iter().map(bytes).sum::<Option<u64>>();
    let cell = |bytes: Option<u64>| bytes.map_or(Cell::UNKNOWN, Cell::Bytes);
    let mut cells = vec![
        Cell::Text(of.to_owned()),
        Cell::Text(name.to_owned()),
        Cell::Bytes(ages.iter().map(|it| it.bytes).sum()),
        Cell::Bytes(ages.iter().map(|it| it.touched_bytes).sum()),
        self::cell(ages.iter().filter_map(|it| it.age_ns).min()),
    ];
    cells.extend((0..AGES_S.len()).map(|at| cell(sum(&|it| it.idle_bytes.map(|bytes| bytes[at])))));
    cells.push(cell(sum(&|it| it.never_bytes)));
    cells
}

/// An age in seconds; unknown where there is none.
pub fn cell(age_ns: Option<u64>) -> Cell {
    age_ns.map_or(Cell::UNKNOWN, |age_ns| Cell::Number(age_ns as f64 / 1e9, 3))
}

/// How long ago the last access to a field was when the last slice ended. `None` if there was none, if it is not mapped any more, or if
/// the source cannot tell.
pub fn age_ns(asked: &Asked, field: &Field) -> Option<u64> {
    let is_there = !is_gone(asked, field);
    let ages = field.ages_ns(0..field.slices.len());
    ages.into_iter().flatten().min().filter(|_| is_there && asked.look().tells_ages())
}

/// Whether a region was unmapped before the last slice: memory that is not there is not idle.
fn is_gone(asked: &Asked, field: &Field) -> bool {
    let region = &asked.recording.head.regions[field.window.region];
    let last_access = field.last_access().and_then(|row| field.slices.get(row)).copied();
    let last = (region.last_slice as usize).max(last_access.unwrap_or(0));
    asked.slices.last().is_some_and(|slice| last < *slice)
}

/// What is known of a field.
struct Ages {
    bytes: u64,
    touched_bytes: u64,
    age_ns: Option<u64>,
    /// Touched bytes that have been idle for so long; none of what is not mapped any more. `None` if that is not known.
    idle_bytes: Option<[u64; AGES_S.len()]>,
    /// Bytes of granules that were never accessed.
    never_bytes: Option<u64>,
}

impl Ages {
    fn of(asked: &Asked, field: &Field) -> Self {
        let (region, granule_bytes) = (field.window.region, field.window.granule_bytes);
        let unknown = asked.recording.unknown_heat(&asked.selection, Some(region), granule_bytes);
        let is_known = unknown.is_none() && asked.look().tells_ages();
        let is_gone = is_gone(asked, field);
        let ages = field.ages_ns(0..field.slices.len());
        let touched = || ages.iter().zip(&field.touched.granules);
        let idle_for = |age_s: u64| {
            let is_idle = |age_ns: &Option<u64>| age_ns.is_some_and(|age_ns| age_ns >= age_s * 1_000_000_000);
            touched().filter(|(age_ns, _)| !is_gone && is_idle(age_ns)).map(|(_, bytes)| bytes).sum()
        };
        let never = ages.iter().enumerate().filter(|(_, age_ns)| !is_gone && age_ns.is_none());
        let never_bytes: u64 = never.map(|(granule, _)| field.bytes_of(granule)).sum();
        Ages {
            bytes: field.window.bytes,
            touched_bytes: field.touched.bytes(),
            age_ns: age_ns(asked, field),
            idle_bytes: is_known.then(|| AGES_S.map(idle_for)),
            // Of what was looked at as a whole some may never have been accessed.
            never_bytes: unknown.is_none().then_some(never_bytes),
        }
    }
}
