//! Reuse statistics: how soon items of a tier are used again, how old items are when they leave it, and whether new items are
//! used before they leave the fast tier.

use super::LEVELS_MAX;
use super::classes::Fit;
use super::config::LadderConfig;
use super::entry::{Admission, Proof};
use super::level::Level;
use super::residents::{NewItem, Residents, Use};
use crate::promotion_rule::{ReuseWindow, WHOLE};
use crate::{Id, Now};

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
    /// As many as there can be, so that a use needs no check.
    tiers: [TierLearnt; LEVELS_MAX],
}

impl Learnt {
    pub fn new(config: &LadderConfig) -> Self {
        let tier = TierLearnt { reuse: ReuseWindow::new(config.reuse_window_requests), tail_age: 0 };
        Learnt { proof: Proof::new(config.admission), tiers: std::array::from_fn(|_| tier.clone()) }
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
                let is_below = self.proof.sends_below(item.key, residents.classes.fit_units(fit));
                usize::from(is_below && !is_roomy(&residents.config, &residents.levels[0], fit))
            }
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
    pub fn roll(&mut self, now: Now) {
        self.tiers.iter_mut().for_each(|tier| tier.reuse.roll(now.requests));
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.proof.bytes()
    }

    /// There are no items any more; what their uses have taught stays.
    pub fn clear(&mut self) {
        self.tiers.iter_mut().for_each(|tier| tier.tail_age = 0);
    }
}

/// Whether the fast tier has unused room, as it has until it was filled once.
fn is_roomy(config: &LadderConfig, fast: &Level, fit: Fit) -> bool {
    let supply = fast.slots.supply();
    let kept = config.watermarks_of(0).map_or(0.0, |marks| marks.high) * f64::from(supply.limit());
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
