//! Contiguous room for a large item, made a piece at a time.
//!
//! An item of sixteen megabytes needs 256 pages in a row. Where no tier has them free, a quarter of a million small items may
//! have to leave first, and no request shall wait for that. So a window, granules in a row, is chosen and held: pages that become
//! free in it are given to no other item, and some hundreds of items leave it in each piece of the work. [`super::Ladder::prepare`] does a
//! piece and says whether the room is there; between two pieces a server runs other requests. A caller that does not prepare gets
//! [`super::Admit::Again`] from the admission, which does the same pieces one after the other.

use std::ops::Range;

use super::classes::{Fit, PAGE_GRANULES, PAGE_UNITS};
use super::coldest_row::rows_by_cost;
use super::item_lifecycle::Transit;
use super::level::Level;
use super::rebalance::Exchange;
use super::reclaim::Reclaim;
use super::residents::Residents;
use super::slots::pages_of;
use super::tail_age::is_clearly_colder;
use super::{Context, Demand};
use crate::{Id, Now};

/// An item of this many granules or more goes to any tier where they are free, not to the fast tier alone, and room for it is made
/// in pieces.
const LARGE_GRANULES: u32 = 4 * PAGE_GRANULES;
/// Items that leave in one piece of work, and bytes of them that are copied.
const PIECE_ITEMS: u32 = 256;
const PIECE_BYTES: u64 = 512 << 10;
/// Pieces without progress after which a window is given up: something on it is pinned, or nothing may go.
const STUCK_PIECES: u32 = 64;
/// How often all pages are looked at before hot items leave that have found no other place.
const HOT_ROUNDS: u32 = 4;
/// Requests after which a window is given up that was not asked for again: its client has gone.
const ABANDONED_REQUESTS: u64 = 1 << 16;

/// A window that is being emptied.
#[derive(Clone, Debug)]
struct Clearing {
    window: Range<u32>,
    /// Pages from here on may still have items.
    at: u32,
    /// How often all pages were looked at. After the first time what is left is hotter than the coldest of its class, and takes the
    /// places of those.
    rounds: u32,
    stuck: u32,
    asked: u64,
    /// It was begun at the cost of items that nothing below takes, and continues so.
    overflows: bool,
    /// It was begun at the cost of any tenant's items, and continues so.
    is_forced: bool,
}

