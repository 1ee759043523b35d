//! Statistics of one tier. All counters only grow, except those of current contents.

use serde::Serialize;

/// One tier's figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TierStats {
    /// The name given in the configuration.
    pub name: String,
    /// `dram`, `emulated`, ...
    pub kind: String,
    /// The tier's capacity; tier 0's includes the metadata.
    pub capacity_bytes: u64,
    /// Bytes held now: pages given to classes, and in tier 0 the metadata.
    pub used_bytes: u64,
    /// Bytes of keys, values and headers held now.
    pub item_bytes: u64,
    /// Items held now.
    pub items: u64,
    /// Requests that found their item in this tier.
    pub hits: u64,
    /// Items moved up from this tier.
    pub promotions: u64,
    /// Items moved down from this tier.
    pub demotions: u64,
    /// Live items evicted out of the system from this tier.
    pub evictions: u64,
    /// Latency charged by the emulator since the start, in nanoseconds; 0 on real tiers.
    pub charged_ns: u64,
}

impl TierStats {
    /// Adds the same tier's figures in another shard.
    pub fn add(&mut self, other: &TierStats) {
        let TierStats {
            name: _,
            kind: _,
            capacity_bytes,
            used_bytes,
            item_bytes,
            items,
            hits,
            promotions,
            demotions,
            evictions,
            charged_ns,
        } = other;
        self.capacity_bytes += capacity_bytes;
        self.used_bytes += used_bytes;
        self.item_bytes += item_bytes;
        self.items += items;
        self.hits += hits;
        self.promotions += promotions;
        self.demotions += demotions;
        self.evictions += evictions;
        self.charged_ns += charged_ns;
    }
}
