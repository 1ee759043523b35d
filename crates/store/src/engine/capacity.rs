//! Memory that shards give to each other: capacities that change, and what tells who needs it.

use tiermem_policy::shard::Change;

use super::Engine;

impl Engine {
    /// How many tiers are memory.
    pub fn memory_tiers(&self) -> usize {
        self.shard.ladder().residents().levels()
    }

    /// A tier's capacity now, in bytes.
    pub fn capacity_bytes(&self, tier: usize) -> u64 {
        self.shard.ladder().config().levels[tier].capacity_bytes
    }

    /// Changes a tier's capacity. What is above it leaves a little in every step and every [`Self::shrink`].
    pub fn set_capacity(&mut self, tier: usize, capacity_bytes: u64) {
        self.shard.configure(Change::Capacity { tier, bytes: capacity_bytes });
        self.divider.resized(self.shard.ladder());
        self.apply_settings();
    }

    /// Makes a step where a tier is above its capacity, for a shard that nobody asks for anything; whether all are within
    /// theirs.
    pub fn shrink(&mut self) -> bool {
        let is_within = |engine: &Self| {
            (0..engine.memory_tiers())
                .all(|tier| engine.shard.ladder().residents().level(tier).is_within_capacity())
        };
        if !is_within(self) {
            self.step();
        }
        is_within(self)
    }

    /// Whether a tier holds no more than its capacity, and has given the rest back.
    pub fn is_within_capacity(&self, tier: usize) -> bool {
        self.shard.ladder().residents().level(tier).is_within_capacity()
    }

    /// Items that have left a tier downwards or for good since the start, and how long ago, in requests, such items were last
    /// used.
    pub fn departures(&self, tier: usize) -> (u64, u64) {
        let counters = self.shard.ladder().residents().level(tier).counters();
        (counters.demotions + counters.evictions, self.shard.ladder().tail_age_requests(tier))
    }
}