/// The granules of an item for which room is made in pieces.
pub(super) fn large(fit: Fit) -> Option<u32> {
    match fit {
        Fit::Run(granules) if granules >= LARGE_GRANULES => Some(granules),
        Fit::Run(_) | Fit::Slot(_) => None,
    }
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

    /// Whether room for a large item is being made at the cost of any tenant's items.
    pub fn force(&self) -> bool {
        self.tiers.iter().flatten().any(|clearing| clearing.is_forced)
    }

    /// A piece of the work, where there is any. Returns whether there is nothing more to do.
    pub fn prepare(
        &mut self,
        granules: u32,
        exchange: &mut Exchange,
        transit: &mut Transit,
        context: &mut Context<'_>,
    ) -> bool {
        if has_free_run(granules, &mut transit.residents)
            || has_large_victim(granules, exchange, transit, context)
        {
            return true;
        }
        let Some(tier) = self.tier(granules, exchange, &mut transit.residents, context) else { return true };
        if self.tiers[tier].is_none() {
            // A piece by itself: thousands of pages are asked for the age of an item.
            self.tiers[tier] = begin(tier, granules, &mut transit.residents, context);
            return self.tiers[tier].is_none();
        }
        self.piece(granules, exchange, transit, context) != Clear::Working
    }

    /// The tier where `granules` granules are made free: where they are being made, else the slowest that can hold them, for its
    /// items are the coldest; unless those of a faster one are clearly colder, as after the sizes that come have changed. A window
    /// that is too small is given up.
    fn tier(
        &mut self,
        granules: u32,
        exchange: &mut Exchange,
        residents: &mut Residents,
        context: &mut Context<'_>,
    ) -> Option<usize> {
        let able = |tier: &usize| residents.levels[*tier].can_hold(Fit::Run(granules));
        let tiers: Vec<usize> = (0..residents.levels.len()).rev().filter(able).collect();
        for &tier in &tiers {
            match &self.tiers[tier] {
                Some(clearing) if clearing.window.len() >= granules as usize => return Some(tier),
                Some(_) => self.end(tier, residents),
                None => {}
            }
        }
        let mut chosen: Option<(usize, u32)> = None;
        for tier in tiers {
            let age = exchange.coldest_age(tier, residents, context);
            if chosen.is_none_or(|(_, slower)| is_clearly_colder(age, slower)) {
                chosen = Some((tier, age));
            }
        }
        chosen.map(|(tier, _)| tier)
    }

    /// Does a piece of the work of making room for an item of `granules` granules.
    pub fn piece(
        &mut self,
        granules: u32,
        exchange: &mut Exchange,
        transit: &mut Transit,
        context: &mut Context<'_>,
    ) -> Clear {
        let Some(tier) = self.tier(granules, exchange, &mut transit.residents, context) else {
            return Clear::Impossible;
        };
        let begun =
            self.tiers[tier].take().or_else(|| begin(tier, granules, &mut transit.residents, context));
        let Some(mut clearing) = begun else { return Clear::Impossible };
        clearing.asked = context.now.requests;
        let may_overflow = transit.outlet.may_overflow(transit.residents.config.eviction);
        let overflows = context.demand.overflows || clearing.overflows && may_overflow;
        let is_forced = context.demand.is_forced || clearing.is_forced;
        let context = &mut context.with(Demand { overflows, is_forced, ..context.demand });
        let before = context.acts.len();
        let pages = pages_of(&clearing.window);
        let mut left = (PIECE_ITEMS, PIECE_BYTES);
        while pages.contains(&clearing.at) {
            if !clear_page(tier, &clearing, &mut left, transit, context) {
                break;
            }
            clearing.at += 1;
        }
        let slots = &transit.residents.levels[tier].slots;
        let is_empty = slots.supply().held().is_free(slots.pages());
        if is_empty && slots.supply().held_fits() {
            self.tiers[tier] = Some(clearing);
            return Clear::Done;
        }
        if is_empty {
            // Metadata has taken the place of pages: another one must go.
            Reclaim::for_admission(tier, transit, context.demand).page(transit, context);
        }
        if clearing.at == pages.end && !is_empty {
            // Items that are hot, were pinned or came back to their place are looked at again.
            clearing.at = pages.start;
            clearing.rounds += 1;
        }
        clearing.stuck = if context.acts.len() == before { clearing.stuck + 1 } else { 0 };
        let is_stuck = clearing.stuck >= STUCK_PIECES;
        self.tiers[tier] = Some(clearing);
        if !is_stuck {
            return Clear::Working;
        }
        self.end(tier, &mut transit.residents);
        Clear::Impossible
    }

    /// Whether a run would leave its granules to the window of a large item. For another large item that window is the way; a
    /// smaller one needs them now, and the window is given up for it.
    pub fn is_cleared_anyway(
        &mut self,
        tier: usize,
        fit: Fit,
        victim: Id,
        residents: &mut Residents,
    ) -> bool {
        let Some(clearing) = &self.tiers[tier] else { return false };
        let pages = residents.levels[tier].slots.pages();
        let run = pages.run(residents.nodes.loc(victim).unit / PAGE_UNITS);
        if matches!(fit, Fit::Slot(_)) || run.start >= clearing.window.end || clearing.window.start >= run.end
        {
            return false;
        }
        if large(fit).is_none() {
            self.end(tier, residents);
        }
        large(fit).is_some()
    }

    /// Gives up a window, or gives it away: its pages can be given out again.
    pub fn end(&mut self, tier: usize, residents: &mut Residents) {
        if let Some(clearing) = self.tiers[tier].take() {
            let slots = &mut residents.levels[tier].slots;
            let (supply, pages) = slots.supply_mut();
            supply.hold(0..0, |page| pages.free_granules(page));
            for page in pages_of(&clearing.window) {
                if slots.pages().page_use(page).is_some() {
                    slots.undrain(page);
                }
            }
        }
    }

    /// Gives up windows that no client waits for any more.
    pub fn end_abandoned(&mut self, residents: &mut Residents, now: Now) {
        for tier in 0..self.tiers.len() {
            let asked = self.tiers[tier].as_ref().map(|clearing| clearing.asked);
            if asked.is_some_and(|asked| now.requests > asked + ABANDONED_REQUESTS) {
                self.end(tier, residents);
            }
        }
    }
}

/// Whether so many granules in a row are free in some tier.
fn has_free_run(granules: u32, residents: &mut Residents) -> bool {
    residents.levels.iter_mut().filter(|level| level.can_hold(Fit::Run(granules))).any(|level| {
        let has_run = |level: &mut Level| level.slots.supply_mut().0.first_row(granules).is_some();
        has_run(level) || {
            level.slots.close_idle_pages();
            has_run(level)
        }
    })
}

