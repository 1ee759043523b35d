//! Reclaiming pages: a class that has no page can always get one.

use std::ops::Range;

use super::classes::{Fit, PAGE_GRANULES};
use super::coldest_row::{ROUNDS, rows_by_cost};
use super::item_lifecycle::Transit;
use super::residents::Residents;
use super::slots::{Holder, pages_of};
use super::{Context, Demand};
use crate::Id;

/// Pages taken back at once for one admission, in addition to those that the item lies on.
const PAGES_AT_ONCE: u32 = 4;
/// Items on a page that other tenants' items go for at once at most: all of it is done in one piece.
const PROTECTED_MAX: u32 = 256;
/// An attempt to take pages of a tier back, with a limit for the bytes of live items that leave the system for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reclaim {
    tier: usize,
    evictable_bytes: u64,
}

impl Reclaim {
    /// Between requests.
    pub fn in_background(tier: usize, transit: &Transit) -> Self {
        let evictable_bytes = if transit.may_evict() { u64::MAX } else { 0 };
        Reclaim { tier, evictable_bytes }
    }

    /// For an item that is admitted now.
    pub fn for_admission(tier: usize, transit: &Transit, demand: Demand) -> Self {
        Reclaim { tier, evictable_bytes: transit.evictable_bytes_for_admission(demand) }
    }

    /// Takes back pages for an item that is admitted to a tier, one at least; `false`: nothing can be emptied for it.
    ///
    /// A tier that shares its memory with metadata has more pages than it may use, so some lie free while it is full. The coldest
    /// row is then partly free already, and emptying the rest gives back too few pages: the missing ones are taken from anywhere.
    pub fn for_item(tier: usize, fit: Fit, transit: &mut Transit, context: &mut Context<'_>) -> bool {
        let (supply, _) = transit.residents.levels[tier].slots.supply_mut();
        if let Fit::Run(granules) = fit
            && !supply.has_row(granules)
        {
            return Reclaim::for_admission(tier, transit, context.demand).row(granules, transit, context);
        }
        let short = supply.pages_short(fit.pages()).clamp(1, PAGES_AT_ONCE);
        let mut reclaim = || Reclaim::for_admission(tier, transit, context.demand).page(transit, context);
        (0..short).take_while(|_| reclaim()).count() > 0
    }

    /// Empties the coldest page: its items move within their class where it has free slots elsewhere, else down, else out.
    /// `false`: no page can be emptied.
    ///
    /// The page is free when the moves that this opens are done.
    pub fn page(self, transit: &mut Transit, context: &mut Context<'_>) -> bool {
        if transit.residents.levels[self.tier].slots.close_empty_page() {
            return true;
        }
        let page = self.coldest_page(&mut transit.residents, context);
        // Something on the page under each class's coldest item must stay: any other page.
        let row = page.map(granules_of).or_else(|| {
            let any = (self.evictable_bytes == u64::MAX).then_some(PAGE_GRANULES);
            any.and_then(|granules| self.coldest_row(granules, &mut transit.residents, context))
        });
        row.is_some_and(|row| self.empty(&row, transit, context))
    }

    /// Empties the coldest granules in a row, as [`Self::page`] does a page.
    fn row(self, granules: u32, transit: &mut Transit, context: &mut Context<'_>) -> bool {
        let row = self.coldest_row(granules, &mut transit.residents, context);
        row.is_some_and(|row| self.empty(&row, transit, context))
    }

    /// Has everything leave that lies in a row.
    fn empty(self, row: &Range<u32>, transit: &mut Transit, context: &mut Context<'_>) -> bool {
        // No page of the row may take in what leaves another.
        pages_of(row).for_each(|page| transit.residents.levels[self.tier].slots.drain(page));
        let emptied = pages_of(row).filter(|&page| self.empty_page(page, row, transit, context));
        emptied.count() == pages_of(row).len()
    }

