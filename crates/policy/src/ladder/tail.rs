//! What a tier without slots, below the last one, asks the ladder.

use super::{Ladder, PAGE_BYTES};
use crate::promote::WHOLE;

impl Ladder {
    /// Whether an item below all slotted tiers that was seen again after `reuse` requests belongs into memory: it is
    /// reused sooner than some tier's items are on average, or than those that leave the tier have waited in vain, for one of
    /// those makes room; or memory has room that nobody needs. It is here already, so bringing it up costs one write, and
    /// each later use saves a reading: that is why this asks for less than promotion between slotted tiers. Not while the
    /// outlet is choked: a copy would drive somebody out. `None`: it is not known when it was seen before.
    pub fn wants(&self, reuse: Option<u64>, bytes: u64) -> bool {
        let ticks = reuse.map(|reuse| (reuse / self.config.recency_requests.max(1)).max(1));
        !self.must_wait()
            && self.levels.iter().any(|level| {
                let capacity_bytes = u64::from(level.slots.supply().limit()) * PAGE_BYTES;
                let spare = self.config.watermarks.map_or(0.0, |marks| marks.high) * capacity_bytes as f64;
                level.slots.free_bytes() > spare as u64 + bytes
                    || ticks.is_some_and(|ticks| {
                        level.reuse.is_below_mean(ticks, WHOLE) || ticks * 64 < level.tail_age
                    })
            })
    }

    /// Whether metadata may grow: it takes its memory from tier 0.
    pub fn may_grow(&self) -> bool {
        let most = self.config.levels[0].capacity_bytes as f64 * self.config.metadata_share_max;
        !self.config.charge_metadata || (self.metadata_bytes() as f64) < most
    }
}
