//! Table of the working set: bytes touched in a slice, over all slices, with what was in memory beside it.

use tiermem_model::heat::Quartiles;
use tiermem_report::heatmap::{Field, together};
use tiermem_trace::recording::UNKNOWN_MIN;

use super::asked::Asked;
use crate::output::{Cell, Rows};

const FIELDS: &[&str] = &[
    "of",
    "name",
    "bytes",
    "min_bytes",
    "p25_bytes",
    "p50_bytes",
    "p75_bytes",
    "max_bytes",
    "touched_bytes",
    "rss_p50_bytes",
    "rss_max_bytes",
    "unknown_heat_share",
];

/// A line for all of the fields together, one for each process if there are several, and one for each field.
pub fn table(asked: &Asked, fields: &[Field]) -> Rows {
    let head = &asked.recording.head;
    let all: Vec<Known> = fields.iter().map(|field| Known::of(asked, field)).collect();
    let row = |of: &str, name: &str, some: &[&Known], rss: &dyn Fn(usize) -> Option<u64>| {
        row(asked, (of, name), some, rss)
    };
    let every: Vec<&Known> = all.iter().collect();
    let mut rows = vec![row("all", "all", &every, &|slice| asked.recording.rss(slice))];
    if head.processes.len() > 1 {
        for (at, process) in head.processes.iter().enumerate().filter(|(_, it)| it.is_observed) {
            let is_its = |known: &&Known| head.regions[known.field.window.region].process as usize == at;
            let its: Vec<&Known> = all.iter().filter(is_its).collect();
            rows.push(row("process", &process.name, &its, &|slice| process.rss.at(slice)));
        }
    }
    for known in &all {
        // What was in memory is known of processes alone.
        rows.push(row("region", &head.regions[known.field.window.region].name, &[known], &|_| None));
    }
    Rows { fields: FIELDS, rows }
}

/// A field, and the accesses in it of which it is not known where they went.
struct Known<'a> {
    field: &'a Field,
    unknown: f64,
}

impl<'a> Known<'a> {
    fn of(asked: &Asked, field: &'a Field) -> Self {
        let (region, granule_bytes) = (field.window.region, field.window.granule_bytes);
        let share = asked.recording.unknown_heat(&asked.selection, Some(region), granule_bytes);
        Known { field, unknown: share.unwrap_or(0.0) * field.sum }
    }
}

fn row(
    asked: &Asked,
    (of, name): (&str, &str),
    some: &[&Known],
    rss: &dyn Fn(usize) -> Option<u64>,
) -> Vec<Cell> {
    let (mut each, since_start) = together(some.iter().map(|known| known.field));
    // A slice in which nothing was touched has a working set too: none.
    each.resize(asked.slices.len(), 0);
    let bytes = |bytes: Option<u64>| bytes.map_or(Cell::UNKNOWN, Cell::Bytes);
    let five = |of: Option<Quartiles>| of.map_or([None; 5], |it| it.all().map(Some));
    let rss = Quartiles::of(asked.slices.iter().filter_map(|slice| rss(*slice)));
    let mut cells = vec![Cell::Text(of.to_owned()), Cell::Text(name.to_owned())];
    cells.push(Cell::Bytes(some.iter().map(|known| known.field.window.bytes).sum()));
    cells.extend(five(Quartiles::of(each)).map(bytes));
    cells.push(Cell::Bytes(since_start.last().copied().unwrap_or(0)));
    cells.extend([bytes(rss.map(|it| it.p50)), bytes(rss.map(|it| it.max))]);
    cells.push(Cell::Number(unknown_share(some), 4));
    cells
}

/// The share of accesses to mappings that were looked at as wholes, whose touched bytes are an upper bound; 0 if below a tenth.
fn unknown_share(some: &[&Known]) -> f64 {
    let sum = |of: fn(&Known) -> f64| some.iter().map(|known| of(known)).sum::<f64>();
    let share = sum(|known| known.unknown) / sum(|known| known.field.sum).max(f64::MIN_POSITIVE);
    if share < UNKNOWN_MIN { 0.0 } else { share }
}
