//! Forgetting blocks because somebody says so, and not because their room is needed.

use super::geometry::UNIT_BYTES;
use super::{Departure, Evict, Extents, Volume, block_id};

impl<O: Evict> Extents<O> {
    /// Forgets blocks of a volume, of `blocks_max` that are looked at from slot `from` on, whosever they are: those that have nothing dirty
    /// and that no plan in flight speaks of. Adds the bytes that they held to `bytes`, and gives the slot to go on from; none at
    /// the end.
    pub fn forget_clean(
        &mut self,
        volume: Volume,
        from: u32,
        blocks_max: usize,
        bytes: &mut u64,
    ) -> Option<u32> {
        let mut slots: Vec<u32> = self.space.begins_from(from).take(blocks_max.saturating_add(1)).collect();
        let next = if slots.len() > blocks_max { slots.pop() } else { None };
        for slot in slots {
            let units = self.units_of(&self.block_at(slot));
            let is_pinned = self.pinned.contains_key(&block_id(&self.geometry, slot).0);
            if self.table.address(slot).0 == volume && !is_pinned && !self.units.dirty().any(units.clone()) {
                *bytes += self.units.valid().count(units) * UNIT_BYTES;
                self.drop_block(slot, Departure::Deleted);
            }
        }
        next
    }
}