    /// Empties the last page that lies behind the tier's end, whatever items are on it; `false`: there is none, or it cannot be
    /// emptied now.
    #[inline]
    pub fn behind_end(self, transit: &mut Transit, context: &mut Context<'_>) -> bool {
        let slots = &mut transit.residents.levels[self.tier].slots;
        let end = slots.supply().end();
        let Some(page) = slots.pages_mut().last_behind(end) else { return false };
        let context = &mut context.forced();
        let row = granules_of(page);
        let can = self.can_empty(page, &row, &transit.residents, context.demand);
        if can {
            self.empty(&row, transit, context);
        }
        can
    }

    /// The page of the coldest item whose page can be emptied.
    fn coldest_page(self, residents: &mut Residents, context: &mut Context<'_>) -> Option<u32> {
        let Residents { orders, nodes, levels, .. } = &mut *residents;
        let donors = orders.donors(self.tier, (nodes, &levels[self.tier].slots), context);
        let slots = &residents.levels[self.tier].slots;
        let mut pages = donors.into_iter().map(|(_, _, id)| slots.own_page(residents.nodes.loc(id).unit));
        pages.find(|&page| {
            !slots.supply().held().overlaps(&(page..page + 1))
                && self.can_empty(page, &granules_of(page), residents, context.demand)
        })
    }

    /// The first row that can be emptied at once, of rows spread over the tier, the cheapest first.
    fn coldest_row(
        &self,
        granules: u32,
        residents: &mut Residents,
        context: &mut Context<'_>,
    ) -> Option<Range<u32>> {
        // Where nothing may be dropped, or not all, one round is enough: others will lack space as well.
        let rounds = if self.evictable_bytes == u64::MAX { ROUNDS } else { 1 };
        (0..rounds).find_map(|round| {
            let rows = rows_by_cost(self.tier, granules, round, residents, context);
            rows.into_iter().find(|row| self.can_empty_row(row, residents, context.demand))
        })
    }

    fn can_empty_row(self, row: &Range<u32>, residents: &Residents, demand: Demand) -> bool {
        let slots = &residents.levels[self.tier].slots;
        if slots.supply().held().overlaps(&pages_of(row)) {
            // Space that becomes free there is kept for another.
            return false;
        }
        // Each page is asked by itself; where nothing may be dropped they must not count on the same space.
        let taken = pages_of(row).filter(|&page| slots.holders_in(page, row).next().is_some()).count();
        (taken <= 1 || self.may_go(pages_of(row), row, residents))
            && pages_of(row).all(|page| self.can_empty(page, row, residents, demand))
    }

    /// Whether all items that lie in a row, on these pages of it, may be dropped, should none of them find another place.
    fn may_go(self, pages: Range<u32>, row: &Range<u32>, residents: &Residents) -> bool {
        if self.evictable_bytes == u64::MAX || self.evictable_bytes == 0 {
            return self.evictable_bytes > 0;
        }
        let slots = &residents.levels[self.tier].slots;
        let mut items: Vec<Id> = pages.flat_map(|page| slots.items_in(page, row)).collect();
        items.dedup();
        items.into_iter().map(|id| residents.place_bytes(id)).sum::<u64>() <= self.evictable_bytes
    }

    /// Whether every item of a page that lies in the row can leave it.
    fn can_empty(self, page: u32, row: &Range<u32>, residents: &Residents, demand: Demand) -> bool {
        let slots = &residents.levels[self.tier].slots;
        let (mut items, mut protected) = (0u64, 0);
        for holder in slots.holders_in(page, row) {
            let Holder::Item(id) = holder else { return false };
            if !residents.nodes.get(id).may_go() {
                return false;
            }
            items += 1;
            protected += u32::from(residents.is_protected(id, demand));
        }
        if protected > 0 && protected > self.slots_elsewhere(page, items as u32, residents).min(PROTECTED_MAX)
        {
            return false;
        }
        if items == 0 || self.may_go(page..page + 1, row, residents) {
            return true;
        }
        // Nothing may be dropped, so there must be a free slot for each. A run needs its granules in a row, which a count
        // of free pages does not promise: it stays.
        let Some(of_slots) = slots.pages().page_use(page) else { return false };
        let beside = slots.by_class().slots_free_beside(of_slots.class, &pages_of(row), slots.pages());
        let below = residents.levels.get(self.tier + 1);
        let below = below.map_or(0, |level| level.slots.class_space(of_slots.class).0);
        beside + below >= items
    }