/// Whether a single item can make the room, and should.
fn has_large_victim(
    granules: u32,
    exchange: &mut Exchange,
    transit: &mut Transit,
    context: &mut Context<'_>,
) -> bool {
    let class = transit.residents.classes.runs();
    (0..transit.residents.levels.len()).any(|tier| {
        let victim = transit.residents.victim(tier, class, context);
        let victim = victim.filter(|&id| transit.residents.is_large_enough(id, Fit::Run(granules)));
        victim.is_some_and(|id| {
            transit.residents.place_bytes(id) <= transit.evictable_bytes_for_admission(context.demand)
        }) && !should_clear_row(tier, Fit::Run(granules), exchange, &mut transit.residents, context)
    })
}

/// Whether an item of this fit should have a row cleared rather than the place of its class's coldest in a tier: another class or
/// tier is clearly colder, or there is room enough, in gaps that are too short.
pub(super) fn should_clear_row(
    tier: usize,
    fit: Fit,
    exchange: &mut Exchange,
    residents: &mut Residents,
    context: &mut Context<'_>,
) -> bool {
    let runs = residents.classes.runs();
    residents.levels[tier].slots.supply().free() >= fit.pages()
        || exchange.donor(tier, runs, residents, context).is_some()
        || large(fit).is_some() && exchange.is_other_tier_colder(tier, fit, residents, context)
}

fn begin(
    tier: usize,
    granules: u32,
    residents: &mut Residents,
    context: &mut Context<'_>,
) -> Option<Clearing> {
    let window = rows_by_cost(tier, granules, 0, residents, context).into_iter().next()?;
    let (supply, all) = residents.levels[tier].slots.supply_mut();
    supply.hold(window.clone(), |page| all.free_granules(page));
    let Demand { overflows, is_forced, .. } = context.demand;
    let (at, asked) = (pages_of(&window).start, context.now.requests);
    Some(Clearing { window, at, rounds: 0, stuck: 0, asked, overflows, is_forced })
}

/// Takes items of the window off its next page while the piece lasts. Returns whether all that are to leave now have been told to.
fn clear_page(
    tier: usize,
    clearing: &Clearing,
    left: &mut (u32, u64),
    transit: &mut Transit,
    context: &mut Context<'_>,
) -> bool {
    let page = clearing.at;
    let slots = &mut transit.residents.levels[tier].slots;
    // Again each time: a class that was short may have taken its page back.
    slots.drain(page);
    let here = slots.items_in(page, &clearing.window);
    let here: Vec<Id> = here.filter(|&id| transit.residents.nodes.get(id).may_go()).collect();
    for id in here {
        if left.0 == 0 || left.1 == 0 {
            return false;
        }
        if !transit.residents.nodes.get(id).may_go() {
            continue;
        }
        let before = context.acts.len();
        let bytes = transit.residents.place_bytes(id);
        clear_item(id, tier, bytes, clearing.rounds, transit, context);
        // One may cost several: those that left before it found a place.
        let acts = (context.acts.len() - before) as u32;
        *left = (left.0.saturating_sub(acts), left.1.saturating_sub(bytes * u64::from(acts.min(1))));
    }
    true
}

/// Has an item leave the window, if it is to leave in this round and has a place elsewhere or may be dropped.
fn clear_item(
    id: Id,
    tier: usize,
    bytes: u64,
    rounds: u32,
    transit: &mut Transit,
    context: &mut Context<'_>,
) {
    let is_protected = transit.residents.is_protected(id, context.demand);
    if transit.move_away(id, tier, is_protected, context) {
        return;
    }
    if transit.is_hotter_than_victim(id, tier, context) {
        // In the first round the coldest lie in the window too, and in others they may be on their way.
        if rounds > 0 && transit.give_slot_to(id, context) || rounds < HOT_ROUNDS {
            return;
        }
    }
    // An item that may not leave for another stays, and the window is given up when nothing else leaves it.
    if !is_protected && bytes <= transit.evictable_bytes_for_admission(context.demand) {
        transit.evict(id, context);
    }
}

#[cfg(test)]
mod tests {
    use super::super::PAGE_BYTES;
    use super::super::below_last_tier::Outlet;
    use super::super::coldest_row::GAP_COSTS;
    use super::super::test_world::World;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const PAGES: u32 = 24;
    const WINDOW: u32 = 6;
    const GRANULES: u32 = WINDOW * PAGE_GRANULES;
    /// Sixty-four of them on a page.
    const SMALL: u64 = 1000;

