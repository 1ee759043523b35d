//! Rebalancing: pages move between classes, and between slots and runs, when the mix of sizes shifts.
//!
//! Each class evicts its own coldest items for its own new ones, so without rebalancing a class would keep its pages for ever: a
//! store that was filled with items of 100 bytes could hold hardly any of 1000 bytes. A class that runs short therefore looks
//! first whether another one has more free slots than a page holds, or is clearly colder. So memory goes to the items that are
//! used, whatever their size, as in one list of all items by last use.
//!
//! *Clearly*, or classes that are used alike would pass pages to and fro. Between runs and slots it is a factor between the ages of
//! the items that would go next: runs are few, and each holds much. Between slots of two sizes all of the few drawn from one must be
//! older than all drawn from the other. Their tails say too little for more: new items enter a list in its middle, and one that came
//! lately may stand behind one that was hot (tried: on steady mixes pages then moved for nothing, which cost up to 2.4 points of
//! hits).
//!
//! A page of the cold class is then emptied: its items move to free slots of their class, and when none are left the class evicts
//! its coldest items to make some. Some hundred items leave in each step, so no request waits for more. Runs give whole items: the
//! coldest is evicted, and its pages can be given out. Runs that are short get no pages here, for a page here and a page there make
//! no run: [`super::contiguous_room`] makes their room, where this module says that another class is clearly colder.
//!
//! memcached and CacheLib move pages between classes too, but evict every item on the page.

use super::Context;
use super::MoveKind;
use super::classes::{Class, Fit, PAGE_UNITS};
use super::demotion::Giving;
use super::level::threshold;
use super::residents::Residents;
use super::slots::Slots;
use super::tail_age::{drawn_ages, is_clearly_colder, tail_age};
use crate::Id;
use tiermem_base::Rng;

/// Requests between two looks at all classes.
const LOOK_REQUESTS: u64 = 1024;
/// Pages of the donor of which the one with the fewest items is emptied.
const PAGES_DRAWN: u32 = 8;
/// How much colder a class must be to lose its only page.
const LAST_PAGE_TIMES: u32 = 4;
/// Steps without progress after which a page is left alone: all that is on it is pinned, or nothing may go.
const STUCK_STEPS: u32 = 16;

/// Classes of a tier that have a page to give, when last looked.
#[derive(Clone, Copy, Debug, Default)]
struct Donors {
    /// When all classes were looked at, in requests.
    looked: u64,
    /// The class with the most free slots beyond a page's, if there is one.
    spare: Option<Class>,
    /// The class whose next victim was not used for longest, if there is one.
    coldest: Option<Class>,
}

/// A page whose items are leaving.
#[derive(Clone, Copy, Debug)]
struct Emptying {
    page: u32,
    /// Its class when it began; once it has another one or none the work is done.
    class: Class,
    /// The class that it is emptied for.
    wanted_by: Class,
    stuck: u32,
}

/// The state of rebalancing in one tier.
#[derive(Clone, Copy, Debug, Default)]
struct Tier {
    donors: Donors,
    /// Pages whose items are leaving, a few in each step.
    emptying: Option<Emptying>,
}

/// The exchange of pages between classes, in each tier.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    tiers: Vec<Tier>,
}

impl Exchange {
    pub fn new(tiers: usize) -> Self {
        Exchange { tiers: vec![Tier::default(); tiers] }
    }

    /// There are no items any more.
    pub fn clear(&mut self) {
        self.tiers.iter_mut().for_each(|tier| tier.emptying = None);
    }

    /// Whether a page is on its way to this class, so that it need not give its own items.
    pub fn page_comes(
        &mut self,
        tier: usize,
        class: Class,
        giving: &mut Giving<'_>,
        context: &mut Context<'_>,
    ) -> bool {
        let residents = &mut giving.transit.residents;
        let runs = residents.classes.runs();
        if residents.config.rebalance_batch == 0 {
            return false;
        }
        if let Some(emptying) = &self.tiers[tier].emptying
            && class != runs
        {
            return emptying.wanted_by == class;
        }
        let Some(donor) = self.donor(tier, class, residents, context) else { return false };
        if class == runs {
            return true;
        }
        if donor == runs {
            return giving.one_of(tier, runs, context);
        }
        let slots = &mut residents.levels[tier].slots;
        let of_donor = slots.by_class().members(donor);
        let draw = |rng: &mut Rng| of_donor.get(rng.below(of_donor.len() as u64) as usize).copied();
        let drawn = (0..PAGES_DRAWN).filter_map(|_| draw(context.rng));
        let items = |page| slots.pages().page_use(page).filter(|of| !of.is_draining).map(|of| of.items);
        let fewest = drawn.filter_map(|page| Some((items(page)?, page))).min();
        let Some((_, page)) = fewest else { return false };
        slots.drain(page);
        self.tiers[tier].emptying = Some(Emptying { page, class: donor, wanted_by: class, stuck: 0 });
        true
    }