    /// An upper bound for the items of a page that find a slot of their class on other pages, free or given up for them. Runs
    /// stay where they are.
    fn slots_elsewhere(self, page: u32, items: u32, residents: &Residents) -> u32 {
        let slots = &residents.levels[self.tier].slots;
        let Some(of_slots) = slots.pages().page_use(page) else { return 0 };
        let of_class = slots.by_class().class_use(of_slots.class);
        of_class.slots_free + of_class.items.saturating_sub(items)
    }

    /// Has what lies in a row leave a page of it, which takes nothing in any more. `false`: an item that may not go for another
    /// tenant finds no other place, so the page stays.
    fn empty_page(
        self,
        page: u32,
        row: &Range<u32>,
        transit: &mut Transit,
        context: &mut Context<'_>,
    ) -> bool {
        let mut items: Vec<_> = transit.residents.levels[self.tier].slots.items_in(page, row).collect();
        // The coldest of the class may lie here too: when those have left, the slots of others are taken for the hot ones.
        items.sort_by_cached_key(|&id| std::cmp::Reverse(transit.residents.nodes.age(id, context.now)));
        for id in items {
            if !transit.residents.nodes.get(id).may_go() {
                // A run that covers several pages of the row was met before; another item has gone for one that stays.
                continue;
            }
            let is_protected = transit.residents.is_protected(id, context.demand);
            if transit.move_away(id, self.tier, is_protected, context) {
                continue;
            }
            if is_protected {
                transit.residents.levels[self.tier].slots.undrain(page);
                return false;
            }
            if !transit.is_hotter_than_victim(id, self.tier, context) || !transit.give_slot_to(id, context) {
                transit.evict(id, context);
            }
        }
        true
    }
}

/// The granules of a page.
fn granules_of(page: u32) -> Range<u32> {
    page * PAGE_GRANULES..(page + 1) * PAGE_GRANULES
}

#[cfg(test)]
mod tests {
    use super::super::below_last_tier::Outlet;
    use super::super::classes::Class;
    use super::super::test_world::{QUARTER, World};
    use super::super::{Eviction, LadderConfig, PAGE_BYTES};
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const PAGES: u64 = 10;
    /// Small ones, some on a page, a page, and runs.
    const SIZES: [u64; 5] = [1000, QUARTER, PAGE_BYTES / 2, PAGE_BYTES, 2 * PAGE_BYTES];

    type Ops = Vec<(u8, usize, prop::sample::Index)>;

    fn ops() -> impl Strategy<Value = Ops> {
        prop::collection::vec((0u8..10, 0usize..SIZES.len(), any::<prop::sample::Index>()), 1..150)
    }

    /// A tier in which items came, were used, held and removed, and one below it with some space.
    fn world(config: LadderConfig, ops: &Ops) -> World {
        let mut world = World::new(config);
        (0..6).for_each(|_| _ = world.enter(1, QUARTER));
        for &(what, size, pick) in ops {
            let live: Vec<Id> = world.items(0).into_iter().collect();
            let any = (!live.is_empty()).then(|| live[pick.index(live.len())]);
            match (what, any) {
                (0..6, _) => _ = world.enter(0, SIZES[size]),
                (6 | 7, Some(id)) => _ = world.touch(id),
                (8, Some(id)) if size == 0 => _ = world.transit.pin(id, None),
                (9, Some(id)) => world.transit.remove(id),
                _ => {}
            }
        }
        world
    }

