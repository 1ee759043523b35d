//! Map as text, as wide as the terminal.

use std::io;

use rustix::termios::tcgetwinsize;
use tiermem_report::heatmap::{self, AccessClass};
use tiermem_trace::recording::RegionRange;

use super::asked::Asked;
use crate::failure::Failure;

/// Columns where standard output is no terminal.
pub const COLUMNS: usize = 80;
/// Regions of a map at most.
const REGIONS_MAX: usize = 24;
/// Values (granules times slices) of a region at most; beyond that its granules are coarser.
const VALUES_MAX: u64 = 4 << 20;

/// A map as text.
pub struct TextMap {
    /// The text, in lines.
    pub text: String,
    /// Regions for which there was no row.
    pub left_out: usize,
}

impl TextMap {
    /// What to know of regions for which there was no row, if there are some.
    pub fn note(&self) -> Option<String> {
        let count = self.left_out;
        (count > 0).then(|| format!("{count} colder regions are left out; --region NAME takes any"))
    }
}

/// The map of the region that is asked for, or one with a row for each region, in `columns` columns.
pub fn map(asked: &Asked, columns: usize) -> Result<TextMap, Failure> {
    let named = asked.named()?;
    let is_one = named.as_ref().is_some_and(|windows| windows.len() == 1);
    let mut windows = match named {
        Some(windows) => windows,
        None => {
            let whole = |region| RegionRange::whole(asked.recording, region, asked.granule_bytes());
            asked.sums().into_iter().map(|(region, _)| whole(region)).collect()
        }
    };
    // A rate is that of a granule, so that all have granules of one size.
    let slices = asked.slices.len() as u64;
    let granule = |window: &RegionRange| {
        let mut window = *window;
        while window.granules().1.saturating_mul(slices) > VALUES_MAX && window.granules().1 > 1 {
            window.granule_bytes = window.granule_bytes.saturating_mul(2);
        }
        window.granule_bytes
    };
    let coarsest = windows.iter().map(granule).max().unwrap_or(1);
    windows.iter_mut().for_each(|window| window.granule_bytes = coarsest);
    let mut fields = asked.gather(&windows, &[AccessClass::Accesses])?;
    fields.retain(|field| field.sum > 0.0);
    fields.sort_by(|a, b| b.sum.total_cmp(&a.sum));
    let Some(first) = fields.first() else { return Err(asked.nothing()) };
    let look = asked.look();
    if is_one {
        return Ok(TextMap { text: heatmap::text_map(&look, first, columns), left_out: 0 });
    }
    let left_out = fields.len().saturating_sub(REGIONS_MAX);
    fields.truncate(REGIONS_MAX);
    Ok(TextMap { text: heatmap::text_map_of_regions(&look, &fields, columns), left_out })
}

/// The terminal's columns, or what there is without one.
pub fn columns() -> usize {
    let columns = tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    // Some terminals do not know how wide they are.
    if columns == 0 { COLUMNS } else { columns }
}
