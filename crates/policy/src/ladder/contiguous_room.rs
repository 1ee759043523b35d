//! Contiguous room for a large item, made a piece at a time.
//!
//! An item of sixteen megabytes needs 256 pages in a row. Where no tier has them free, a quarter of a million small items may
//! have to leave first, and no request shall wait for that. So a window of pages is chosen and held: pages that become free in it
//! are given to no other item, and some hundreds of items leave it in each piece of the work. [`super::Ladder::prepare`] does a
//! piece and says whether the room is there; between two pieces a server runs other requests. A caller that does not prepare gets
//! [`super::Admit::Again`] from the admission, which does the same pieces one after the other.

use super::classes::{Fit, PAGE_UNITS};
use super::item_lifecycle::Transit;
use super::level::Level;
use super::reclaim::Reclaim;
use super::residents::Residents;
use super::{Context, Demand};
use crate::{Id, Now};

/// An item of this many pages or more goes to any tier where they are free, not to the fast tier alone, and room for it is made
/// in pieces.
pub(super) const LARGE_PAGES: u32 = 4;
/// Items that leave in one piece of work, and bytes of them that are copied.
const PIECE_ITEMS: u32 = 256;
const PIECE_BYTES: u64 = 512 << 10;
/// Pieces without progress after which a window is given up: something on it is pinned, or nothing may go.
const STUCK_PIECES: u32 = 64;
/// Requests after which a window is given up that was not asked for again: its client has gone.
const ABANDONED_REQUESTS: u64 = 1 << 16;

/// A window that is being emptied.
#[derive(Clone, Copy, Debug)]
struct Clearing {
    first: u32,
    pages: u32,
    /// Pages from here on may still have items.
    at: u32,
    stuck: u32,
    asked: u64,
    /// It was begun at the cost of items that nothing below takes, and continues so.
    overflows: bool,
}

/// How the room for a large item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clear {
    /// It is there.
    Done,
    /// Not yet.
    Working,
    /// It cannot be made.
    Impossible,
}

/// The windows that are being emptied, one at most in each tier.
#[derive(Clone, Debug)]
pub(super) struct Clearings {
    tiers: Vec<Option<Clearing>>,
}

impl Clearings {
    pub fn new(tiers: usize) -> Self {
        Clearings { tiers: vec![None; tiers] }
    }

    /// There are no items any more, and no windows.
    pub fn clear(&mut self) {
        self.tiers.fill(None);
    }

    /// Whether one is being emptied in a tier.
    pub fn is_under_way(&self, tier: usize) -> bool {
        self.tiers[tier].is_some()
    }

    /// Whether room for a large item is being made at the cost of items that nothing below takes.
    pub fn overflow(&self) -> bool {
        self.tiers.iter().flatten().any(|clearing| clearing.overflows)
    }

    /// A piece of the work, where there is any. Returns whether there is nothing more to do.
    pub fn prepare(&mut self, pages: u32, transit: &mut Transit, context: &mut Context<'_>) -> bool {
        if has_free_run(pages, &mut transit.residents) || has_large_victim(pages, transit, context) {
            return true;
        }
        let Some(tier) = self.tier(pages, &mut transit.residents) else { return true };
        if self.tiers[tier].is_none() {
            // A piece by itself: a thousand pages are asked for the age of an item.
            self.tiers[tier] = begin(tier, pages, &mut transit.residents, context);
            return self.tiers[tier].is_none();
        }
        self.piece(pages, transit, context) != Clear::Working
    }

    /// The slowest tier that can hold `pages` pages: its items are the coldest. A window there that is too small is given up.
    fn tier(&mut self, pages: u32, residents: &mut Residents) -> Option<usize> {
        let tier = (0..residents.levels.len()).rev().find(|&tier| residents.levels[tier].can_hold(pages))?;
        if self.tiers[tier].is_some_and(|clearing| clearing.pages < pages) {
            self.end(tier, residents);
        }
        Some(tier)
    }

