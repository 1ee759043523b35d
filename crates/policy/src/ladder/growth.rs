//! Memory for metadata to grow into.
//!
//! Metadata comes out of tier 0, whose pages are taken back a few in each step. So that pages and metadata together never
//! exceed the capacity, not even between two steps, a part of the tier is kept free for what may grow next: some room for
//! all that grows in small pieces, and for each thing that grows in large ones the next of them. Whatever grows finds its
//! memory there, and pages are taken back to make up for it.

use super::{Admit, Context, Ladder, PAGE_BYTES};
use crate::column::CHUNK_ITEMS;

/// For segments of the index, tables of pages and timers: what some dozens of requests bring.
const SMALL_BYTES: u64 = 32 << 10;
/// Where all tenants of a tier come at once: a place and two nodes of the tournament for each.
const TENANTS_BYTES: u64 = 16 * super::TENANTS_MAX as u64;
/// A chunk of item numbers: nodes, links, marks, a byte for counts of uses or reuse times, and names of timers.
const CHUNK_BYTES: u64 = 20 * CHUNK_ITEMS as u64;

impl Ladder {
    /// Tells what the caller's own index holds, which is charged to tier 0, and by how much it may grow at once.
    #[inline]
    pub fn set_index_bytes(&mut self, bytes: u64, growth_bytes: u64) {
        (self.index_bytes, self.index_growth_bytes) = (bytes, growth_bytes);
    }

    fn growth_bytes(&self) -> u64 {
        let slots = self.levels.iter().map(|level| level.slots.pages().growth_bytes()).sum::<u64>();
        let tenants = if self.config.tenants { TENANTS_BYTES * self.levels.len() as u64 } else { 0 };
        SMALL_BYTES + self.index_growth_bytes + slots + tenants
    }

    /// Tier 0 holds what metadata leaves of it.
    pub(super) fn limit_pages(&mut self) {
        if self.config.charge_metadata {
            self.index_bytes_limited = self.index_bytes;
            let metadata = self.metadata_bytes() + self.growth_bytes();
            let left = self.config.levels[0].capacity_bytes.saturating_sub(metadata);
            self.levels[0].slots.supply_mut().set_limit((left / PAGE_BYTES) as u32);
        }
    }

    /// Before an item comes in: where the index has grown since the last look, and into a page's memory, that page is taken
    /// back. Steps do so as well, but a request that brings thousands of items makes none.
    pub(super) fn make_up_for_growth(&mut self, context: &mut Context<'_>) {
        if self.index_bytes <= self.index_bytes_limited {
            return;
        }
        self.limit_pages();
        let (slots, under_way) = (&self.levels[0].slots, self.levels[0].leaving_bytes > 0);
        if slots.supply().used() > slots.supply().limit() && !under_way {
            self.reclaim(0, 1, self.evictable_bytes_for_admission(context.demand), context);
        }
    }

    /// Whether the next item number needs a chunk of its own.
    pub(super) fn needs_chunk(&self) -> bool {
        self.free_ids == crate::Id::NONE && (self.ids_made as usize).is_multiple_of(CHUNK_ITEMS)
    }

    /// Pages of tier 0 that stand where the next chunk of item numbers is to be.
    pub(super) fn pages_short_for_chunk(&self) -> u64 {
        if !self.config.charge_metadata {
            return 0;
        }
        let pages = u64::from(self.levels[0].slots.supply().used()) * PAGE_BYTES;
        let needed = pages + self.metadata_bytes() + self.growth_bytes() + CHUNK_BYTES;
        needed.saturating_sub(self.config.levels[0].capacity_bytes).div_ceil(PAGE_BYTES)
    }

    /// Takes back the pages that a chunk of item numbers needs. `Some`: they are free when moves are done.
    pub(super) fn make_room_for_chunk(&mut self, context: &mut Context<'_>) -> Option<Admit> {
        if self.levels[0].leaving_bytes == 0 {
            for _ in 0..self.pages_short_for_chunk() {
                if !self.reclaim(0, 1, self.evictable_bytes_for_admission(context.demand), context) {
                    break;
                }
            }
        }
        let under_way = self.levels[0].leaving_bytes > 0 && self.pages_short_for_chunk() > 0;
        self.last_ticket().filter(|_| under_way).map(Admit::After)
    }
}