    /// A full tier.
    fn world() -> (World, Vec<Id>) {
        let mut world = World::new(World::config(&[u64::from(PAGES)]));
        let ids = world.fill(0, SMALL);
        assert_eq!(ids.len() as u32, PAGES * 64);
        (world, ids)
    }

    fn clearing(window: Range<u32>) -> Clearing {
        let at = pages_of(&window).start;
        Clearing { window, at, rounds: 0, stuck: 0, asked: 0, overflows: false, is_forced: false }
    }

    fn piece(clearings: &mut Clearings, world: &mut World) -> Clear {
        let (transit, _, mut context) = world.parts();
        let clear = clearings.piece(GRANULES, &mut Exchange::new(1), transit, &mut context);
        world.settle();
        clear
    }

    fn prepare(clearings: &mut Clearings, world: &mut World, pages: u32) -> bool {
        let (transit, _, mut context) = world.parts();
        clearings.prepare(pages * PAGE_GRANULES, &mut Exchange::new(1), transit, &mut context)
    }

    fn free(world: &World) -> u32 {
        world.transit.residents.levels[0].slots.supply().free()
    }

    proptest! {
        /// The window is emptied whose pages have not been used for longest, a piece at a time: what lies there leaves, and what is
        /// hotter than the coldest takes the places of those. Pages that become free in it are held until the window is given
        /// away, and then there is room for the large item.
        #[test]
        fn the_coldest_window_is_emptied_in_pieces(uses in prop::collection::vec(any::<prop::sample::Index>(), 0..60)) {
            let (mut world, ids) = world();
            let used: BTreeSet<Id> = uses.into_iter().map(|pick| ids[pick.index(ids.len())]).collect();
            used.iter().for_each(|&id| _ = world.touch(id));
            let rate = |id: Id| 1.0 / (f64::from(world.transit.residents.nodes.age(id, world.now)) + 1.0);
            let of_tail = ids.iter().map(|&id| rate(id)).fold(1.0, f64::min);
            let of_page = |page: u32| (of_tail + rate(ids[page as usize * 64])) / 2.0;
            // A gap in front of it would be too short for others.
            let times = |start: u32| if start == 0 { 1.0 } else { GAP_COSTS };
            let cost = |start: u32| (start..start + WINDOW).map(of_page).sum::<f64>() * times(start);
            let window = (0..=PAGES - WINDOW).min_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap();
            let in_window: BTreeSet<Id> = ids[window as usize * 64..(window + WINDOW) as usize * 64].iter().copied().collect();
            let mut clearings = Clearings::new(1);
            let (mut gone, mut moved) = (BTreeSet::new(), BTreeSet::new());
            loop {
                let clear = piece(&mut clearings, &mut world);
                let (moves, dropped) = world.decided();
                prop_assert!(moves.len() <= PIECE_ITEMS as usize && dropped.len() <= 2 * PIECE_ITEMS as usize);
                moved.extend(moves.into_iter().map(|(id, _)| id));
                gone.extend(dropped);
                prop_assert!(clearings.is_under_way(0) && free(&world) == 0);
                prop_assert_eq!(world.enter(0, SMALL), None, "nobody is given what becomes free");
                if clear == Clear::Done {
                    break;
                }
                prop_assert_eq!(clear, Clear::Working);
            }
            prop_assert_eq!(gone.len() as u32, WINDOW * 64);
            prop_assert!(moved.is_subset(&in_window));
            prop_assert!(gone.is_disjoint(&used), "what is hot stays: others are colder");
            prop_assert!(in_window.iter().all(|id| gone.contains(id) || moved.contains(id)));
            clearings.end(0, &mut world.transit.residents);
            prop_assert!(!clearings.is_under_way(0) && free(&world) == WINDOW);
            prop_assert!(world.enter(0, u64::from(WINDOW) * PAGE_BYTES).is_some());
        }
    }

