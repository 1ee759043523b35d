//! Counter that one thread writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counted by one thread, read by any. Only one writes, so adding needs no locked instruction.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.get().wrapping_add(more), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
