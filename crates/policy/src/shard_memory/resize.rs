//! Size of the memory tiers while they are in use: all of them grow and shrink in proportion.
//!
//! Each shard does its part by itself: it multiplies what it has now, be that more or less than an equal part, so no shard has to
//! know what the others have. What rounding to pages leaves over is kept for the next change, so that tiers that shrink and grow
//! again come back to what they were.

use super::Driven;
use super::member::is_within_capacity;
use crate::ladder::PAGE_BYTES;

/// Least part of what there was at the start that the tiers keep.
const LEAST_PART: u64 = 8;

/// The sizes of one shard's memory tiers as a part of what all shards had at the start.
#[derive(Clone, Debug)]
pub struct Resize {
    /// Of all shards, in bytes.
    most_bytes: u64,
    bytes: u64,
    /// Of each tier, what was rounded off; `None`: its size is fixed.
    left: Vec<Option<f64>>,
}

impl Resize {
    /// All shards' tiers have `most_bytes`, but for those that are not `resizable`.
    pub fn new(most_bytes: u64, resizable: impl IntoIterator<Item = bool>) -> Self {
        let left = resizable.into_iter().map(|it| it.then_some(0.0)).collect();
        Resize { most_bytes, bytes: most_bytes, left }
    }

    /// What all shards' tiers have now.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The least that tiers which had `most_bytes` at the start can shrink to.
    pub fn least_bytes(most_bytes: u64) -> u64 {
        most_bytes / LEAST_PART
    }

    /// Has this shard do its part of changing all shards' tiers to `bytes`, or to the nearest that they can have. Items above it
    /// leave in later steps.
    pub fn set<D: Driven>(&mut self, bytes: u64, driven: &mut D) {
        let bytes = bytes.clamp(Resize::least_bytes(self.most_bytes).max(1), self.most_bytes.max(1));
        if bytes == self.bytes || self.bytes == 0 {
            return;
        }
        let factor = bytes as f64 / self.bytes as f64;
        self.bytes = bytes;
        for (tier, left) in self.left.iter_mut().enumerate() {
            let Some(left) = left else { continue };
            let before = driven.shard().ladder().config().levels[tier].capacity_bytes;
            let exact = (before as f64 + *left) * factor;
            // Floating point may lose a byte, which must not cost a page.
            let capacity = ((exact + 0.5) as u64 / PAGE_BYTES).max(1) * PAGE_BYTES;
            *left = exact - capacity as f64;
            driven.set_capacity(tier, capacity);
        }
    }

    /// Makes steps that no request asks for until the tiers hold no more than they may, or `goes_on` says no.
    pub fn settle<D: Driven>(driven: &mut D, mut goes_on: impl FnMut() -> bool) {
        while !is_within_capacity(driven.shard()) && goes_on() {
            driven.step();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::LadderConfig;
    use crate::shard::{Change, Shard};
    use proptest::prelude::*;

    struct Empty(Shard);

    impl Driven for Empty {
        fn shard(&self) -> &Shard {
            &self.0
        }

        fn set_capacity(&mut self, tier: usize, bytes: u64) {
            self.0.configure(Change::Capacity { tier, bytes });
        }

        fn step(&mut self) {}
    }

    fn capacities(shard: &Empty) -> Vec<u64> {
        shard.0.ladder().config().levels.iter().map(|level| level.capacity_bytes).collect()
    }

    proptest! {
        /// Over any changes, tiers keep their proportions to a page and do not exceed what they may have, and come back to what they
        /// were.
        #[test]
        fn tiers_shrink_and_grow_in_proportion_and_come_back(
            pages in prop::collection::vec((16u64..4000, any::<bool>()), 1..4), sizes in prop::collection::vec(1u64..1 << 30, 1..20),
        ) {
            let start: Vec<u64> = pages.iter().map(|(pages, _)| pages * PAGE_BYTES).collect();
            let sum = |capacities: &[u64]| -> u64 {
                capacities.iter().zip(&pages).filter(|(_, (_, resizable))| *resizable).map(|(bytes, _)| bytes).sum()
            };
            let most = sum(&start);
            prop_assume!(most > 0);
            let mut shard = Empty(Shard::new(LadderConfig::with_capacities(&start), 0));
            let mut resize = Resize::new(most, pages.iter().map(|(_, resizable)| *resizable));
            for size in sizes {
                resize.set(size, &mut shard);
                prop_assert_eq!(resize.bytes(), size.clamp(most / 8, most));
                let now = capacities(&shard);
                prop_assert!(sum(&now) <= resize.bytes().max(pages.len() as u64 * PAGE_BYTES));
                for ((now, start), (_, resizable)) in now.iter().zip(&start).zip(&pages) {
                    let exact = if *resizable { *start as f64 * resize.bytes() as f64 / most as f64 } else { *start as f64 };
                    prop_assert!((*now as f64 - exact).abs() <= PAGE_BYTES as f64 + 1.0, "{} for {}", now, exact);
                }
            }
            resize.set(u64::MAX, &mut shard);
            prop_assert_eq!(capacities(&shard), start);
        }
    }
}