    /// Whether everything that holds a place on a page is an item that may leave it.
    fn can_leave(world: &World, page: u32) -> bool {
        let residents = &world.transit.residents;
        let mut holders = residents.levels[0].slots.pages().holders(page);
        holders.all(|holder| matches!(holder, Holder::Item(id) if residents.nodes.get(id).may_go()))
    }

    fn page_of(world: &World, id: Id) -> u32 {
        world.transit.residents.levels[0].slots.own_page(world.transit.residents.nodes.loc(id).unit)
    }

    proptest! {
        /// Among the oldest items of all classes, the page of the oldest one is tried first; that page is emptied, and as many items
        /// leave as lay there. Where a class keeps an empty page no item has to move for one.
        #[test]
        fn a_page_is_taken_from_under_the_coldest(ops in ops()) {
            let mut world = world(World::config(&[PAGES, 2]), &ops);
            let slots = &world.transit.residents.levels[0].slots;
            let has_empty = (0..PAGES as u32).any(|page| slots.pages().page_use(page).is_some_and(|page| page.items == 0 && !page.is_draining));
            let mut oldest: Vec<Id> = world.classes().filter_map(|class| world.oldest(0, class)).collect();
            oldest.sort_by_key(|&id| std::cmp::Reverse(world.transit.residents.nodes.age(id, world.now)));
            let page = oldest.iter().map(|&id| page_of(&world, id)).find(|&page| can_leave(&world, page));
            let expected: BTreeSet<Id> = page.filter(|_| !has_empty).map_or(BTreeSet::new(), |page| {
                world.transit.residents.levels[0].slots.pages().items(page).collect()
            });
            let (transit, _, mut context) = world.parts();
            let taken = Reclaim::in_background(0, transit).page(transit, &mut context);
            let (moved, dropped) = world.decided();
            let gone: BTreeSet<Id> = moved.iter().map(|&(id, _)| id).chain(dropped.iter().copied()).collect();
            if has_empty || page.is_some() {
                prop_assert!(taken && gone.is_superset(&expected));
                // Hot ones take the places of the coldest of their class.
                prop_assert!(dropped.len() <= expected.len() && moved.iter().all(|(id, _)| expected.contains(id)));
            }
            world.settle();
            prop_assert!(page.is_none_or(|page| has_empty || world.transit.residents.levels[0].slots.pages().is_free(page)));
        }

        /// An attempt costs no more than its limit in items that leave the system, and the promised room is free when moves have
        /// ended. An attempt that fails tells no item to leave.
        #[test]
        fn what_is_promised_becomes_free_at_no_more_than_it_may_cost(
            ops in ops(), pages in 1u32..4, spare in prop::sample::select(vec![0, 2 * QUARTER, 3 * PAGE_BYTES]), is_choked in any::<bool>(),
        ) {
            let mut world = world(LadderConfig { eviction: Eviction::Forbidden, ..World::config(&[PAGES, 4]) }, &ops);
            if is_choked {
                world.transit.outlet = Outlet::Choked { room_bytes: u64::MAX, spare_bytes: spare };
            }
            let may_cost = if is_choked { spare } else { 0 };
            let bytes: BTreeMap<Id, u64> =
                world.items(0).into_iter().map(|id| (id, world.transit.residents.place_bytes(id))).collect();
            let had_empty = (0..PAGES as u32).any(|page| world.transit.residents.levels[0].slots.pages().page_use(page).is_some_and(|page| page.items == 0 && !page.is_draining));
            let before = world.transit.residents.levels[0].slots.supply().free();
            let (transit, _, mut context) = world.parts();
            let reclaim = Reclaim::for_admission(0, transit, context.demand);
            let granules = pages * PAGE_GRANULES;
            let taken = if pages == 1 { reclaim.page(transit, &mut context) } else { reclaim.row(granules, transit, &mut context) };
            let (moved, dropped) = world.decided();
            prop_assert!(dropped.iter().map(|id| bytes[id]).sum::<u64>() <= may_cost);
            prop_assert!(taken || moved.is_empty() && dropped.is_empty());
            world.settle();
            let (supply, _) = world.transit.residents.levels[0].slots.supply_mut();
            prop_assert!(!taken || supply.has_row(pages * PAGE_GRANULES));
            prop_assert!(!had_empty || pages > 1 || supply.free() > before);
        }

        /// A tier that was made smaller is emptied from its end on, and what lay there lies elsewhere or is told to leave.
        #[test]
        fn what_lies_behind_the_end_leaves(ops in ops(), end in 0u64..PAGES) {
            let ops: Ops = ops.into_iter().filter(|&(what, ..)| what != 8).collect();
            let mut world = world(World::config(&[PAGES, 4]), &ops);
            let before: BTreeSet<Id> = world.items(0).into_iter().chain(world.items(1)).collect();
            world.transit.residents.set_capacity(0, end * PAGE_BYTES);
            let mut dropped = Vec::new();
            for _ in 0..=PAGES {
                let used: Vec<u32> = (end as u32..PAGES as u32)
                    .filter(|&page| !world.transit.residents.levels[0].slots.pages().is_free(page))
                    .collect();
                let (transit, _, mut context) = world.parts();
                let has_taken = Reclaim::in_background(0, transit).behind_end(transit, &mut context);
                prop_assert_eq!(has_taken, !used.is_empty());
                dropped.extend(world.decided().1);
                world.settle();
                // From the last one on, and one at a time unless it is a run.
                let last = used.last().map(|&page| world.transit.residents.levels[0].slots.pages().is_free(page));
                prop_assert!(last.is_none_or(|is_free| is_free));
            }
            let after: BTreeSet<Id> = world.items(0).into_iter().chain(world.items(1)).chain(dropped).collect();
            prop_assert_eq!(after, before);
            let pages = world.transit.residents.levels[0].slots.pages();
            prop_assert!((end as u32..PAGES as u32).all(|page| pages.is_free(page)));
        }
    }

