//! Charges of tier 0: metadata and other bytes that count against its capacity in addition to its pages, and a reserve into which
//! they grow.
//!
//! Metadata is part of tier 0, whose pages are taken back a few in each step. So that pages and metadata together never exceed
//! the capacity, not even between two steps, a part of the tier is kept free for the next growth: some room for all that grows in
//! small pieces, and one further piece for each thing that grows in large ones. Growth takes its memory from there, and pages are
//! taken back to refill it.

use super::residents::Residents;
use super::{PAGE_BYTES, TENANTS_MAX};
use crate::column::{CHUNK_ITEMS, SPARSE_ITEMS};
use crate::deferred_free::DeferredFree;

/// For segments of the index, tables of pages and timers: what some dozens of requests bring.
const SMALL_BYTES: u64 = 32 << 10;
/// Where all tenants of a tier come at once: a place and two nodes of the tournament for each.
const TENANTS_BYTES: u64 = 16 * TENANTS_MAX as u64;
/// A chunk of item numbers: nodes, links, marks, a byte for counts of uses or reuse times, and names of timers.
const CHUNK_BYTES: u64 = 20 * CHUNK_ITEMS as u64;
/// Bytes of metadata that a new chunk of item numbers brings with it: node, links, table cell, index entry and timer.
const CHUNK_METADATA_BYTES: u64 = (32 + TIMER_BYTES) * CHUNK_ITEMS as u64;
/// Bytes of an item's timer.
const TIMER_BYTES: u64 = 16;
/// What a timer may bring with it where none was near.
const TIMER_CHUNK_BYTES: u64 = TIMER_BYTES * SPARSE_ITEMS as u64;

/// Bytes charged to tier 0 that belong to no item.
#[derive(Debug, Default, Clone)]
pub(super) struct Charges {
    /// The caller's index, and by how much it may grow at once.
    index_bytes: u64,
    index_growth_bytes: u64,
    /// The bytes of the index when tier 0 was last limited for it.
    index_bytes_limited: u64,
    /// Tables that are no longer needed, whose memory is freed a little at a time.
    deferred_free: DeferredFree,
}

impl Charges {
    /// Sets the bytes of the caller's own index, and by how much it may grow at once.
    #[inline]
    pub fn set_index_bytes(&mut self, bytes: u64, growth_bytes: u64) {
        (self.index_bytes, self.index_growth_bytes) = (bytes, growth_bytes);
    }

    /// Where tables are left that are needed no longer.
    pub fn deferred_free(&mut self) -> &mut DeferredFree {
        &mut self.deferred_free
    }

    /// Bytes of the caller's index and of waste.
    pub fn bytes(&self) -> u64 {
        self.index_bytes + self.deferred_free.bytes()
    }

    /// Whether the index has grown since tier 0 was last limited for it.
    #[inline]
    pub fn has_grown(&self) -> bool {
        self.index_bytes > self.index_bytes_limited
    }

    fn growth_bytes(&self, residents: &Residents) -> u64 {
        let pages = residents.levels.iter().map(|level| level.slots.pages().bytes().1).sum::<u64>();
        let tenants =
            if residents.config.tenants { TENANTS_BYTES * residents.levels.len() as u64 } else { 0 };
        SMALL_BYTES + self.index_growth_bytes + pages + tenants
    }

    /// Limits the pages of tier 0 to what `metadata_bytes` and the reserve leave of its capacity.
    pub fn limit(&mut self, metadata_bytes: u64, residents: &mut Residents) {
        if residents.config.charge_metadata {
            self.index_bytes_limited = self.index_bytes;
            let charged = metadata_bytes + self.growth_bytes(residents);
            let left = residents.config.levels[0].capacity_bytes.saturating_sub(charged);
            residents.levels[0].slots.supply_mut().0.set_limit((left / PAGE_BYTES) as u32);
        }
    }

    /// Pages of tier 0 that stand where the next chunk of item numbers is to be.
    pub fn pages_short_for_chunk(&self, metadata_bytes: u64, residents: &Residents) -> u64 {
        if !residents.config.charge_metadata {
            return 0;
        }
        let pages = u64::from(residents.levels[0].slots.supply().used()) * PAGE_BYTES;
        let needed = pages + metadata_bytes + self.growth_bytes(residents) + CHUNK_BYTES;
        needed.saturating_sub(residents.config.levels[0].capacity_bytes).div_ceil(PAGE_BYTES)
    }

    /// Whether metadata may grow by a chunk of item numbers.
    pub fn may_have_chunk(&self, metadata_bytes: u64, residents: &Residents) -> bool {
        // As if every item had an expiry: it may get one at any time, without asking for room.
        let Some(timers) = residents.nodes.timers_to_come(TIMER_BYTES) else { return false };
        let to_come = timers + CHUNK_METADATA_BYTES;
        let is_short = self.pages_short_for_chunk(metadata_bytes, residents) > 0;
        !residents.config.charge_metadata
            || !is_short && (metadata_bytes + to_come) as f64 <= metadata_bytes_max(residents)
    }

    /// Whether metadata may grow by a timer beside the one of each item.
    pub fn may_have_timer(&self, metadata_bytes: u64, residents: &Residents) -> bool {
        let to_come = residents.nodes.timers_to_come(TIMER_BYTES).unwrap_or(0) + TIMER_CHUNK_BYTES;
        !residents.config.charge_metadata
            || (metadata_bytes + to_come) as f64 <= metadata_bytes_max(residents)
    }
}

/// Bytes that metadata may take.
pub(super) fn metadata_bytes_max(residents: &Residents) -> f64 {
    residents.config.levels[0].capacity_bytes as f64 * residents.config.metadata_share_max
}

#[cfg(test)]
mod tests {
    use super::super::LadderConfig;
    use super::*;

    const TIER: u64 = 64 * PAGE_BYTES;

    #[test]
    fn pages_are_left_for_the_index_to_grow() {
        let mut residents = Residents::new(LadderConfig::with_capacities(&[TIER]));
        let mut charges = Charges::default();
        charges.set_index_bytes(PAGE_BYTES, 2 * PAGE_BYTES);
        assert!(charges.has_grown());
        charges.limit(charges.bytes(), &mut residents);
        assert!(!charges.has_grown());
        // The index, its growth, and a little for the parts that grow in small pieces.
        assert_eq!(residents.levels[0].slots.supply().limit(), 64 - 1 - 2 - 1);
        assert_eq!(charges.pages_short_for_chunk(charges.bytes(), &residents), 0);
        let most = TIER - 3 * PAGE_BYTES;
        assert!(charges.pages_short_for_chunk(most, &residents) > 0);
        assert!(charges.may_have_chunk(0, &residents) && !charges.may_have_chunk(most, &residents));
        residents.config.charge_metadata = false;
        assert!(charges.may_have_chunk(most, &residents));
        charges.limit(most, &mut residents);
        assert_eq!(residents.levels[0].slots.supply().limit(), 60, "nothing is charged");
    }
}
