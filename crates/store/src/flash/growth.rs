//! Growth of the device under the shards that use it: what all of them know of it, and how one takes what it was given.

use std::sync::{Arc, Mutex, PoisonError};

use tiermem_policy::log::{CannotGrow, Growths};
use tiermem_policy::shard::Shard;
use tiermem_tier::block::OpenError;

use super::{Flash, FlashError};

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
    fn grow(
        &self,
        own: &Growths,
        capacity_bytes: u64,
        extend: impl FnOnce(u64) -> Result<(), OpenError>,
    ) -> Result<Growths, FlashError> {
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

impl Flash {
    /// Bytes of the device that all shards take.
    pub fn device_bytes(&self) -> u64 {
        self.growths.capacity_bytes()
    }

    /// Has the device grow by whole segments, so that all shards together take at most `capacity_bytes`. Each of them must be
    /// asked. What lies there stays. The growth is as durable as what will lie in it. Waits for the device.
    ///
    /// # Errors
    /// When it cannot, and has what it had.
    pub fn grow(&mut self, shard: &mut Shard, capacity_bytes: u64) -> Result<(), FlashError> {
        self.growths.segments_to(capacity_bytes)?;
        self.grow_with_others(shard, capacity_bytes)
    }

    /// The same at the start, where the device keeps what it has if it is to have less. What other regions were given before the
    /// process died comes to this one too.
    ///
    /// # Errors
    /// As for [`Self::grow`].
    pub fn grow_at_start(&mut self, shard: &mut Shard, capacity_bytes: u64) -> Result<(), FlashError> {
        match self.growths.segments_to(capacity_bytes) {
            Ok(_) | Err(CannotGrow::Smaller(_)) => self.grow_with_others(shard, capacity_bytes),
            Err(error) => Err(error.into()),
        }
    }

    fn grow_with_others(&mut self, shard: &mut Shard, capacity_bytes: u64) -> Result<(), FlashError> {
        let requests = &mut self.requests;
        let growths =
            self.shared_growths.grow(&self.growths, capacity_bytes, |bytes| requests.grow(bytes))?;
        let has = self.growths.given().len();
        if growths.given().len() == has {
            return Ok(());
        }
        // No item may lie there before a restart would look there.
        self.restart.grow(&growths, &mut self.requests)?;
        self.layout = self.layout.with_growths(&growths, self.restart.superblock().shard);
        shard.device().grow(growths.given()[has..].iter().sum());
        self.growths = growths;
        Ok(())
    }
}
