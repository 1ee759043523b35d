//! Taking pages back: a class that has no page can always get one.

use std::ops::Range;

use super::classes::PAGE_UNITS;
use super::residents::Residents;
use super::slots::Holder;
use super::transit::Transit;
use super::{Context, Demand};
use crate::Now;

/// Places looked at for a run of pages.
const WINDOWS: u32 = 64;
/// How often as many others are looked at where something on each of them must stay.
const ROUNDS: u32 = 4;
/// Pages taken back at once for one admission beside those that it lies on.
const PAGES_AT_ONCE: u32 = 4;
/// Items on a page that other tenants' items go for at once at most: all of it is done in one piece.
const PROTECTED_MAX: u32 = 256;
/// Pages of a window that are asked how cold they are.
const PAGES_ASKED: u32 = 16;

/// An attempt to take pages of a tier back, at the cost of so many bytes of live items that leave the system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reclaim {
    tier: usize,
    evictable_bytes: u64,
}

impl Reclaim {
    /// Between requests.
    pub fn in_background(tier: usize, transit: &Transit) -> Self {
        Reclaim { tier, evictable_bytes: transit.evictable_bytes() }
    }

    /// For an item that is admitted now.
    pub fn for_admission(tier: usize, transit: &Transit, demand: Demand) -> Self {
        Reclaim { tier, evictable_bytes: transit.evictable_bytes_for_admission(demand) }
    }

    /// Brings the pages of an item nearer that is admitted to a tier, one at least; `false`: nothing can be emptied for it.
    ///
    /// A tier that shares its memory with metadata has more pages than it may use, so some lie free while it is full. The
    /// coldest run is then one of which a part is free already, and emptying the rest gives back too few: others go for
    /// those that still lack, wherever they lie.
    pub fn for_item(tier: usize, pages: u32, transit: &mut Transit, context: &mut Context<'_>) -> bool {
        let supply = transit.residents.levels[tier].slots.supply_mut();
        if pages > 1 && !supply.has_pages_in_row(pages) {
            return Reclaim::for_admission(tier, transit, context.demand).pages(pages, transit, context);
        }
        let short = supply.pages_short(pages).clamp(1, PAGES_AT_ONCE);
        let mut reclaim = || Reclaim::for_admission(tier, transit, context.demand).pages(1, transit, context);
        (0..short).take_while(|_| reclaim()).count() > 0
    }

    /// Empties the coldest `pages` pages in a row: their items move within their class where it has free slots elsewhere,
    /// else down, else out. `false`: no such pages can be emptied.
    ///
    /// The pages are free when the moves that this opens are done.
    pub fn pages(self, pages: u32, transit: &mut Transit, context: &mut Context<'_>) -> bool {
        if pages == 1 && transit.residents.levels[self.tier].slots.close_empty_page() {
            return true;
        }
        let window = if pages == 1 {
            let page = self.coldest_page(&mut transit.residents, context);
            // Something on the page under each class's coldest item must stay: any other page.
            page.or_else(|| {
                let any = (self.evictable_bytes == u64::MAX).then_some(());
                any.and_then(|()| self.coldest_window(1, &transit.residents, context))
            })
        } else {
            self.coldest_window(pages, &transit.residents, context)
        };
        let Some(window) = window else { return false };
        // No page of the window may take in what leaves another.
        window.clone().for_each(|page| transit.residents.levels[self.tier].slots.drain(page));
        let emptied = window.clone().filter(|&page| self.empty_page(page, transit, context));
        emptied.count() == window.len()
    }

    /// Empties the last page that lies behind the tier's end, whoever is in the way; `false`: there is none, or it cannot be
    /// emptied now.
    #[inline]
    pub fn behind_end(self, transit: &mut Transit, context: &mut Context<'_>) -> bool {
        let slots = &mut transit.residents.levels[self.tier].slots;
        let Some(page) = slots.used_behind_end() else { return false };
        let context = &mut context.forced();
        let can = self.can_empty(page, &(page..page + 1), &transit.residents, context.demand);
        if can {
            transit.residents.levels[self.tier].slots.drain(page);
            self.empty_page(page, transit, context);
        }
        can
    }

    /// The page under the coldest item whose page can be emptied.
    fn coldest_page(self, residents: &mut Residents, context: &mut Context<'_>) -> Option<Range<u32>> {
        let donors = residents.donors(self.tier, context);
        let slots = &residents.levels[self.tier].slots;
        let mut pages = donors.into_iter().map(|(_, _, id)| {
            let page = slots.pages().run_head(residents.nodes.loc(id).unit / PAGE_UNITS);
            page..page + 1
        });
        pages.find(|page| {
            !slots.supply().is_held(page) && self.can_empty(page.start, page, residents, context.demand)
        })
    }