    /// Does a piece of the work of making room for an item of `pages` pages.
    pub fn piece(&mut self, pages: u32, transit: &mut Transit, context: &mut Context<'_>) -> Clear {
        let Some(tier) = self.tier(pages, &mut transit.residents) else { return Clear::Impossible };
        let begun = self.tiers[tier].or_else(|| begin(tier, pages, &mut transit.residents, context));
        let Some(mut clearing) = begun else { return Clear::Impossible };
        clearing.asked = context.now.requests;
        let may_overflow = transit.outlet.may_overflow(transit.residents.config.eviction);
        let overflows = context.demand.overflows || clearing.overflows && may_overflow;
        let context = &mut context.with(Demand { overflows, ..context.demand });
        let before = context.acts.len();
        let window = clearing.first..clearing.first + clearing.pages;
        let mut left = (PIECE_ITEMS, PIECE_BYTES);
        while window.contains(&clearing.at) {
            if !clear_page(tier, clearing.at, &mut left, transit, context) {
                break;
            }
            clearing.at += 1;
        }
        let supply = transit.residents.levels[tier].slots.supply();
        let is_empty = supply.held().is_free();
        if is_empty && supply.held_fits() {
            self.tiers[tier] = Some(clearing);
            return Clear::Done;
        }
        if is_empty {
            // Metadata has taken the place of pages: another one must go.
            Reclaim::for_admission(tier, transit, context.demand).pages(1, transit, context);
        }
        if clearing.at == window.end && !is_empty {
            // Items that were pinned, or came back to their place, are looked at again.
            clearing.at = window.start;
        }
        clearing.stuck = if context.acts.len() == before { clearing.stuck + 1 } else { 0 };
        self.tiers[tier] = Some(clearing);
        if clearing.stuck < STUCK_PIECES {
            return Clear::Working;
        }
        self.end(tier, &mut transit.residents);
        Clear::Impossible
    }

    /// Whether a run would leave its pages to the window of a large item. For another large item that window is the way; a
    /// smaller one needs the pages now, and the window is given up for it.
    pub fn is_cleared_anyway(
        &mut self,
        tier: usize,
        fit: Fit,
        victim: Id,
        residents: &mut Residents,
    ) -> bool {
        let Fit::Run(pages) = fit else { return false };
        let first = residents.nodes.loc(victim).unit / PAGE_UNITS;
        let run = first..first + (residents.place_bytes(victim) / super::PAGE_BYTES) as u32;
        let overlaps =
            |clearing: Clearing| run.start < clearing.first + clearing.pages && clearing.first < run.end;
        if !self.tiers[tier].is_some_and(overlaps) {
            return false;
        }
        if pages < LARGE_PAGES {
            self.end(tier, residents);
        }
        pages >= LARGE_PAGES
    }

    /// Gives up a window, or gives it away: its pages can be given out again.
    pub fn end(&mut self, tier: usize, residents: &mut Residents) {
        if let Some(clearing) = self.tiers[tier].take() {
            let slots = &mut residents.levels[tier].slots;
            let (supply, pages) = slots.supply_mut();
            supply.hold(0..0, |page| pages.is_free(page));
            for page in clearing.first..clearing.first + clearing.pages {
                if !slots.pages().is_free(page) && slots.pages().run_head(page) == page {
                    slots.undrain(page);
                }
            }
        }
    }

    /// Gives up windows that no client waits for any more.
    pub fn end_abandoned(&mut self, residents: &mut Residents, now: Now) {
        for tier in 0..self.tiers.len() {
            let asked = self.tiers[tier].map(|clearing| clearing.asked);
            if asked.is_some_and(|asked| now.requests > asked + ABANDONED_REQUESTS) {
                self.end(tier, residents);
            }
        }
    }
}

