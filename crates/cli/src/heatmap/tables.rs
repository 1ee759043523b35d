//! Table of regions.

use tiermem_report::heatmap::{AccessClass, Field, kind_name, period_of};

use super::asked::Asked;
use super::idle;
use crate::output::{Cell, Rows};

/// Fields of the table of regions.
const REGION_FIELDS: &[&str] = &[
    "region",
    "name",
    "kind",
    "bytes",
    "accesses",
    "share",
    "granule_bytes",
    "touched_granules",
    "touched_bytes",
    "period_granules",
    "period_bytes",
    "idle_s",
    "start",
    "end",
];

/// One line for each region, in the order of `fields`. Regions without accesses have lines too.
pub fn regions(asked: &Asked, fields: &[Field]) -> Rows {
    let Asked { recording, selection, .. } = asked;
    let all: f64 = fields.iter().map(|field| field.sum).sum();
    let row = |field: &Field| {
        let region = &recording.head.regions[field.window.region];
        let granule_bytes = field.window.granule_bytes;
        let touched = field
            .heat_of(AccessClass::Accesses)
            .map_or(0, |heat| heat.totals().iter().filter(|total| **total > 0.0).count() as u64);
        let period = period_of(field).map(|granules| granules as u64);
        // A mapping that was looked at as a whole has touched granules, and nobody knows which.
        let is_unknown =
            recording.unknown_heat(selection, Some(field.window.region), granule_bytes).is_some();
        let maybe = |count: Option<u64>| count.map_or(Cell::UNKNOWN, Cell::Count);
        vec![
            Cell::Count(field.window.region as u64),
            Cell::Text(region.name.clone()),
            Cell::Text(kind_name(region.kind).to_owned()),
            Cell::Bytes(region.bytes),
            Cell::Number(field.sum, if field.sum.fract() == 0.0 { 0 } else { 3 }),
            Cell::Number(if all > 0.0 { field.sum / all } else { 0.0 }, 4),
            Cell::Bytes(granule_bytes),
            maybe(Some(touched).filter(|_| !is_unknown)),
            Cell::Bytes(field.touched.bytes()),
            maybe(period),
            period.map_or(Cell::UNKNOWN, |granules| Cell::Bytes(granules.saturating_mul(granule_bytes))),
            idle::cell(idle::age_ns(asked, field)),
            Cell::Text(format!("{:#x}", region.start)),
            Cell::Text(format!("{:#x}", region.start.saturating_add(region.bytes))),
        ]
    };
    // The last two are addresses.
    let shown = if asked.options.absolute { REGION_FIELDS.len() } else { REGION_FIELDS.len() - 2 };
    let cut = |mut cells: Vec<Cell>| {
        cells.truncate(shown);
        cells
    };
    Rows { fields: &REGION_FIELDS[..shown], rows: fields.iter().map(row).map(cut).collect() }
}
