//! Reclaim by watermarks, in the background: a tier or a class below its low watermark gives items away until the high one is
//! reached (Wang 2024, section 5.1.3).

use super::Context;
use super::classes::Class;
use super::demotion::Giving;
use super::item_lifecycle::Transit;
use super::rebalance::Exchange;
use super::reclaim::Reclaim;
use super::residents::Residents;

/// Items given away from the coldest class before the coldest is looked for again.
const PRESSED_BATCH: u32 = 8;
/// How often in a row used items are passed over in vain before a class's last item is evicted all the same.
const PASSES_MAX: u8 = 8;
/// Pages of a tier taken back in one step when it is above its limit.
const RECLAIM_BATCH: u32 = 4;
/// Once this many acts are decided no further page is taken back in this step.
const ACTS_MAX: usize = 512;

/// How far the relief of one tier has come.
#[derive(Clone, Copy, Debug, Default)]
struct Tier {
    /// It fell below the low watermark as a whole, and has not reached the high one.
    pressed: bool,
    /// The class that then gives next, and how many items.
    coldest_class: Option<(Class, u32)>,
    /// How often in a row used items of short classes were passed over without finding a victim.
    passes: u8,
}

/// The relief of all tiers.
#[derive(Clone, Debug)]
pub(super) struct Relief {
    tiers: Vec<Tier>,
}

impl Relief {
    pub fn new(tiers: usize) -> Self {
        Relief { tiers: vec![Tier::default(); tiers] }
    }

    /// There are no items any more.
    pub fn clear(&mut self) {
        self.tiers.fill(Tier::default());
    }

    /// Takes back pages above the limit: metadata has grown into the tier, or the tier was made smaller.
    #[inline]
    pub fn keep_within_limit(tier: usize, transit: &mut Transit, context: &mut Context<'_>) {
        for _ in 0..RECLAIM_BATCH {
            if context.acts.len() >= ACTS_MAX {
                break;
            }
            let supply = transit.residents.levels[tier].slots.supply();
            let is_enough = supply.used() <= supply.limit();
            let reclaim = Reclaim::in_background(tier, transit);
            if !reclaim.behind_end(transit, context)
                && (is_enough || !Relief::reclaim_or_force(tier, transit, context))
            {
                break;
            }
        }
    }

    /// Takes a page back, even from a protected tenant where no other has one to give.
    fn reclaim_or_force(tier: usize, transit: &mut Transit, context: &mut Context<'_>) -> bool {
        let reclaim = Reclaim::in_background(tier, transit);
        reclaim.page(transit, context)
            || transit.residents.tenants().is_some() && reclaim.page(transit, &mut context.forced())
    }

    /// Brings a tier from the low to the high watermark: class by class, then as a whole; `budget` items at most. Returns whether
    /// it has to go on in the next step.
    #[inline]
    pub fn relieve(
        &mut self,
        tier: usize,
        budget: u32,
        exchange: &mut Exchange,
        giving: &mut Giving<'_>,
        context: &mut Context<'_>,
    ) -> bool {
        let Some(marks) = giving.transit.residents.config.watermarks_of(tier) else { return false };
        let is_last = tier + 1 == giving.transit.residents.levels.len();
        if is_last && !giving.transit.may_evict() {
            return false;
        }
        let budget = self.relieve_classes(tier, budget, marks.high, exchange, giving, context);
        let capacity_bytes = giving.transit.residents.levels[tier].usable_bytes() as f64;
        let free = |giving: &Giving<'_>| giving.transit.residents.levels[tier].will_be_free_bytes();
        if free(giving) < (capacity_bytes * marks.low) as u64 {
            self.tiers[tier].pressed = true;
        }
        self.relieve_tier(tier, budget, (capacity_bytes * marks.high) as u64, exchange, giving, context);
        self.tiers[tier].pressed || giving.transit.residents.levels[tier].short() != 0
    }

    /// Has classes that are short give items of theirs, unless a page comes to them. Returns the rest of the budget.
    fn relieve_classes(
        &mut self,
        tier: usize,
        mut budget: u32,
        high: f64,
        exchange: &mut Exchange,
        giving: &mut Giving<'_>,
        context: &mut Context<'_>,
    ) -> u32 {
        let mut short = giving.transit.residents.levels[tier].short();
        while short != 0 && budget > 0 {
            let class = Class(short.trailing_zeros() as u8);
            let bit = 1 << class.index();
            let passes = &mut self.tiers[tier].passes;
            if giving.transit.residents.levels[tier].will_be_enough(class, high)
                || exchange.page_comes(tier, class, giving, context)
            {
                short &= !bit;
                giving.transit.residents.levels[tier].settle_short(class);
            } else if *passes < PASSES_MAX
                && !giving.transit.residents.orders.is_at_hand(tier, class, &giving.transit.residents.nodes)
            {
                // Next step.
                *passes += 1;
                short &= !bit;
            } else if giving.one_of(tier, class, context) {
                *passes = 0;
                budget -= 1;
            } else {
                short &= !bit;
                giving.transit.residents.levels[tier].settle_short(class);
            }
        }
        budget
    }