/// Whether `pages` pages in a row are free in some tier.
fn has_free_run(pages: u32, residents: &mut Residents) -> bool {
    residents.levels.iter_mut().filter(|level| level.can_hold(pages)).any(|level| {
        let has_run = |level: &mut Level| level.slots.supply_mut().0.first_run(pages).is_some();
        has_run(level) || {
            level.slots.close_idle_pages();
            has_run(level)
        }
    })
}

/// Whether a single item can make the room.
fn has_large_victim(pages: u32, transit: &mut Transit, context: &mut Context<'_>) -> bool {
    let class = transit.residents.classes.runs();
    (0..transit.residents.levels.len()).any(|tier| {
        let victim = transit.residents.victim(tier, class, context);
        victim.filter(|&id| transit.residents.is_large_enough(id, Fit::Run(pages))).is_some_and(|id| {
            transit.residents.place_bytes(id) <= transit.evictable_bytes_for_admission(context.demand)
        })
    })
}

fn begin(tier: usize, pages: u32, residents: &mut Residents, context: &Context<'_>) -> Option<Clearing> {
    let first = Reclaim::coldest_start(tier, pages, residents, context.now)?;
    let (supply, all) = residents.levels[tier].slots.supply_mut();
    supply.hold(first..first + pages, |page| all.is_free(page));
    let (asked, overflows) = (context.now.requests, context.demand.overflows);
    Some(Clearing { first, pages, at: first, stuck: 0, asked, overflows })
}