    /// The class that should give pages to `class`, if one should.
    pub fn donor(
        &mut self,
        tier: usize,
        class: Class,
        residents: &mut Residents,
        context: &mut Context<'_>,
    ) -> Option<Class> {
        let donors = self.donors(tier, residents, context);
        if let Some(spare) = donors.spare.filter(|&spare| spare != class)
            && spare_pages(tier, spare, residents) > 0
        {
            return Some(spare);
        }
        let coldest = donors.coldest.filter(|&coldest| coldest != class)?;
        // A class's only page is worth more to it: it would ask for it back.
        let is_only = residents.levels[tier].slots.by_class().members(coldest).len() == 1;
        let times = if is_only { LAST_PAGE_TIMES } else { 1 };
        let runs = residents.classes.runs();
        if coldest != runs && class != runs {
            let (youngest, _) = drawn_ages(tier, coldest, residents, context);
            let (_, own_oldest) = drawn_ages(tier, class, residents, context);
            return (youngest > own_oldest.saturating_mul(times)).then_some(coldest);
        }
        let age = tail_age(tier, coldest, residents, context)?;
        let own_age = tail_age(tier, class, residents, context).unwrap_or(0);
        is_clearly_colder(age, own_age.saturating_mul(times)).then_some(coldest)
    }

    /// Whether a large item should get its room in another tier than this one, which would give its coldest run: what is coldest
    /// there, of any class, is clearly colder.
    pub fn is_other_tier_colder(
        &mut self,
        tier: usize,
        fit: Fit,
        residents: &mut Residents,
        context: &mut Context<'_>,
    ) -> bool {
        let runs = residents.classes.runs();
        let own_age = tail_age(tier, runs, residents, context).unwrap_or(0);
        (0..residents.levels.len()).filter(|&other| other != tier).any(|other| {
            residents.levels[other].can_hold(fit)
                && is_clearly_colder(self.coldest_age(other, residents, context), own_age)
        })
    }

    /// How long what is coldest in a tier was not used, in ticks; 0 where nothing may go.
    pub fn coldest_age(&mut self, tier: usize, residents: &mut Residents, context: &mut Context<'_>) -> u32 {
        let coldest = self.donors(tier, residents, context).coldest;
        coldest.and_then(|class| tail_age(tier, class, residents, context)).unwrap_or(0)
    }

    /// The item that should go instead of one that was drawn from all items of a sampled tier: where few items hold most of the
    /// memory, hardly any draw finds one of them.
    pub fn colder_than(
        &mut self,
        tier: usize,
        drawn: Id,
        residents: &mut Residents,
        context: &mut Context<'_>,
    ) -> Option<Id> {
        let coldest = self.donors(tier, residents, context).coldest?;
        let id = residents.victim(tier, coldest, context)?;
        let age = |id| residents.nodes.age(id, context.now);
        is_clearly_colder(age(id), age(drawn)).then_some(id)
    }

    fn donors(&mut self, tier: usize, residents: &mut Residents, context: &mut Context<'_>) -> Donors {
        let donors = &mut self.tiers[tier].donors;
        if context.now.requests >= donors.looked + LOOK_REQUESTS {
            *donors = look_for_donors(tier, residents, context);
        }
        *donors
    }