    /// Has a pressed tier give its coldest items until enough bytes are free.
    fn relieve_tier(
        &mut self,
        tier: usize,
        mut budget: u32,
        enough_bytes: u64,
        exchange: &mut Exchange,
        giving: &mut Giving<'_>,
        context: &mut Context<'_>,
    ) {
        while self.tiers[tier].pressed && budget > 0 {
            let transit = &mut *giving.transit;
            if let Some((class, left)) = self.tiers[tier].coldest_class
                && !transit.residents.orders.is_at_hand(tier, class, &transit.residents.nodes)
            {
                self.tiers[tier].coldest_class = (left > 1).then_some((class, left - 1));
                break;
            }
            let gave = self.give_coldest(tier, exchange, giving, context);
            budget -= u32::from(gave);
            if !gave || giving.transit.residents.levels[tier].will_be_free_bytes() >= enough_bytes {
                self.tiers[tier].pressed = false;
                self.tiers[tier].coldest_class = None;
            }
        }
    }

    /// Moves the tier's coldest item down or out. With lists that means to look at all of them, so several are taken from
    /// the coldest one, over as many steps as it takes, before it is looked for again.
    fn give_coldest(
        &mut self,
        tier: usize,
        exchange: &mut Exchange,
        giving: &mut Giving<'_>,
        context: &mut Context<'_>,
    ) -> bool {
        if let Some((class, left)) = self.tiers[tier].coldest_class.take()
            && giving.one_of(tier, class, context)
        {
            self.tiers[tier].coldest_class = (left > 1).then_some((class, left - 1));
            return true;
        }
        let transit = &mut *giving.transit;
        let Residents { orders, nodes, levels, .. } = &mut transit.residents;
        let slots = &levels[tier].slots;
        let Some(mut id) = orders.coldest(tier, (nodes, slots), context) else { return false };
        let has_order_by_class = orders.has_order_by_class(tier);
        if !has_order_by_class {
            id = exchange.colder_than(tier, id, &mut transit.residents, context).unwrap_or(id);
        }
        let Residents { nodes, levels, .. } = &transit.residents;
        let class = levels[tier].slots.pages().class_at(nodes.loc(id).unit);
        let gave = giving.item(tier, class, id, context);
        if gave && has_order_by_class {
            self.tiers[tier].coldest_class = Some((class, PRESSED_BATCH - 1));
        }
        gave
    }
}

#[cfg(test)]
mod tests {
    use super::super::level::threshold;
    use super::super::test_world::{QUARTER, World};
    use super::super::{Eviction, LadderConfig, MoveKind, PAGE_BYTES, Watermarks};
    use super::*;
    use crate::Id;
    use proptest::prelude::*;

    const SIZES: [u64; 3] = [1000, QUARTER, PAGE_BYTES];
    const PAGES: u64 = 10;
    const MARKS: Watermarks = Watermarks { low: 0.2, high: 0.4 };

    fn config(pages: &[u64]) -> LadderConfig {
        LadderConfig { watermarks: Some(MARKS), rebalance_batch: 0, ..World::config(pages) }
    }

    /// A step's part for a tier.
    fn relieve(relief: &mut Relief, world: &mut World, tier: usize, budget: u32) -> bool {
        let mut exchange = Exchange::new(world.transit.residents.levels.len());
        let (transit, learnt, mut context) = world.parts();
        relief.relieve(tier, budget, &mut exchange, &mut Giving { transit, learnt }, &mut context)
    }

    /// Bytes of free whole pages, and of the classes' free slots.
    fn free_bytes(world: &World, tier: usize) -> u64 {
        world.transit.residents.levels[tier].slots.free_bytes()
    }