    /// A run would have to go in one tier while small items lie unused in the other.
    #[test]
    fn a_row_is_cleared_where_another_tier_is_clearly_colder() {
        for (cold, other) in [(0, 1), (1, 0)] {
            let mut world = World::new(World::config(&[u64::from(PAGES); 2]));
            world.fill(cold, SMALL);
            world.now.requests += 1 << 16;
            world.enter(other, u64::from(WINDOW) * PAGE_BYTES).unwrap();
            world.fill(other, SMALL);
            let clear = |world: &mut World, tier| {
                let (transit, _, mut context) = world.parts();
                let residents = &mut transit.residents;
                should_clear_row(tier, Fit::Run(GRANULES), &mut Exchange::new(2), residents, &mut context)
            };
            assert!(clear(&mut world, other));
            let unused: Vec<Id> = world.items(cold).into_iter().collect();
            unused.into_iter().for_each(|id| _ = world.touch(id));
            assert!(!clear(&mut world, other), "they are in use");
        }
    }

    #[test]
    fn a_window_is_chosen_before_the_first_item_leaves_it() {
        let (mut world, _) = world();
        let mut clearings = Clearings::new(1);
        let rest = WINDOW * 64 - PIECE_ITEMS;
        for (is_last, leave) in [(false, 0), (false, PIECE_ITEMS), (true, rest)] {
            assert_eq!(prepare(&mut clearings, &mut world, WINDOW), is_last);
            assert!(clearings.is_under_way(0));
            assert_eq!(world.decided().1.len() as u32, leave);
        }
    }

    #[test]
    fn a_window_on_which_something_stays_is_given_up() {
        let (mut world, ids) = world();
        world.transit.pin(ids[100], None);
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
        let too_large = (PAGES / 2 + 1) * PAGE_GRANULES;
        assert_eq!(
            clearings.piece(too_large, &mut Exchange::new(1), transit, &mut context),
            Clear::Impossible
        );
        assert!(prepare(&mut clearings, &mut world, PAGES / 2 + 1), "there is nothing to be done for it");
        assert!(world.acts.is_empty() && !clearings.is_under_way(0));
    }

    #[test]
    fn a_larger_item_has_a_window_of_its_own_and_room_that_is_there_needs_none() {
        const LARGER: u32 = 2 * WINDOW;
        let (mut world, _) = world();
        let mut clearings = Clearings::new(1);
        assert_eq!(piece(&mut clearings, &mut world), Clear::Working);
        assert!(!prepare(&mut clearings, &mut world, LARGER), "the smaller one is given up for it");
        while piece(&mut clearings, &mut world) == Clear::Working {}
        assert_eq!(world.decided().1.len() as u32, LARGER * 64, "the smaller item takes the larger window");
        clearings.end(0, &mut world.transit.residents);
        assert!(prepare(&mut clearings, &mut world, LARGER), "the room is there");
        let large = world.enter(0, u64::from(LARGER) * PAGE_BYTES).unwrap();
        world.now.requests += 1000;
        world.items(0).into_iter().filter(|&id| id != large).for_each(|id| _ = world.touch(id));
        assert!(prepare(&mut clearings, &mut world, WINDOW), "one item makes it when it goes");
        assert!(!clearings.is_under_way(0) && world.acts.is_empty());
        world.now.requests += 10_000;
        world.touch(large);
        assert!(
            !prepare(&mut clearings, &mut world, WINDOW),
            "it stays where smaller ones are clearly colder"
        );
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
        let window = 2 * PAGE_GRANULES..2 * PAGE_GRANULES + GRANULES;
        supply.hold(window.clone(), |page| pages.free_granules(page));
        clearings.tiers[0] = Some(clearing(window));
        let mut leaves_it =
            |run: usize, granules| clearings.is_cleared_anyway(0, Fit::Run(granules), runs[run], residents);
        assert!(!leaves_it(0, LARGE_GRANULES) && !leaves_it(4, LARGE_GRANULES), "they lie beside it");
        assert!(leaves_it(1, LARGE_GRANULES) && leaves_it(3, LARGE_GRANULES));
        assert!(!leaves_it(3, LARGE_GRANULES - 1), "a smaller one takes it");
        assert!(!leaves_it(3, LARGE_GRANULES), "and the window is no more");
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
        clearings.piece(GRANULES, &mut Exchange::new(1), transit, &mut context.overflowing());
        assert!(world.decided().1.len() > 200 && clearings.overflow());
        piece(&mut clearings, &mut world);
        assert!(!world.decided().1.is_empty(), "who asks next need not say so again");
    }

    #[test]
    fn no_items_no_windows() {
        let mut clearings = Clearings::new(1);
        clearings.tiers[0] = Some(Clearing { overflows: true, ..clearing(0..GRANULES) });
        clearings.clear();
        assert!(!clearings.is_under_way(0) && !clearings.overflow());
    }
}