    /// Takes some more items off the page that is being emptied.
    #[inline]
    pub fn go_on(&mut self, tier: usize, giving: &mut Giving<'_>, context: &mut Context<'_>) {
        let Some(mut emptying) = self.tiers[tier].emptying else { return };
        let Emptying { page, class, .. } = emptying;
        let level = &mut giving.transit.residents.levels[tier];
        let pages = level.slots.pages();
        let page_use = pages.page_use(page);
        if !page_use.is_some_and(|of| of.is_draining && of.class == class) {
            // Its last item has left, or an item that came back keeps it.
            level.counters.pages_moved += u64::from(page_use.is_none_or(|of| of.is_draining));
            self.tiers[tier].emptying = None;
            return;
        }
        let staying: Vec<Id> =
            pages.items(page).filter(|&id| giving.transit.residents.nodes.get(id).may_go()).collect();
        let mut budget = giving.transit.residents.config.rebalance_batch;
        let before = budget;
        for id in staying {
            if budget == 0 {
                break;
            }
            if !giving.transit.residents.nodes.get(id).may_go() {
                // It was evicted meanwhile.
                continue;
            }
            budget -= 1;
            if giving.transit.open_move(id, tier, MoveKind::Relocate, context).is_some() {
                continue;
            }
            // No free slot in the class: its coldest item goes, and this one moves when that has gone.
            if !giving.one_of(tier, class, context) {
                break;
            }
        }
        emptying.stuck = if budget == before { emptying.stuck + 1 } else { 0 };
        let is_stuck = emptying.stuck >= STUCK_STEPS;
        if is_stuck {
            giving.transit.residents.levels[tier].slots.undrain(page);
        }
        self.tiers[tier].emptying = (!is_stuck).then_some(emptying);
    }
}

/// Looks at all classes of a tier for those that have a page to give.
fn look_for_donors(tier: usize, residents: &mut Residents, context: &mut Context<'_>) -> Donors {
    let (mut spare, mut coldest) = (None, None);
    for class in (0..=residents.classes.runs().0).map(Class) {
        if residents.levels[tier].slots.by_class().members(class).is_empty() {
            continue;
        }
        let pages_spare = spare_pages(tier, class, residents);
        if pages_spare > spare.map_or(0, |(pages, _)| pages) {
            spare = Some((pages_spare, class));
        }
        if let Some(age) = tail_age(tier, class, residents, context)
            && coldest.is_none_or(|(most, _)| age > most)
        {
            coldest = Some((age, class));
        }
    }
    Donors {
        looked: context.now.requests,
        spare: spare.map(|(_, class)| class),
        coldest: coldest.map(|(_, class)| class),
    }
}

/// Pages that a class could spare because it has free slots beyond those that it keeps; runs have none.
fn spare_pages(tier: usize, class: Class, residents: &Residents) -> u32 {
    let slots = &residents.levels[tier].slots;
    if class == residents.classes.runs() {
        return 0;
    }
    let (_, held) = slots.class_space(class);
    let kept = residents.config.watermarks_of(tier).map_or(0, |marks| threshold(held, marks.high) as u32);
    slots.by_class().class_use(class).slots_free.saturating_sub(kept)
        / residents.classes.slots_per_page(class)
}

/// A class without a free slot keeps the page of its victim if that page is being emptied: slots that become free on such a page
/// are given to no item, so one victim after another would be evicted for nothing. Returns whether the class has a free slot now.
pub(super) fn keep_page(slots: &mut Slots, unit: u32) -> bool {
    let class = slots.pages().class_at(unit);
    if !slots.pages().page_use(unit / PAGE_UNITS).is_some_and(|page| page.is_draining) {
        return false;
    }
    slots.undrain(unit / PAGE_UNITS);
    slots.by_class().class_use(class).slots_free > 0
}

#[cfg(test)]
mod tests {
    use super::super::test_world::{QUARTER, World};
    use super::super::{LadderConfig, PAGE_BYTES};
    use super::*;
    use crate::Now;
    use proptest::prelude::*;

    const PAGES: u64 = 12;
    const HALF: u64 = 2 * QUARTER;

    fn page_comes(exchange: &mut Exchange, world: &mut World, bytes: u64) -> bool {
        let class = world.class(bytes);
        let (transit, learnt, mut context) = world.parts();
        exchange.page_comes(0, class, &mut Giving { transit, learnt }, &mut context)
    }

    /// A step's part of the exchange.
    fn go_on(exchange: &mut Exchange, world: &mut World) -> usize {
        let before = world.acts.len();
        let (transit, learnt, mut context) = world.parts();
        exchange.go_on(0, &mut Giving { transit, learnt }, &mut context);
        let decided = world.acts.len() - before;
        world.settle();
        decided
    }

    fn pages(world: &World, bytes: u64) -> u32 {
        world.transit.residents.levels[0].slots.by_class().members(world.class(bytes)).len() as u32
    }

    /// Lets enough time pass since the last look at all classes for the next one.
    fn later(world: &mut World) {
        world.now = Now { requests: world.now.requests + LOOK_REQUESTS, ..world.now };
    }

