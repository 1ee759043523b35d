//! Reuse statistics: how soon items of a tier are used again, how old items are when they leave it, and whether new items are
//! used before they leave the fast tier.

use super::LEVELS_MAX;
use super::classes::Fit;
use super::config::LadderConfig;
use super::entry::{Admission, Proof};
use super::payoff::{Cause, Payoff};
use super::residents::{NewItem, Residents, Use};
use crate::promotion_rule::{ReuseWindow, WHOLE};
use crate::{Id, Now};

/// How long an eviction counts: this part of the window of reuse times.
const EVICTION_WINDOW_PARTS: u64 = 16;

/// Statistics of one tier.
#[derive(Clone, Debug)]
struct TierLearnt {
    reuse: ReuseWindow,
    /// The age at which items leave downwards, on the running average of 64, in 1/64 ticks.
    tail_age: u64,
}

/// Statistics that requests have taught.
#[derive(Clone, Debug)]
pub(super) struct Learnt {
    proof: Proof,
    payoff: Payoff,
    /// Whether items were evicted lately, from the last tier; its counter when that was last seen to change, and when.
    evicts: bool,
    evictions: u64,
    looked_at: u64,
    /// As many as there can be, so that a use needs no check.
    tiers: [TierLearnt; LEVELS_MAX],
}

impl Learnt {
    pub fn new(config: &LadderConfig) -> Self {
        let tier = TierLearnt { reuse: ReuseWindow::new(config.reuse_window_requests), tail_age: 0 };
        Learnt {
            proof: Proof::new(config.admission),
            payoff: Payoff::new(config),
            evicts: false,
            evictions: 0,
            looked_at: 0,
            tiers: std::array::from_fn(|_| tier.clone()),
        }
    }

    /// The tier that a new item is to enter.
    pub fn first_tier(&mut self, item: &NewItem, fit: Fit, residents: &Residents) -> usize {
        if residents.levels.len() < 2 {
            return 0;
        }
        match residents.config.admission {
            Admission::Fast => 0,
            Admission::Interleaved { fast_share } => {
                // Bits that the index does not sort by.
                let drawn = (item.key & 0xFFFF) as f64 / 65536.0;
                usize::from(drawn >= fast_share)
            }
            Admission::Proven if !item.is_newcomer => 0,
            Admission::Proven => {
                let pays = self.pays(0, item.bytes, Cause::Admitted);
                let is_below = self.proof.sends_below(item.key, residents.classes.fit_units(fit), pays);
                usize::from(is_below && !is_roomy(0, fit, residents))
            }
        }
    }

    /// Whether items of this size may come into a tier for this cause. While items are evicted they may: moves are what brings the
    /// coldest to the end of the last tier, and a miss costs more than any of them.
    pub fn pays(&self, tier: usize, bytes: u64, cause: Cause) -> bool {
        self.evicts || self.payoff.pays(tier, bytes, cause)
    }

    /// What is known of what moves save.
    pub fn payoff(&self) -> &Payoff {
        &self.payoff
    }

    /// What is known of what moves save, to learn.
    pub fn payoff_mut(&mut self) -> &mut Payoff {
        &mut self.payoff
    }

    /// A new item has its place.
    pub fn note_entered(&mut self, id: Id, item: &NewItem, tier: usize, residents: &Residents) {
        self.payoff.forget(id);
        let fit = residents.classes.fit(item.bytes);
        if tier == 0 && item.rewrites.is_none() && item.is_newcomer && !is_roomy(0, fit, residents) {
            self.payoff.watch(id, 0, item.bytes, Cause::Admitted);
        }
    }

    /// Notes a use of an item: the first one of a new item in the fast tier shows that those are used.
    #[inline]
    pub fn note_use(&mut self, used: &Use, residents: &Residents) {
        if used.place.is_fresh() && used.place.tier() == 0 {
            self.note_newcomer(used.place.unit(), true, residents);
        }
    }

    /// Notes that an item has to leave a tier: at which age, and whether it was used since it came.
    pub fn note_victim(&mut self, tier: usize, victim: Id, residents: &Residents, now: Now) {
        let age = u64::from(residents.nodes.age(victim, now));
        let place = residents.nodes.get(victim);
        if tier == 0 && place.is_fresh() {
            self.note_newcomer(place.unit(), false, residents);
        }
        if tier + 1 < residents.levels.len() {
            self.payoff.watch(victim, tier as u8 + 1, residents.place_bytes(victim), Cause::Demoted);
        }
        let tail_age = &mut self.tiers[tier].tail_age;
        *tail_age = *tail_age - *tail_age / 64 + age;
    }

    fn note_newcomer(&mut self, unit: u32, used: bool, residents: &Residents) {
        if residents.config.admission == Admission::Proven {
            let fit = residents.levels[0].slots.pages().fit_at(unit);
            self.proof.note(residents.classes.fit_units(fit), used);
        }
    }

