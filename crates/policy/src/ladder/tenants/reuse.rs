//! Reuse of a tenant's items in a tier: their mean reuse time, and how long its next victim has waited.

use super::Tenants;
use crate::Id;
use crate::ladder::Class;
use crate::ladder::tier_order::Draw;
use tiermem_base::Rng;

/// The mean reuse time of a tenant's hits in a tier; hits noted half a window ago and longer weigh half, and so on.
///
/// The mean of a whole tier ([`crate::promotion_rule::ReuseWindow`]) is that of the tenant with most requests. Compared with it,
/// the items of a tenant with fewer requests would never be promoted into its own room, and those of one with more requests
/// always would.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reuse {
    sum: u64,
    hits: u32,
    /// The half of a window that was noted last.
    half: u32,
}

impl Reuse {
    fn at(mut self, half: u32) -> Self {
        let passed = half.wrapping_sub(self.half);
        if passed > 0 {
            self.sum = self.sum.checked_shr(passed).unwrap_or(0);
            self.hits = self.hits.checked_shr(passed).unwrap_or(0);
            self.half = half;
        }
        self
    }

    /// Notes a hit.
    #[inline]
    pub fn note(&mut self, reuse: u64, half: u32) {
        *self = self.at(half);
        self.sum = self.sum.saturating_add(reuse);
        self.hits = self.hits.saturating_add(1);
    }

    /// Whether `reuse` is below the mean times `factor` in 1/256; everything is when there was no hit lately.
    #[inline]
    pub fn is_below_mean(&self, reuse: u64, factor: u32, half: u32) -> bool {
        let Reuse { sum, hits, .. } = self.at(half);
        hits == 0 || (u128::from(reuse) * u128::from(hits)) << 8 < u128::from(sum) * u128::from(factor)
    }
}

/// How long the items have waited that would go next of a tenant's in a tier.
///
/// To look for one takes K draws, each a place in memory; so one is looked for at every eighth question, and the first ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coldest {
    /// In ticks.
    mean: u32,
    asked: u32,
}

/// Questions for which one is looked for.
const LOOK_EVERY: u32 = 8;
/// A new age weighs one part in this many.
const WEIGHT: u32 = 8;

impl Coldest {
    /// The mean, and whether it is time to look for one.
    pub fn ask(&mut self) -> (u32, bool) {
        let is_due = self.asked < LOOK_EVERY || self.asked.is_multiple_of(LOOK_EVERY);
        // The first ones are looked for only once.
        self.asked = self.asked.checked_add(1).unwrap_or(LOOK_EVERY);
        (self.mean, is_due)
    }

    /// Notes the age of a victim that was found. Returns the new mean.
    pub fn note(&mut self, age: u32) -> u32 {
        self.mean = if self.mean == 0 { age } else { self.mean - self.mean / WEIGHT + age / WEIGHT };
        self.mean
    }
}

impl Tenants {
    /// The age of the item in a tier that would be evicted for another one of its tenant, if the tenant has its part there. It is
    /// looked for now and then; in between the mean of the ages found is returned.
    pub(in crate::ladder) fn own_coldest(
        &mut self,
        id: Id,
        tier: usize,
        class: Class,
        draw: &mut Draw<'_>,
        rng: &mut Rng,
    ) -> Option<u32> {
        let tenant = usize::from(self.owner(id));
        if !self.levels[tier].has_part(tenant) {
            return None;
        }
        let (mean, is_due) = self.levels[tier].of[tenant].as_mut()?.coldest.ask();
        if !is_due {
            return Some(mean);
        }
        let victim = self.sample(tenant, tier, Some(class), draw, rng)?;
        let age = draw.nodes.get(victim).age(draw.recency);
        Some(self.levels[tier].of[tenant].as_mut()?.coldest.note(age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promotion_rule::WHOLE;

    #[test]
    fn the_coldest_is_looked_for_now_and_then() {
        let mut coldest = Coldest::default();
        let looked = (0..8 + 80).filter(|_| {
            let (_, is_due) = coldest.ask();
            if is_due {
                coldest.note(800);
            }
            is_due
        });
        assert_eq!(looked.count(), 8 + 10);
        assert_eq!(coldest.ask().0, 800);
        (0..100).for_each(|_| _ = coldest.note(80));
        assert!((70..100).contains(&coldest.ask().0), "{coldest:?}");
    }

    #[test]
    fn what_is_old_weighs_less_and_is_forgotten() {
        let mut reuse = Reuse::default();
        assert!(reuse.is_below_mean(u64::MAX, WHOLE, 0), "nobody was there yet");
        (0..64).for_each(|_| reuse.note(1000, 0));
        assert!(reuse.is_below_mean(999, WHOLE, 0) && !reuse.is_below_mean(1000, WHOLE, 0));
        // 32 of 1000 and 32 of 10.
        (0..32).for_each(|_| reuse.note(10, 1));
        assert!(reuse.is_below_mean(504, WHOLE, 1) && !reuse.is_below_mean(505, WHOLE, 1));
        assert!(reuse.is_below_mean(u64::MAX, WHOLE, 100), "long ago");
        reuse.note(7, 100);
        assert!(reuse.is_below_mean(6, WHOLE, 100) && !reuse.is_below_mean(7, WHOLE, 100));
    }
}