    proptest! {
        /// The class with the most free slots beyond a page's gives one, however the items lie on its pages; its items stay, a
        /// batch of them moves at a time, and the page is counted once.
        #[test]
        fn a_class_with_free_slots_gives_a_page_and_no_item(
            left in prop::collection::vec(1u32..4, 3..6), halves in 1u32..4, batch in 1u32..5,
        ) {
            let mut world = World::new(LadderConfig { rebalance_batch: batch, ..World::config(&[PAGES]) });
            // Older than the others: their class is not the colder one.
            (0..halves).for_each(|_| _ = world.enter(0, HALF));
            let ids: Vec<Id> = (0..4 * left.len()).filter_map(|_| world.enter(0, QUARTER)).collect();
            for (page, &left) in left.iter().enumerate() {
                ids[4 * page + left as usize..4 * page + 4].iter().for_each(|&id| world.transit.remove(id));
            }
            later(&mut world);
            let (items, before) = (world.transit.residents.items(), pages(&world, QUARTER));
            let free = 4 * left.len() as u32 - left.iter().sum::<u32>();
            let mut exchange = Exchange::new(1);
            let comes = page_comes(&mut exchange, &mut world, HALF);
            prop_assert_eq!(comes, free >= 4, "{} slots are free", free);
            if comes {
                prop_assert!(page_comes(&mut exchange, &mut world, HALF), "it is on its way");
                prop_assert!(!page_comes(&mut exchange, &mut world, PAGE_BYTES), "to one class");
                let fewest = *left.iter().min().unwrap();
                let mut moved = 0;
                while world.transit.residents.levels[0].counters.pages_moved == 0 {
                    let decided = go_on(&mut exchange, &mut world);
                    prop_assert!(decided <= batch as usize);
                    moved += decided;
                    prop_assert!(moved <= 4);
                }
                prop_assert!(moved >= fewest as usize);
                prop_assert_eq!((world.transit.residents.items(), pages(&world, QUARTER)), (items, before - 1));
                prop_assert!(world.decided().1.is_empty());
                prop_assert_eq!(go_on(&mut exchange, &mut world), 0, "it is done");
                prop_assert_eq!(world.transit.residents.levels[0].counters.pages_moved, 1);
            }
        }
    }

    /// Full pages of quarters and then of halves; the older items are `apart` requests older than the younger.
    fn old_and_young(old_pages: usize, apart: u64) -> (World, Vec<Id>) {
        let mut world = World::new(World::config(&[PAGES]));
        let old = (0..4 * old_pages).filter_map(|_| world.enter(0, QUARTER)).collect();
        world.now.requests += apart;
        (0..4).for_each(|_| _ = world.enter(0, HALF));
        later(&mut world);
        (world, old)
    }

    /// Long enough that what is younger by it is clearly younger, also when all classes were looked at once more.
    const APART: u64 = 10 * LOOK_REQUESTS;

    #[test]
    fn a_class_gives_a_page_when_its_coldest_is_clearly_colder_than_the_others() {
        let (mut world, _) = old_and_young(2, APART);
        assert!(!page_comes(&mut Exchange::new(1), &mut world, QUARTER), "the older ones are its own");
        assert!(page_comes(&mut Exchange::new(1), &mut world, HALF));
        let (mut world, old) = old_and_young(2, APART);
        let half_of_them: Vec<Id> = old.iter().copied().step_by(2).collect();
        half_of_them.into_iter().for_each(|id| _ = world.touch(id));
        assert!(!page_comes(&mut Exchange::new(1), &mut world, HALF), "half of them are in use");
        let (mut world, _) = old_and_young(1, APART);
        assert!(page_comes(&mut Exchange::new(1), &mut world, HALF), "so much older that its only page goes");
        let (mut world, _) = old_and_young(1, 2 * LOOK_REQUESTS);
        assert!(!page_comes(&mut Exchange::new(1), &mut world, HALF), "its only page");
        let (mut world, old) = old_and_young(2, APART);
        old.iter().for_each(|&id| _ = world.touch(id));
        assert!(!page_comes(&mut Exchange::new(1), &mut world, HALF), "they are in use");
    }