/// Takes items off a page while the piece lasts. Returns whether all that can leave have been told to.
fn clear_page(
    tier: usize,
    page: u32,
    left: &mut (u32, u64),
    transit: &mut Transit,
    context: &mut Context<'_>,
) -> bool {
    let slots = &mut transit.residents.levels[tier].slots;
    // Again each time: a class that was short may have taken its page back.
    slots.drain(page);
    let here = slots.pages().items(slots.pages().run_head(page));
    let here: Vec<Id> = here.filter(|&id| transit.residents.nodes.get(id).may_go()).collect();
    for id in here {
        if left.0 == 0 || left.1 == 0 {
            return false;
        }
        if !transit.residents.nodes.get(id).may_go() {
            continue;
        }
        let bytes = transit.residents.place_bytes(id);
        let is_protected = transit.residents.is_protected(id, context.demand);
        let moved = transit.move_away(id, tier, is_protected, context);
        // An item that may not leave for another stays, and the window is given up when nothing else leaves it.
        if !moved && !is_protected && bytes <= transit.evictable_bytes_for_admission(context.demand) {
            transit.evict(id, context);
        }
        *left = (left.0 - 1, left.1.saturating_sub(bytes));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::PAGE_BYTES;
    use super::super::below_last_tier::Outlet;
    use super::super::test_world::World;
    use super::*;
    use proptest::prelude::*;

    const PAGES: u32 = 24;
    const WINDOW: u32 = 6;
    /// Sixty-four of them on a page.
    const SMALL: u64 = 1000;

    /// A full tier.
    fn world() -> (World, Vec<Id>) {
        let mut world = World::new(World::config(&[u64::from(PAGES)]));
        let ids = world.fill(0, SMALL);
        assert_eq!(ids.len() as u32, PAGES * 64);
        (world, ids)
    }

    fn piece(clearings: &mut Clearings, world: &mut World) -> Clear {
        let (transit, _, mut context) = world.parts();
        let clear = clearings.piece(WINDOW, transit, &mut context);
        world.settle();
        clear
    }

    fn free(world: &World) -> u32 {
        world.transit.residents.levels[0].slots.supply().free()
    }

    proptest! {
        /// The window whose pages' first items are oldest is emptied, a piece at a time. Pages that become free in it are held
        /// until the window is given away, and then there is room for the large item.
        #[test]
        fn the_coldest_window_is_emptied_in_pieces(uses in prop::collection::vec(any::<prop::sample::Index>(), 0..60)) {
            let (mut world, ids) = world();
            uses.into_iter().for_each(|pick| _ = world.touch(ids[pick.index(ids.len())]));
            let age = |page: u32| u64::from(world.transit.residents.nodes.age(ids[page as usize * 64], world.now));
            let coldness = |start: u32| (start..start + WINDOW).map(age).sum::<u64>();
            let window = (0..=PAGES - WINDOW).rev().max_by_key(|&start| coldness(start)).unwrap();
            let mut expected: Vec<Id> = ids[window as usize * 64..(window + WINDOW) as usize * 64].to_vec();
            expected.sort();
            let mut clearings = Clearings::new(1);
            let mut gone = Vec::new();
            let mut pieces = 0;
            loop {
                let clear = piece(&mut clearings, &mut world);
                let (moved, dropped) = world.decided();
                prop_assert!(moved.is_empty() && dropped.len() <= PIECE_ITEMS as usize);
                gone.extend(dropped);
                pieces += 1;
                prop_assert!(clearings.is_under_way(0) && free(&world) == 0);
                prop_assert_eq!(world.enter(0, SMALL), None, "nobody is given what becomes free");
                if clear == Clear::Done {
                    break;
                }
                prop_assert_eq!(clear, Clear::Working);
            }
            prop_assert_eq!(pieces, (WINDOW * 64).div_ceil(PIECE_ITEMS));
            gone.sort();
            prop_assert_eq!(gone, expected);
            clearings.end(0, &mut world.transit.residents);
            prop_assert!(!clearings.is_under_way(0) && free(&world) == WINDOW);
            prop_assert!(world.enter(0, u64::from(WINDOW) * PAGE_BYTES).is_some());
        }
    }

    #[test]
    fn a_window_is_chosen_before_the_first_item_leaves_it() {
        let (mut world, _) = world();
        let mut clearings = Clearings::new(1);
        let rest = WINDOW * 64 - PIECE_ITEMS;
        for (is_last, leave) in [(false, 0), (false, PIECE_ITEMS), (true, rest)] {
            let (transit, _, mut context) = world.parts();
            assert_eq!(clearings.prepare(WINDOW, transit, &mut context), is_last);
            assert!(clearings.is_under_way(0));
            assert_eq!(world.decided().1.len() as u32, leave);
        }
    }

    #[test]
    fn a_window_on_which_something_stays_is_given_up() {
        let (mut world, ids) = world();
        world.transit.pin(ids[100]);
        let mut clearings = Clearings::new(1);
        assert_eq!(piece(&mut clearings, &mut world), Clear::Working);
        let mut pieces = 1;
        while piece(&mut clearings, &mut world) == Clear::Working {
            pieces += 1;
            assert!(clearings.is_under_way(0));
        }
        assert!(pieces >= STUCK_PIECES, "as long as something leaves it goes on");
        assert!(!clearings.is_under_way(0));
        // All but one of them can be given out again, and the last one's slots too.
        assert_eq!(free(&world), WINDOW - 1);
        assert_eq!(world.fill(0, SMALL).len() as u32, WINDOW * 64 - 1);
    }

    #[test]
    fn what_no_tier_can_hold_is_not_begun() {
        let (mut world, _) = world();
        let mut clearings = Clearings::new(1);
        let (transit, _, mut context) = world.parts();
        assert_eq!(clearings.piece(PAGES / 2 + 1, transit, &mut context), Clear::Impossible);
        assert!(
            clearings.prepare(PAGES / 2 + 1, transit, &mut context),
            "there is nothing to be done for it"
        );
        assert!(context.acts.is_empty() && !clearings.is_under_way(0));
    }

    #[test]
    fn a_larger_item_has_a_window_of_its_own_and_room_that_is_there_needs_none() {
        const LARGER: u32 = 2 * WINDOW;
        let (mut world, _) = world();
        let mut clearings = Clearings::new(1);
        assert_eq!(piece(&mut clearings, &mut world), Clear::Working);
        let (transit, _, mut context) = world.parts();
        assert!(!clearings.prepare(LARGER, transit, &mut context), "the smaller one is given up for it");
        while piece(&mut clearings, &mut world) == Clear::Working {}
        assert_eq!(world.decided().1.len() as u32, LARGER * 64, "the smaller item takes the larger window");
        clearings.end(0, &mut world.transit.residents);
        let (transit, _, mut context) = world.parts();
        assert!(clearings.prepare(LARGER, transit, &mut context), "the room is there");
        assert!(world.enter(0, u64::from(LARGER) * PAGE_BYTES).is_some());
        let (transit, _, mut context) = world.parts();
        assert!(clearings.prepare(WINDOW, transit, &mut context), "one item makes it when it goes");
        assert!(!clearings.is_under_way(0) && world.acts.is_empty());
    }

    #[test]
    fn a_window_that_nobody_asks_for_is_given_up() {
        let (mut world, _) = world();
        let mut clearings = Clearings::new(1);
        piece(&mut clearings, &mut world);
        let later = |world: &World, requests| Now { requests: world.now.requests + requests, ..world.now };
        let now = later(&world, ABANDONED_REQUESTS);
        clearings.end_abandoned(&mut world.transit.residents, now);
        assert!(clearings.is_under_way(0));
        let now = later(&world, ABANDONED_REQUESTS + 1);
        clearings.end_abandoned(&mut world.transit.residents, now);
        assert!(!clearings.is_under_way(0) && free(&world) > 0);
    }

    #[test]
    fn a_run_in_the_window_is_left_to_a_large_item_and_costs_the_window_for_a_small_one() {
        let mut world = World::new(World::config(&[u64::from(PAGES)]));
        let runs = world.fill(0, 2 * PAGE_BYTES);
        let mut clearings = Clearings::new(1);
        let residents = &mut world.transit.residents;
        let (supply, pages) = residents.levels[0].slots.supply_mut();
        supply.hold(2..2 + WINDOW, |page| pages.is_free(page));
        let clearing = Clearing { first: 2, pages: WINDOW, at: 2, stuck: 0, asked: 0, overflows: false };
        clearings.tiers[0] = Some(clearing);
        let mut leaves_it =
            |run: usize, pages| clearings.is_cleared_anyway(0, Fit::Run(pages), runs[run], residents);
        assert!(!leaves_it(0, LARGE_PAGES) && !leaves_it(4, LARGE_PAGES), "they lie beside it");
        assert!(leaves_it(1, LARGE_PAGES) && leaves_it(3, LARGE_PAGES));
        assert!(!leaves_it(3, LARGE_PAGES - 1), "a smaller one takes it");
        assert!(!leaves_it(3, LARGE_PAGES), "and the window is no more");
        assert!(!clearings.is_under_way(0));
    }

    #[test]
    fn what_was_begun_at_the_cost_of_items_that_nothing_takes_goes_on_so_while_it_may() {
        let (mut world, _) = world();
        let choked = Outlet::Choked { room_bytes: 0, spare_bytes: 0 };
        world.transit.outlet = choked;
        let mut clearings = Clearings::new(1);
        assert_eq!(piece(&mut clearings, &mut world), Clear::Working);
        assert!(world.decided().1.is_empty() && !clearings.overflow(), "nothing may go");
        clearings.end(0, &mut world.transit.residents);
        let (transit, _, mut context) = world.parts();
        clearings.piece(WINDOW, transit, &mut context.overflowing());
        assert!(world.decided().1.len() > 200 && clearings.overflow());
        piece(&mut clearings, &mut world);
        assert!(!world.decided().1.is_empty(), "who asks next need not say so again");
    }

    #[test]
    fn no_items_no_windows() {
        let mut clearings = Clearings::new(1);
        clearings.tiers[0] =
            Some(Clearing { first: 0, pages: WINDOW, at: 0, stuck: 0, asked: 0, overflows: true });
        clearings.clear();
        assert!(!clearings.is_under_way(0) && !clearings.overflow());
    }
}
