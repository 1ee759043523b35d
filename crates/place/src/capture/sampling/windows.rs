//! Windows of a slice: the observations of each granule.

use std::collections::BTreeMap;
use std::time::Duration;

use super::rate::{SampleWindow, touches_per_s};

/// Windows that are kept of a granule; a recorder opens fewer in a slice.
const WINDOWS_MAX: usize = 8;

/// A granule that was added for such a part of the time was looked at in every window: windows of one granule are a little
/// shorter than those of another.
const PRESENT: f64 = 0.9;

/// The granules of a program, by their first address.
#[derive(Debug, Default)]
pub(super) struct Windows {
    granules: BTreeMap<u64, Granule>,
}

#[derive(Clone, Copy, Debug)]
struct Granule {
    bytes: u64,
    windows: [SampleWindow; WINDOWS_MAX],
    count: usize,
    /// Pages, the most of any window.
    pages: u32,
    /// Pages of the granule that each of them represents.
    scale: f64,
    /// Pages that came to be in memory, and were touched for that.
    fresh: u64,
}

impl Windows {
    /// Adds a window's observation of a granule; each observed page represents `scale` pages.
    /// A granule of another size than before is a new one. `fresh` more pages became resident
    /// meanwhile: a touch each, which says nothing of how often they will be touched.
    pub fn add(&mut self, address: u64, bytes: u64, scale: f64, window: SampleWindow, fresh: u32) {
        let none = SampleWindow { seconds: 0.0, touched: 0, pages: 0 };
        let unseen = Granule { bytes, windows: [none; WINDOWS_MAX], count: 0, pages: 0, scale, fresh: 0 };
        let granule = self.granules.entry(address).or_insert(unseen);
        if granule.bytes != bytes {
            *granule = unseen;
        }
        if let Some(place) = granule.windows.get_mut(granule.count) {
            *place = window;
            granule.count += 1;
            granule.pages = granule.pages.max(window.pages);
            granule.scale = scale;
            granule.fresh += u64::from(fresh);
        }
    }

    /// Tells each granule that was touched with how often its pages were, all of them together, in a slice of this length,
    /// and begins anew. All granules were looked at for `observed_s` seconds: where the windows that were added of one are
    /// shorter together, it was untouched for the rest.
    pub fn take(&mut self, slice: Duration, observed_s: f64, mut each: impl FnMut(u64, u64, f64)) {
        for (address, mut granule) in std::mem::take(&mut self.granules) {
            let added_s: f64 = granule.windows[..granule.count].iter().map(|window| window.seconds).sum();
            if added_s < observed_s * PRESENT && granule.count < WINDOWS_MAX {
                let rest = SampleWindow { seconds: observed_s - added_s, touched: 0, pages: granule.pages };
                granule.windows[granule.count] = rest;
                granule.count += 1;
            }
            let rate = touches_per_s(&granule.windows[..granule.count]);
            let touches = rate * slice.as_secs_f64() * f64::from(granule.pages) + granule.fresh as f64;
            if touches > 0.0 {
                each(address, granule.bytes, touches * granule.scale);
            }
        }
    }
}
