//! What all shards know of their device's growth.

use std::sync::{Arc, Mutex, PoisonError};

use tiermem_policy::log::Growths;
use tiermem_tier::block::OpenError;

/// The segments that each growth gave to each region of one device. Its clones are the same.
#[derive(Clone, Debug, Default)]
pub struct SharedGrowths(Arc<Mutex<Vec<u32>>>);

impl SharedGrowths {
    /// A region was found that has taken these. The process may have died before others took the last ones.
    pub(super) fn note_found(&self, given: &[u32]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if given.len() > known.len() {
            given.clone_into(&mut known);
        }
    }

    /// All growths, after another one if the device has less than `capacity_bytes`; `extend` sees to it that it has so many bytes.
    /// The first of the regions that ask for the same capacity extends the device for all.
    pub(super) fn grow(
        &self,
        own: &Growths,
        capacity_bytes: u64,
        extend: impl FnOnce(u64) -> Result<(), OpenError>,
    ) -> Result<Growths, OpenError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut growths = own.with_given(known.clone());
        // Whoever asked first may have had more: that is a growth as well.
        if let Ok(segments @ 1..) = growths.segments_to(capacity_bytes) {
            growths.give(segments);
        }
        extend(growths.capacity_bytes())?;
        growths.given().clone_into(&mut known);
        Ok(growths)
    }
}