    /// Of windows spread over the tier, coldest first, the first one that can be emptied at once.
    fn coldest_window(self, pages: u32, residents: &Residents, context: &Context<'_>) -> Option<Range<u32>> {
        let slots = &residents.levels[self.tier].slots;
        let fits = |window: &Range<u32>| {
            if slots.supply().is_held(window) {
                // What becomes free there is kept for another.
                return false;
            }
            let head = |page: u32| slots.pages().run_head(page);
            let mut runs: Vec<_> = window.clone().map(head).collect();
            runs.dedup();
            let may_go = self.may_go(&runs, residents);
            // Each page is asked by itself; where nothing may be dropped they must not count on the same space.
            let taken = window.clone().filter(|&page| slots.pages().holders(page).next().is_some()).count();
            let mut heads = window.clone().map(|page| head(page).max(window.start));
            (may_go || taken <= 1)
                && heads.all(|head| self.can_empty(head, window, residents, context.demand))
        };
        // Where nothing may be dropped, or not all, one round is enough: others will lack space as well.
        let rounds = if self.evictable_bytes == u64::MAX { ROUNDS } else { 1 };
        let starts =
            (0..rounds).flat_map(|round| windows_by_age(self.tier, pages, round, residents, context.now));
        starts.map(|start| start..start + pages).find(fits)
    }

    /// The first page of the coldest of windows spread over a tier.
    pub fn coldest_start(tier: usize, pages: u32, residents: &Residents, now: Now) -> Option<u32> {
        windows_by_age(tier, pages, 0, residents, now).first().copied()
    }

    /// Whether all items of these pages and runs may be dropped, should none of them find another place.
    fn may_go(self, pages: &[u32], residents: &Residents) -> bool {
        let slots = &residents.levels[self.tier].slots;
        let items = pages.iter().flat_map(|&page| slots.pages().items(page));
        self.evictable_bytes == u64::MAX
            || self.evictable_bytes > 0
                && items.map(|id| residents.place_bytes(id)).sum::<u64>() <= self.evictable_bytes
    }

    /// Whether every item of a page can leave it, and the window that the page is in.
    fn can_empty(self, page: u32, window: &Range<u32>, residents: &Residents, demand: Demand) -> bool {
        let slots = &residents.levels[self.tier].slots;
        let (mut items, mut protected) = (0u64, 0);
        for holder in slots.pages().holders(page) {
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
        if items == 0 || self.may_go(&[page], residents) {
            return true;
        }
        // Nothing may be dropped, so there must be a free slot for each. A run needs its pages in a row, which a count
        // of free pages does not promise: it stays.
        let Some(id) = slots.pages().items(page).next() else { return true };
        let class = slots.pages().class_at(residents.nodes.loc(id).unit);
        let beside = slots.slots_free_beside(class, window);
        let below = residents.levels.get(self.tier + 1).map_or(0, |level| level.slots.class_space(class).0);
        class != slots.runs() && beside + below >= items
    }

    /// At most so many of a page's items find a slot of their class on others, free or given up for them. Runs stay where they
    /// are.
    fn slots_elsewhere(self, page: u32, items: u32, residents: &Residents) -> u32 {
        let slots = &residents.levels[self.tier].slots;
        let class = slots.pages().class_at(page * PAGE_UNITS);
        if class == slots.runs() {
            return 0;
        }
        slots.by_class().slots_free(class) + slots.by_class().used(class).saturating_sub(items)
    }

    /// Empties a page that takes nothing in any more. `false`: an item that may not go for another tenant finds no other place, so
    /// the page stays.
    fn empty_page(self, page: u32, transit: &mut Transit, context: &mut Context<'_>) -> bool {
        let items: Vec<_> = transit.residents.levels[self.tier].slots.pages().items(page).collect();
        for id in items {
            if !transit.residents.nodes.may_leave(id) {
                // A run that covers several pages of the window was met before; another item has gone for one that stays.
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
            transit.evict(id, context);
        }
        true
    }
}

/// Windows spread over the tier by their first pages, in each round others; first the one whose pages' first items are
/// the oldest in sum.
fn windows_by_age(tier: usize, pages: u32, round: u32, residents: &Residents, now: Now) -> Vec<u32> {
    let slots = &residents.levels[tier].slots;
    let Some(starts) = (slots.supply().limit() + 1).checked_sub(pages) else { return Vec::new() };
    let count = WINDOWS.min(starts);
    let parts = u64::from(count * ROUNDS);
    let start = |window: u32| {
        slots.pages().run_head((u64::from(window * ROUNDS + round) * u64::from(starts) / parts) as u32)
    };
    // One item speaks for its page here, and some pages for a large window; whether all can leave is asked later.
    let coldness = |page: u32| match slots.pages().holders(page).next() {
        Some(Holder::Item(id)) if !residents.nodes.get(id).is_free() => {
            u64::from(residents.nodes.age(id, now))
        }
        Some(_) => 0,
        None => u64::from(u32::MAX),
    };
    let apart = pages.div_ceil(PAGES_ASKED) as usize;
    let coldness = |start: u32| (start..start + pages).step_by(apart).map(coldness).sum::<u64>();
    let mut windows: Vec<_> = (0..count).map(|window| (coldness(start(window)), start(window))).collect();
    windows.sort_by_key(|&(coldness, start)| (std::cmp::Reverse(coldness), start));
    windows.into_iter().map(|(_, start)| start).collect()
}
