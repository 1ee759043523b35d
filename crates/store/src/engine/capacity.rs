//! Memory that shards give to each other: tier capacities change as the
//! shards' [`Member`](tiermem_policy::shard_memory::Member)s decide.

use tiermem_policy::ladder::{Eviction as LadderEviction, Tuning};
use tiermem_policy::shard::{Change, Shard};
use tiermem_policy::shard_memory::Driven;

use super::Eviction;
use super::contents::Contents;

/// The tiers of an engine that are memory.
#[derive(Debug)]
pub struct MemoryTiers<'a> {
    pub(super) contents: &'a Contents,
}

impl MemoryTiers<'_> {
    /// Number of memory tiers.
    pub fn count(&self) -> usize {
        self.contents.shard.ladder().residents().levels()
    }

    /// A tier's capacity now, in bytes.
    pub fn capacity_bytes(&self, tier: usize) -> u64 {
        self.contents.shard.ladder().config().levels[tier].capacity_bytes
    }

    /// For each tier whether its size can change: a region that outlives the process has that of its file.
    pub fn resizable(&self) -> impl Iterator<Item = bool> {
        (0..self.count()).map(|tier| !self.contents.items.tiers.keeps(tier as u8))
    }

    /// Whether each tier holds no more than its capacity, and has given the rest back.
    pub fn are_within_capacity(&self) -> bool {
        let residents = self.contents.shard.ladder().residents();
        (0..self.count()).all(|tier| residents.level(tier).is_within_capacity())
    }

    /// Keys that may be evicted when space runs short.
    pub fn eviction(&self) -> Eviction {
        match self.contents.shard.ladder().config().eviction {
            LadderEviction::AllItems => Eviction::AllKeys,
            LadderEviction::Forbidden => Eviction::Forbidden,
        }
    }

    /// The ladder's parameters that may change while it runs.
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
    /// Changes what may be changed about the ladder.
    pub fn tune(&mut self, tuning: Tuning) {
        self.contents.shard.configure(Change::Tuning(tuning));
    }
}

impl Driven for MemoryTiersMut<'_> {
    fn shard(&self) -> &Shard {
        &self.contents.shard
    }

    fn set_capacity(&mut self, tier: usize, bytes: u64) {
        self.contents.shard.configure(Change::Capacity { tier, bytes });
        let Contents { tenants, shard, .. } = &mut *self.contents;
        tenants.resized(shard);
    }

    fn step(&mut self) {
        self.contents.step();
    }
}