    #[test]
    fn an_item_that_others_protect_moves_to_a_slot_that_somebody_gives_up() {
        let mut world = World::of_two_tenants(4);
        let poor = world.enter_of(1, 0, QUARTER).unwrap();
        let rich: Vec<Id> = std::iter::from_fn(|| world.enter_of(2, 0, QUARTER)).collect();
        assert_eq!(rich.len(), 15);
        let (transit, _, mut context) = world.parts();
        let context = &mut context.wanted_by(Some(2));
        assert!(Reclaim::for_admission(0, transit, context.demand).page(transit, context));
        let (moved, dropped) = world.decided();
        assert!(!dropped.contains(&poor) && dropped.iter().all(|id| rich.contains(id)), "{dropped:?}");
        assert!(moved.len() + dropped.len() >= 4, "a page of four");
        world.settle();
        assert_eq!(world.transit.residents.levels[0].slots.supply().free(), 1);
        assert_eq!(world.transit.residents.tenant_level(1, 0).counters.evictions, 0);
    }

    #[test]
    fn pages_that_may_not_be_used_are_made_up_for_by_others() {
        // Four of ten pages are used, and no more than four may be.
        let mut world = World::new(World::config(&[PAGES]));
        let ids: Vec<Id> = (0..4).filter_map(|_| world.enter(0, PAGE_BYTES)).collect();
        world.transit.residents.levels[0].slots.supply_mut().0.set_limit(4);
        let (transit, _, mut context) = world.parts();
        assert!(Reclaim::for_item(0, Fit::Run(2 * PAGE_GRANULES), transit, &mut context));
        assert_eq!(world.decided().1, ids[..2], "the two pages that it lacks, and no more");
        // Where no page is lacking one is taken back all the same: the caller has found none of its class.
        let (transit, _, mut context) = world.parts();
        assert!(Reclaim::for_item(0, Fit::Slot(Class(0)), transit, &mut context));
        assert_eq!(world.decided().1, ids[2..3]);
    }
}
