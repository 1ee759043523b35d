//! Windows of a slice: the observations of each granule.

use std::collections::BTreeMap;
use std::time::Duration;

use tiermem_policy::accessed_bits::rate::{SampleWindow, rate_of};

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

#[derive(Clone, Debug)]
struct Granule {
    bytes: u64,
    windows: Vec<SampleWindow>,
}

impl Windows {
    /// Adds a window's observation of a granule. A granule of another size than before is a new one.
    pub fn add(&mut self, address: u64, bytes: u64, window: SampleWindow) {
        let unseen = Granule { bytes, windows: Vec::new() };
        let granule = self.granules.entry(address).or_insert_with(|| unseen.clone());
        if granule.bytes != bytes {
            *granule = unseen;
        }
        if granule.windows.len() < WINDOWS_MAX {
            granule.windows.push(window);
        }
    }

    /// Tells each granule that was touched with how often its pages were, all of them together, in a slice of this length,
    /// and begins anew. All granules were looked at for `observed_s` seconds: where the windows that were added of one are
    /// shorter together, it was untouched for the rest.
    pub fn take(&mut self, slice: Duration, observed_s: f64, mut each: impl FnMut(u64, u64, f64)) {
        for (address, Granule { bytes, mut windows }) in std::mem::take(&mut self.granules) {
            let added_s: f64 = windows.iter().map(|window| window.seconds).sum();
            let pages = windows.iter().map(|window| window.pages).fold(0.0, f64::max);
            if added_s < observed_s * PRESENT && windows.len() < WINDOWS_MAX {
                windows.push(SampleWindow {
                    seconds: observed_s - added_s,
                    before_s: 0.0,
                    touched: 0.0,
                    pages,
                });
            }
            let touches = rate_of(&windows).per_page_s() * slice.as_secs_f64() * pages;
            if touches > 0.0 {
                each(address, bytes, touches);
            }
        }
    }
}
