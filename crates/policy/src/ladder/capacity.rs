//! Capacities that change while the ladder is at work: shards give each other memory ([`crate::shares`]).

use std::sync::Arc;

use super::slots::distance_pages;
use super::{Ladder, LadderConfig, LevelConfig, PAGE_BYTES, SizeClasses, Slots};

/// The most pages of a tier: places are counted in 32 bits of 16 bytes each.
const PAGES_MAX: u64 = u32::MAX as u64 / 4096;

/// The space of a level, which may come to grow to [`LadderConfig::growth`] times its capacity.
pub(super) fn slots(level: &LevelConfig, config: &LadderConfig, classes: Arc<SizeClasses>) -> Slots {
    let pages = level.capacity_bytes / PAGE_BYTES;
    let mut slots = Slots::new(classes, (pages * u64::from(config.growth.max(1))).min(PAGES_MAX) as u32);
    slots.set_end(pages.min(PAGES_MAX) as u32);
    slots.set_distance(distance_pages(config.ahead_bytes, level.capacity_bytes));
    slots
}

impl Ladder {
    /// A tier's capacity now.
    pub fn capacity_bytes(&self, tier: usize) -> u64 {
        self.config.levels[tier].capacity_bytes
    }

    /// Changes a tier's capacity, to at most what it was made for. What is above it leaves in the steps that follow, a few pages
    /// in each.
    pub fn set_capacity(&mut self, tier: usize, capacity_bytes: u64) {
        let slots = &mut self.levels[tier].slots;
        let most = u64::from(slots.supply().pages_total()) * PAGE_BYTES;
        self.config.levels[tier].capacity_bytes = capacity_bytes.min(most);
        let end = (capacity_bytes.min(most) / PAGE_BYTES) as u32;
        slots.set_end(end);
        slots.supply_mut().set_limit(end);
        slots.set_distance(distance_pages(self.config.ahead_bytes, capacity_bytes.min(most)));
        self.limit_pages();
    }

    /// Whether a tier holds no more than its capacity allows, and has given back the memory of what it held.
    pub fn is_within_capacity(&self, tier: usize) -> bool {
        self.levels[tier].slots.is_within_limits()
    }

    /// How long ago, in requests, the items that leave a tier downwards were last used: the running mean over 64 of them.
    pub fn tail_age_requests(&self, tier: usize) -> u64 {
        self.levels[tier].tail_age / 64 * self.config.recency_requests.max(1)
    }
}