    /// Notes after how many ticks an item of a tier was used again.
    #[inline]
    pub fn note_reuse(&mut self, tier: usize, reuse: u64) {
        self.tiers[tier].reuse.note(reuse);
    }

    /// Whether this is sooner than `factor` in 1/256 of the mean of a tier's items.
    #[inline]
    pub fn is_below_mean(&self, tier: usize, reuse: u64, factor: u32) -> bool {
        self.tiers[tier].reuse.is_below_mean(reuse, factor)
    }

    /// Whether `reuse` is below `factor` in 1/256 of the age at which items leave the tier.
    #[inline]
    pub fn is_below_tail_age(&self, tier: usize, reuse: u64, factor: u32) -> bool {
        (reuse << 14) < self.tiers[tier].tail_age * u64::from(factor)
    }

    /// Whether an item that was used again after `reuse` ticks is worth a place in a tier as it stands.
    pub fn would_stay(&self, tier: usize, reuse: u64) -> bool {
        self.is_below_mean(tier, reuse, WHOLE) || reuse * 64 < self.tiers[tier].tail_age
    }

    /// How long ago, in ticks, the items that leave a tier downwards were last used: the running mean over 64 of them.
    pub fn tail_age(&self, tier: usize) -> u64 {
        self.tiers[tier].tail_age / 64
    }

    /// A step begins.
    pub fn roll(&mut self, residents: &Residents, now: Now) {
        self.payoff.fit(residents.levels[0].counters.items);
        self.look_for_evictions(residents, now);
        self.tiers.iter_mut().for_each(|tier| tier.reuse.roll(now.requests));
    }

    /// An eviction counts for a part of the window of reuse times.
    fn look_for_evictions(&mut self, residents: &Residents, now: Now) {
        let evictions = residents.levels.last().map_or(0, |last| last.counters.evictions);
        let window_requests = residents.config.reuse_window_requests / EVICTION_WINDOW_PARTS;
        if evictions != self.evictions || now.requests >= self.looked_at + window_requests {
            self.evicts = evictions != self.evictions;
            (self.evictions, self.looked_at) = (evictions, now.requests);
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.proof.bytes() + self.payoff.bytes()
    }

    /// There are no items any more; what their uses have taught stays.
    pub fn clear(&mut self) {
        self.tiers.iter_mut().for_each(|tier| tier.tail_age = 0);
        self.payoff.clear();
    }
}

/// Whether a tier has unused room, as it has until it was filled once.
pub(super) fn is_roomy(tier: usize, fit: Fit, residents: &Residents) -> bool {
    let supply = residents.levels[tier].slots.supply();
    let kept =
        residents.config.watermarks_of(tier).map_or(0.0, |marks| marks.high) * f64::from(supply.limit());
    f64::from(supply.free()) > kept + f64::from(fit.pages())
}

#[cfg(test)]
mod tests {
    use super::super::test_world::{QUARTER, World};
    use super::*;

    #[test]
    fn an_item_that_is_no_newcomer_is_not_judged_and_proves_nothing() {
        let mut config = LadderConfig::with_capacities(&[1 << 20, 1 << 20]);
        config.admission = Admission::Proven;
        let mut world = World::new(config);
        world.fill(0, QUARTER);
        let (transit, learnt, _) = world.parts();
        let residents = &transit.residents;
        let fit = residents.classes.fit(QUARTER);
        (0..1000).for_each(|_| learnt.proof.note(residents.classes.fit_units(fit), false));
        // A key that is none of the one in sixteen that explore.
        let newcomer = NewItem {
            key: 1 << 16,
            bytes: QUARTER,
            expires_at_ms: None,
            rewrites: None,
            tenant: 0,
            is_newcomer: true,
        };
        let known = NewItem { is_newcomer: false, ..newcomer };
        assert_eq!(learnt.first_tier(&known, fit, residents), 0);
        assert_eq!(learnt.first_tier(&newcomer, fit, residents), 1, "and the key was not taken down as seen");
        assert_eq!(learnt.first_tier(&newcomer, fit, residents), 0, "it comes again");
    }

    #[test]
    fn an_item_stays_that_is_used_sooner_than_others_leave() {
        let mut learnt = Learnt::new(&LadderConfig::with_capacities(&[1 << 20, 1 << 20]));
        assert!(learnt.would_stay(1, 1000), "nothing is known yet");
        learnt.note_reuse(1, 10);
        assert!(learnt.would_stay(1, 9) && !learnt.would_stay(1, 10));
        assert!(learnt.is_below_mean(1, 19, 2 * WHOLE) && !learnt.is_below_mean(1, 20, 2 * WHOLE));
        learnt.tiers[1].tail_age = 64 * 50;
        assert!(learnt.would_stay(1, 49) && !learnt.would_stay(1, 50) && learnt.tail_age(1) == 50);
        assert!(learnt.is_below_tail_age(1, 49, WHOLE) && !learnt.is_below_tail_age(1, 50, WHOLE));
        learnt.clear();
        assert_eq!((learnt.tail_age(1), learnt.would_stay(1, 10)), (0, false));
    }
}
