//! The pure cores that decide: slots, tiers, eviction, moves.
//!
//! Everything here takes events and time as arguments and returns decisions. It does no I/O, reads no clock, starts no thread,
//! owns no randomness and never iterates in hash order, so the simulator and the live engine run the same code and reach the same
//! state.
#![forbid(unsafe_code)]

pub mod accessed_bits;
pub mod choose_k;
pub mod column;
pub mod deferred_free;
pub mod erase_block_gc;
pub mod evict;
pub mod expiry;
pub mod extents;
pub mod flat;
pub mod frames;
pub mod index;
pub mod ladder;
pub mod log;
pub mod miss_cost;
pub mod moves;
pub mod paging;
pub mod partition;
pub mod placement;
pub mod prefetch;
pub mod promotion_rule;
pub mod reply_line;
pub mod reply_room;
pub mod shard;
pub mod shard_memory;

/// An item's number while it lives in slotted tiers. A move keeps it; a removed item's number is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u32);

impl Id {
    /// No item: ends a list.
    pub const NONE: Id = Id(u32::MAX);
    /// How many items one shard can hold.
    pub const COUNT_MAX: u32 = (1 << 28) - crate::column::CHUNK_ITEMS as u32;

    /// The position in a [`column::Column`].
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The time of a decision. Both parts only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Requests that the shard has served: the clock of recency and reuse.
    pub requests: u64,
    /// Unix time in milliseconds: the clock of expiry, and of nothing else.
    pub unix_ms: u64,
}
