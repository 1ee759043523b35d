//! Memory that shards give to each other: capacities that change, and what tells who needs it.

use tiermem_policy::ladder::{Eviction as LadderEviction, Tuning};
use tiermem_policy::shard::Change;

use super::Eviction;
use super::contents::Contents;

/// The tiers of an engine that are memory.
#[derive(Debug)]
pub struct MemoryTiers<'a> {
    pub(super) contents: &'a Contents,
}

impl MemoryTiers<'_> {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.contents.shard.ladder().residents().levels()
    }

    /// A tier's capacity now, in bytes.
    pub fn capacity_bytes(&self, tier: usize) -> u64 {
        self.contents.shard.ladder().config().levels[tier].capacity_bytes
    }

    /// Whether a tier holds no more than its capacity, and has given the rest back.
    pub fn is_within_capacity(&self, tier: usize) -> bool {
        self.contents.shard.ladder().residents().level(tier).is_within_capacity()
    }

    /// Items that have left a tier downwards or for good since the start, and how long ago, in requests, such items were last
    /// used.
    pub fn departures(&self, tier: usize) -> (u64, u64) {
        let counters = self.contents.shard.ladder().residents().level(tier).counters();
        (counters.demotions + counters.evictions, self.contents.shard.ladder().tail_age_requests(tier))
    }

    /// What may be thrown out when space runs short.
    pub fn eviction(&self) -> Eviction {
        match self.contents.shard.ladder().config().eviction {
            LadderEviction::AllItems => Eviction::AllKeys,
            LadderEviction::Forbidden => Eviction::Forbidden,
        }
    }

    /// What may be changed about the ladder while it runs, as it is.
    pub fn tuning(&self) -> Tuning {
        self.contents.shard.ladder().config().tuning()
    }

    /// Nanoseconds that emulated tiers have charged since the start; the difference over a request is its own.
    #[inline]
    pub fn charged_ns(&self) -> f64 {
        self.contents.items.tiers.charged_total_ns()
    }

    /// Nanoseconds of that which have been waited off.
    #[inline]
    pub fn waited_ns(&self) -> f64 {
        self.contents.items.tiers.waited_ns()
    }
}

/// The tiers of an engine that are memory, to be changed.
#[derive(Debug)]
pub struct MemoryTiersMut<'a> {
    pub(super) contents: &'a mut Contents,
}

impl MemoryTiersMut<'_> {
    /// Changes a tier's capacity. What is above it leaves a little in every step and every [`Self::shrink`].
    pub fn set_capacity(&mut self, tier: usize, capacity_bytes: u64) {
        self.contents.shard.configure(Change::Capacity { tier, bytes: capacity_bytes });
        let Contents { tenants, shard, .. } = &mut *self.contents;
        tenants.resized(shard);
    }

    /// Makes a step where a tier is above its capacity, for a shard that nobody asks for anything; whether all are within
    /// theirs.
    pub fn shrink(&mut self) -> bool {
        let are_within = |contents: &Contents| {
            let tiers = MemoryTiers { contents };
            (0..tiers.count()).all(|tier| tiers.is_within_capacity(tier))
        };
        if !are_within(self.contents) {
            self.contents.step();
        }
        are_within(self.contents)
    }

    /// Changes what may be changed about the ladder.
    pub fn tune(&mut self, tuning: Tuning) {
        self.contents.shard.configure(Change::Tuning(tuning));
    }
}