    #[test]
    fn without_a_free_slot_the_coldest_of_the_class_go_for_those_on_the_page() {
        let (mut world, old) = old_and_young(3, APART);
        let mut exchange = Exchange::new(1);
        assert!(page_comes(&mut exchange, &mut world, HALF));
        for _ in 0..8 {
            go_on(&mut exchange, &mut world);
        }
        let (_, dropped) = world.decided();
        assert_eq!(dropped.len(), 4, "a page of four is given");
        assert!(dropped.iter().all(|id| old.contains(id)));
        assert_eq!(pages(&world, QUARTER), 2);
        assert_eq!(world.transit.residents.levels[0].counters.pages_moved, 1);
    }

    #[test]
    fn a_page_on_which_all_is_held_takes_items_again() {
        let (mut world, old) = old_and_young(2, APART);
        let mut exchange = Exchange::new(1);
        assert!(page_comes(&mut exchange, &mut world, HALF));
        old.iter().for_each(|&id| _ = world.transit.pin(id, None));
        for _ in 1..STUCK_STEPS {
            assert_eq!(go_on(&mut exchange, &mut world), 0);
            assert!(page_comes(&mut exchange, &mut world, HALF));
        }
        go_on(&mut exchange, &mut world);
        let slots = &world.transit.residents.levels[0].slots;
        assert!((0..2).all(|page| !slots.pages().page_use(page).is_some_and(|page| page.is_draining)));
        assert!(!page_comes(&mut exchange, &mut world, QUARTER), "nothing is on its way to anybody");
    }

    #[test]
    fn runs_take_nothing_here_but_keep_their_items_where_another_class_is_colder() {
        let (mut world, _) = old_and_young(2, APART);
        assert!(
            page_comes(&mut Exchange::new(1), &mut world, 2 * PAGE_BYTES),
            "by the window of a large item"
        );
        assert!(world.acts.is_empty());
        let large = world.enter(0, 2 * PAGE_BYTES).unwrap();
        world.touch(large);
        assert!(page_comes(&mut Exchange::new(1), &mut world, 2 * PAGE_BYTES));
        let young: Vec<Id> = world.items(0).into_iter().filter(|&id| id != large).collect();
        young.into_iter().for_each(|id| _ = world.touch(id));
        world.touch(large);
        later(&mut world);
        assert!(!page_comes(&mut Exchange::new(1), &mut world, 2 * PAGE_BYTES), "all were used lately");
    }

    #[test]
    fn a_cold_run_gives_all_its_pages_at_once() {
        let mut world = World::new(World::config(&[PAGES]));
        let large: Vec<Id> = (0..2).filter_map(|_| world.enter(0, 3 * PAGE_BYTES)).collect();
        world.now.requests += APART;
        (0..8).for_each(|_| _ = world.enter(0, QUARTER));
        later(&mut world);
        assert!(page_comes(&mut Exchange::new(1), &mut world, QUARTER));
        assert_eq!(world.decided().1, large[..1]);
        assert_eq!(world.transit.residents.levels[0].slots.supply().free(), PAGES as u32 - 3 - 2);
    }

    #[test]
    fn no_page_comes_where_it_is_switched_off() {
        let (mut world, _) = old_and_young(2, APART);
        world.transit.residents.config.rebalance_batch = 0;
        assert!(!page_comes(&mut Exchange::new(1), &mut world, HALF));
    }

    #[test]
    fn a_class_without_a_free_slot_keeps_the_page_that_is_being_emptied() {
        let mut world = World::new(World::config(&[PAGES]));
        let ids: Vec<Id> = (0..8).filter_map(|_| world.enter(0, QUARTER)).collect();
        let unit = |world: &World, id: Id| world.transit.residents.nodes.loc(id).unit;
        let (first, other) = (unit(&world, ids[0]), unit(&world, ids[7]));
        let slots = &mut world.transit.residents.levels[0].slots;
        assert!(!keep_page(slots, first), "it is not being emptied");
        slots.drain(0);
        assert!(!keep_page(slots, other) && !keep_page(slots, first), "it is full");
        slots.drain(0);
        slots.release(first);
        assert!(keep_page(slots, first), "one has left it");
        assert_eq!(slots.by_class().class_use(slots.pages().class_at(first)).slots_free, 1);
    }

    #[test]
    fn no_items_nothing_to_empty() {
        let (mut world, _) = old_and_young(2, APART);
        let mut exchange = Exchange::new(1);
        assert!(page_comes(&mut exchange, &mut world, HALF));
        exchange.clear();
        assert_eq!(go_on(&mut exchange, &mut world), 0);
    }
}
