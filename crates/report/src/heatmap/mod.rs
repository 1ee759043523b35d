//! Heatmaps of recordings: how often each part of a memory region was accessed,
//! drawn for paper and for the screen (Fisher 2025, sections 3.2 and 4.1).
//!
//! [`gather`] takes the selected part out of a recording, a [`Field`] for each region; a [`Look`] says how it is drawn;
//! each view makes a [`Scene`] of it, which [`png`] and [`svg`] write. [`page`] makes an interactive page of all views.

mod autocorrelation;
mod base64;
mod colour;
mod compared;
mod field;
mod layout;
pub mod live_page;
mod map;
mod packed;
mod page;
mod page_against;
mod path;
mod png;
mod processes;
mod scatter;
mod scene;
mod svg;
mod text;
mod words;
mod working_set;

pub use autocorrelation::autocorrelation;
pub use colour::Theme;
pub use compared::{Pair, Recorded, Seen, pairs, ratio};
pub use field::{AccessClass, Field, TooFine, gather};
pub use map::{Side, map, map_against, map_of_regions, map_of_slices, period_of};
pub use page::{PageRegion, kind_name, page, page_data};
pub use page_against::page_against;
pub use path::path;
pub use png::png;
pub use scatter::scatter;
pub use scene::Scene;
pub use svg::svg;
pub use text::{text_map, text_map_of_regions};
pub use working_set::{together, working_set};

use tiermem_trace::recording::{Recording, Selection};

/// Figure shown for each granule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Show {
    /// How often it was accessed.
    #[default]
    Accesses,
    /// The share of its accesses that remote memory answered, among those of which that is known.
    ShareRemote,
    /// How long ago it was last accessed, at the end of the slices that are looked at, in nanoseconds.
    Idle,
}

/// Spread of values over colours or along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScaleChoice {
    /// By logarithms where values differ much.
    #[default]
    Auto,
    /// Evenly.
    Linear,
    /// By logarithms.
    Log,
}

/// Number of granules in a row of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Columns {
    /// As many as there are rows, or one more.
    #[default]
    Square,
    /// This number.
    Given(usize),
}

impl Columns {
    /// The number of columns for this number of granules; at least 1.
    pub fn of(self, granules: usize) -> usize {
        match self {
            Columns::Square => (granules as f64).sqrt().ceil() as usize,
            Columns::Given(columns) => columns,
        }
        .clamp(1, granules.max(1))
    }
}

/// Options of drawing.
#[derive(Clone, Debug)]
pub struct Look<'a> {
    /// Where it comes from.
    pub recording: &'a Recording,
    /// Selected accesses.
    pub selection: Selection,
    /// Figure shown for them.
    pub show: Show,
    /// Spread of values.
    pub scale: ScaleChoice,
    /// The shape of maps.
    pub columns: Columns,
    /// Colours.
    pub theme: Theme,
    /// Whether addresses of the recorded run are told beside offsets.
    pub absolute: bool,
}

impl Field {
    /// The values shown for each granule, over some rows of the field; NaN where the granule was never accessed.
    fn values(&self, show: Show, rows: std::ops::Range<usize>) -> Vec<f32> {
        let sums = |part| {
            let mut sums = vec![0f64; self.granules()];
            if let Some(heat) = self.heat_of(part) {
                for row in rows.clone() {
                    sums.iter_mut().zip(heat.row(row)).for_each(|(sum, value)| *sum += f64::from(*value));
                }
            }
            sums
        };
        match show {
            Show::Idle => {
                let ages = self.ages_ns(rows).into_iter();
                ages.map(|age_ns| age_ns.map_or(f32::NAN, |age_ns| age_ns as f32)).collect()
            }
            Show::Accesses => {
                let value = |sum: f64| if sum > 0.0 { sum as f32 } else { f32::NAN };
                sums(AccessClass::Accesses).into_iter().map(value).collect()
            }
            Show::ShareRemote => {
                let (remote, local, cached) =
                    (sums(AccessClass::Remote), sums(AccessClass::Local), sums(AccessClass::Cached));
                let share = |at: usize| {
                    let known = remote[at] + local[at] + cached[at];
                    if known > 0.0 { (remote[at] / known) as f32 } else { f32::NAN }
                };
                (0..remote.len()).map(share).collect()
            }
        }
    }
}

/// The parts that a look needs of a field.
pub fn parts_for(show: Show) -> &'static [AccessClass] {
    match show {
        Show::Accesses | Show::Idle => &[AccessClass::Accesses],
        Show::ShareRemote => {
            &[AccessClass::Accesses, AccessClass::Remote, AccessClass::Local, AccessClass::Cached]
        }
    }
}

#[cfg(test)]
mod tests;