    proptest! {
        /// Below the low watermark a tier gives items, no more at a time than the budget, until the high one is reached; the
        /// oldest first where there is one class. Above it no item has to leave.
        #[test]
        fn a_tier_gives_from_the_low_to_the_high_watermark(
            count in 0u64..41, budget in 1u32..5, uses in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let mut world = World::new(config(&[PAGES, 2 * PAGES]));
            let mut ids: Vec<Id> = (0..count.min(4 * PAGES)).filter_map(|_| world.enter(0, QUARTER)).collect();
            for pick in uses {
                if !ids.is_empty() {
                    let id = ids.remove(pick.index(ids.len()));
                    world.touch(id);
                    ids.push(id);
                }
            }
            // By itself the class would ask sooner.
            let class = world.class(QUARTER);
            world.transit.residents.levels[0].settle_short(class);
            let is_low = free_bytes(&world, 0) < PAGES * PAGE_BYTES / 5;
            let mut relief = Relief::new(2);
            let mut given = Vec::new();
            for _ in 0..=ids.len() {
                let goes_on = relieve(&mut relief, &mut world, 0, budget);
                let (moved, dropped) = world.decided();
                prop_assert!(dropped.is_empty() && moved.len() <= budget as usize);
                prop_assert!(moved.iter().all(|&(_, kind)| kind == MoveKind::Demote));
                prop_assert!(!goes_on || moved.len() == budget as usize, "what has to go on has done what it may");
                given.extend(moved.into_iter().map(|(id, _)| id));
                world.settle();
                if !goes_on {
                    break;
                }
            }
            prop_assert_eq!(&given, &ids[..given.len()]);
            prop_assert!(is_low || given.is_empty());
            prop_assert!(!is_low || free_bytes(&world, 0) == PAGES * PAGE_BYTES * 2 / 5);
        }

        /// Whatever items are there: a tier that need not continue is not below the low watermark, and classes that asked have
        /// reached the high one.
        #[test]
        fn what_need_not_go_on_has_enough(sizes in prop::collection::vec(0usize..SIZES.len(), 1..300), is_last in any::<bool>()) {
            let tiers: &[u64] = if is_last { &[PAGES] } else { &[PAGES, 3 * PAGES] };
            let mut world = World::new(config(tiers));
            sizes.into_iter().for_each(|size| _ = world.enter(0, SIZES[size]));
            let asked = world.transit.residents.levels[0].short();
            let mut relief = Relief::new(tiers.len());
            let mut steps = 0;
            while relieve(&mut relief, &mut world, 0, 8) {
                world.settle();
                steps += 1;
                prop_assert!(steps < 1000, "it ends");
            }
            world.settle();
            let residents = &world.transit.residents;
            let (level, marks) = (&residents.levels[0], residents.config.watermarks_of(0).unwrap());
            prop_assert_eq!(level.short(), 0);
            prop_assert!(free_bytes(&world, 0) >= (level.usable_bytes() as f64 * marks.low) as u64);
            for class in world.classes().filter(|class| asked >> class.index() & 1 == 1) {
                let (free, held) = level.slots.class_space(class);
                prop_assert!(free >= threshold(held, marks.high), "{} of {} free", free, held);
            }
        }

        /// Above its limit a tier gives back pages until it is within, some in each step.
        #[test]
        fn pages_above_the_limit_are_given_back(sizes in prop::collection::vec(0usize..SIZES.len(), 0..200), limit in 0u32..11) {
            let mut world = World::new(World::config(&[PAGES]));
            sizes.into_iter().for_each(|size| _ = world.enter(0, SIZES[size]));
            world.transit.residents.levels[0].slots.supply_mut().0.set_limit(limit);
            let used = |world: &World| world.transit.residents.levels[0].slots.supply().used();
            let mut before = used(&world);
            for _ in 0..PAGES {
                let (transit, _, mut context) = world.parts();
                Relief::keep_within_limit(0, transit, &mut context);
                world.settle();
                let after = used(&world);
                let surplus = before.saturating_sub(limit);
                // Pages that items move from or to within the tier are free or full only in the next step.
                let bounds = if surplus > 0 { 1..=RECLAIM_BATCH } else { 0..=0 };
                prop_assert!(bounds.contains(&(before - after)), "{} of {}", before, limit);
                before = after;
            }
            prop_assert!(before <= limit);
        }
    }

    #[test]
    fn nothing_is_given_where_nothing_may_leave_or_no_space_is_kept() {
        let forbids = LadderConfig { eviction: Eviction::Forbidden, ..config(&[PAGES]) };
        let keeps_none = World::config(&[PAGES, PAGES]);
        for config in [forbids, keeps_none] {
            let mut world = World::new(config);
            world.fill(0, QUARTER);
            assert!(!relieve(&mut Relief::new(2), &mut world, 0, 8));
            assert!(world.acts.is_empty());
        }
    }

    #[test]
    fn the_coldest_class_gives_some_before_another_is_looked_for() {
        let mut world = World::new(config(&[PAGES, 2 * PAGES]));
        // Old and young by turns, so that item by item the classes would take turns.
        let mut by_turns = Vec::new();
        while let (Some(quarter), Some(half)) = (world.enter(0, QUARTER), world.enter(0, 2 * QUARTER)) {
            by_turns.push((quarter, half));
        }
        for class in world.classes() {
            world.transit.residents.levels[0].settle_short(class);
        }
        let mut relief = Relief::new(2);
        assert!(relieve(&mut relief, &mut world, 0, PRESSED_BATCH));
        let given: Vec<Id> = world.decided().0.into_iter().map(|(id, _)| id).collect();
        let quarters: Vec<Id> =
            by_turns.iter().take(PRESSED_BATCH as usize).map(|&(quarter, _)| quarter).collect();
        assert_eq!(given, quarters);
        world.settle();
        relieve(&mut relief, &mut world, 0, 1);
        assert_eq!(world.decided().0, [(by_turns[0].1, MoveKind::Demote)], "the other one is colder by now");
    }
}
