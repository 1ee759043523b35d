//! Maps of a recording that is under way: by the same code as those of one that has ended, from the part of it that is kept.

use anyhow::anyhow;
use tiermem_report::heatmap::{self, AccessClass, PageRegion};
use tiermem_trace::recording::{Limits, Recording, RegionRange};

use super::asked::Asked;
use super::options::Options;
use super::text::{self, TextMap};
use crate::failure::Failure;

/// How much of a recording is kept for its maps: some tens of megabytes, however long it lasts.
pub const LIMITS: Limits = Limits { slices_max: 256, samples_max: 1 << 18 };

/// Regions that a page has pictures of.
const PAGE_REGIONS: usize = 24;
/// Values (granules times slices) that a page has of all its regions together, a byte each before they are compressed.
const PAGE_VALUES: u64 = 1 << 19;
/// Of those each region may have half of what those before it have left over, and this many in any case.
const REGION_VALUES_MIN: u64 = 1 << 13;

/// The map that the options ask for.
pub fn text(options: &Options, recording: Recording, columns: usize) -> Result<TextMap, Failure> {
    let recording = super::part(options, recording)?;
    text::map(&Asked::new(options, &options.recording, &recording)?, columns)
}

/// The map that `tiermem heatmap REC --text` prints, or with `region` that of `--region`.
pub fn text_of(
    name: &str,
    recording: Recording,
    region: Option<String>,
    columns: usize,
) -> Result<TextMap, Failure> {
    let options = Options { region, ..options(name)? };
    text(&options, recording, columns)
}

/// The data of the page that `tiermem heatmap REC -o page.html` writes, in at most [`PAGE_VALUES`]; nothing without an access.
pub fn page_data_of(name: &str, recording: &Recording) -> Result<Option<serde_json::Value>, Failure> {
    let options = options(name)?;
    let asked = Asked::new(&options, name, recording)?;
    let slices = asked.slices.len() as u64;
    let mut left = PAGE_VALUES;
    let sums = asked.sums();
    let windows = sums.iter().take(PAGE_REGIONS).map(|(region, _)| {
        let mut window = RegionRange::whole(recording, *region, None);
        let most = (left / 2).max(REGION_VALUES_MIN);
        while window.granules().1.saturating_mul(slices) > most && window.granules().1 > 1 {
            window.granule_bytes = window.granule_bytes.saturating_mul(2);
        }
        left = left.saturating_sub(window.granules().1.saturating_mul(slices));
        window
    });
    let windows: Vec<RegionRange> = windows.collect();
    let fields = asked.gather(&windows, &AccessClass::ALL)?;
    let regions: Vec<PageRegion> = fields.into_iter().map(|field| PageRegion { field }).collect();
    Ok((!regions.is_empty()).then(|| heatmap::page_data(&asked.look(), &regions)))
}

fn options(name: &str) -> Result<Options, Failure> {
    Options::of(name).map_err(|error| Failure::failed(anyhow!(error)))
}

/// A note where one slice of a map is several of the recording's.
pub fn note_of_slices(together: u32) -> Option<String> {
    (together > 1).then(|| format!("a slice of this map is {together} slices of the recording together"))
}
