//! Taking pages back: a class that has no page can always get one.

use std::ops::Range;

use super::classes::PAGE_UNITS;
use super::slots::Holder;
use super::{Context, Demand, Ladder, MoveKind};
use crate::{Id, Now};

/// Places looked at for a run of pages.
const WINDOWS: u32 = 64;
/// How often as many others are looked at where something on each of them must stay.
const ROUNDS: u32 = 4;
/// Pages taken back at once for one admission beside those that it lies on.
const PAGES_AT_ONCE: u32 = 4;
/// Items on a page that other tenants' items go for at once at most: all of it is done in one piece.
const PROTECTED_MAX: u32 = 256;
/// Items of a tenant that gives which go at most for one that stays.
const SLOT_TRIES: u32 = 8;
/// Pages of a window that are asked how cold they are.
const PAGES_ASKED: u32 = 16;

impl Ladder {
    /// Brings the pages of an item nearer, one at least; `false`: nothing can be emptied for it.
    ///
    /// A tier that shares its memory with metadata has more pages than it may use, so some lie free while it is full. The
    /// coldest run is then one of which a part is free already, and emptying the rest gives back too few: others go for
    /// those that still lack, wherever they lie.
    pub(super) fn reclaim_for(&mut self, tier: usize, pages: u32, context: &mut Context<'_>) -> bool {
        let slots = &mut self.levels[tier].slots;
        if pages > 1 && !slots.supply_mut().has_pages_in_row(pages) {
            return self.reclaim(tier, pages, self.evictable_bytes_for_admission(context.demand), context);
        }
        let short = slots.supply().pages_short(pages).clamp(1, PAGES_AT_ONCE);
        let mut reclaim =
            || self.reclaim(tier, 1, self.evictable_bytes_for_admission(context.demand), context);
        (0..short).take_while(|_| reclaim()).count() > 0
    }

    /// Empties the coldest `pages` pages in a row of a tier: their items move within their class where it has free
    /// slots elsewhere, else down, else out, of live items `evictable_bytes` at most. `false`: no such pages can be emptied.
    ///
    /// The pages are free when the moves that this opens are done.
    pub(super) fn reclaim(
        &mut self,
        tier: usize,
        pages: u32,
        evictable_bytes: u64,
        context: &mut Context<'_>,
    ) -> bool {
        if pages == 1 && self.levels[tier].slots.close_empty_page() {
            return true;
        }
        let window = if pages == 1 {
            let page = self.coldest_page(tier, evictable_bytes, context);
            // Something on the page under each class's coldest item must stay: any other page.
            page.or_else(|| {
                let any = (evictable_bytes == u64::MAX).then_some(());
                any.and_then(|()| self.coldest_window(tier, 1, evictable_bytes, context))
            })
        } else {
            self.coldest_window(tier, pages, evictable_bytes, context)
        };
        let Some((first, count)) = window else { return false };
        // No page of the window may take in what leaves another.
        for page in first..first + count {
            self.levels[tier].slots.drain(page);
        }
        let mut emptied = 0;
        for page in first..first + count {
            emptied += u32::from(self.empty_page(tier, page, context));
        }
        emptied == count
    }

    /// Empties the last page that lies behind the tier's end; `false`: there is none, or it cannot be emptied now.
    pub(super) fn empty_behind_end(
        &mut self,
        tier: usize,
        evictable_bytes: u64,
        context: &mut Context<'_>,
    ) -> bool {
        let Some(page) = self.levels[tier].slots.used_behind_end() else { return false };
        let context = &mut context.forced();
        let can = self.can_empty(tier, page, &(page..page + 1), evictable_bytes, context.demand);
        if can {
            self.levels[tier].slots.drain(page);
            self.empty_page(tier, page, context);
        }
        can
    }

    /// The page under the coldest item whose page can be emptied.
    fn coldest_page(
        &mut self,
        tier: usize,
        evictable_bytes: u64,
        context: &mut Context<'_>,
    ) -> Option<(u32, u32)> {
        let donors = self.donors(tier, context);
        let slots = &self.levels[tier].slots;
        let page_of =
            |id: Id| slots.pages().run_head((self.loc(id).byte_offset() / super::PAGE_BYTES) as u32);
        let mut pages = donors.into_iter().map(|(_, _, id)| page_of(id));
        pages
            .find(|&page| {
                !slots.supply().is_held(&(page..page + 1))
                    && self.can_empty(tier, page, &(page..page + 1), evictable_bytes, context.demand)
            })
            .map(|page| (page, 1))
    }

    /// Of windows spread over the tier, coldest first, the first one that can be emptied at once.
    fn coldest_window(
        &self,
        tier: usize,
        pages: u32,
        evictable_bytes: u64,
        context: &Context<'_>,
    ) -> Option<(u32, u32)> {
        let slots = &self.levels[tier].slots;
        let fits = |start: u32| {
            let window = start..start + pages;
            if slots.supply().is_held(&window) {
                // What becomes free there is kept for another.
                return false;
            }
            let heads = window.clone().map(|page| slots.pages().run_head(page).max(start));
            let mut runs: Vec<_> = window.clone().map(|page| slots.pages().run_head(page)).collect();
            runs.dedup();
            let may_go = self.may_go(tier, &runs, evictable_bytes);
            // Each page is asked by itself; where nothing may be dropped they must not count on the same space.
            let taken = window.clone().filter(|&page| slots.pages().holders(page).next().is_some()).count();
            (may_go || taken <= 1)
                && heads
                    .into_iter()
                    .all(|head| self.can_empty(tier, head, &window, evictable_bytes, context.demand))
        };
        // Where nothing may be dropped, or not all, one round is enough: others will lack space as well.
        let rounds = if evictable_bytes == u64::MAX { ROUNDS } else { 1 };
        let mut windows = (0..rounds).flat_map(|round| self.windows_by_age(tier, pages, round, context.now));
        windows.find(|&start| fits(start)).map(|start| (start, pages))
    }

    /// The coldest of windows spread over the tier.
    pub(super) fn coldest_start(&self, tier: usize, pages: u32, now: Now) -> Option<u32> {
        self.windows_by_age(tier, pages, 0, now).first().copied()
    }

    /// Windows spread over the tier by their first pages, in each round others; first the one whose pages' first items are
    /// the oldest in sum.
    fn windows_by_age(&self, tier: usize, pages: u32, round: u32, now: Now) -> Vec<u32> {
        let slots = &self.levels[tier].slots;
        let Some(starts) = (slots.supply().limit() + 1).checked_sub(pages) else { return Vec::new() };
        let count = WINDOWS.min(starts);
        let parts = u64::from(count * ROUNDS);
        let start = |window: u32| {
            slots.pages().run_head((u64::from(window * ROUNDS + round) * u64::from(starts) / parts) as u32)
        };
        // One item speaks for its page here, and some pages for a large window; whether all can leave is asked later.
        let coldness = |page: u32| match slots.pages().holders(page).next() {
            Some(Holder::Item(id)) if !self.places.get(id).is_free() => u64::from(self.age(id, now)),
            Some(_) => 0,
            None => u64::from(u32::MAX),
        };
        let apart = pages.div_ceil(PAGES_ASKED) as usize;
        let coldness = |start: u32| (start..start + pages).step_by(apart).map(coldness).sum::<u64>();
        let mut windows: Vec<_> = (0..count).map(|window| (coldness(start(window)), start(window))).collect();
        windows.sort_by_key(|&(coldness, start)| (std::cmp::Reverse(coldness), start));
        windows.into_iter().map(|(_, start)| start).collect()
    }

    /// Whether all items of these pages and runs may be dropped, should none of them find another place.
    fn may_go(&self, tier: usize, pages: &[u32], evictable_bytes: u64) -> bool {
        let slots = &self.levels[tier].slots;
        let bytes = |holder| if let Holder::Item(id) = holder { self.place_bytes(id) } else { 0 };
        let held = || pages.iter().flat_map(|&page| slots.pages().holders(page)).map(bytes).sum::<u64>();
        evictable_bytes == u64::MAX || evictable_bytes > 0 && held() <= evictable_bytes
    }

    /// Whether every item of a page can leave it, and the window that the page is in.
    fn can_empty(
        &self,
        tier: usize,
        page: u32,
        window: &Range<u32>,
        evictable_bytes: u64,
        demand: Demand,
    ) -> bool {
        let slots = &self.levels[tier].slots;
        let (mut items, mut protected) = (0u64, 0);
        for holder in slots.pages().holders(page) {
            let Holder::Item(id) = holder else { return false };
            let place = self.places.get(id);
            if place.is_moving() || place.is_pinned() {
                return false;
            }
            items += 1;
            protected += u32::from(self.is_protected(id, demand));
        }
        if protected > 0 && protected > self.slots_elsewhere(tier, page, items as u32).min(PROTECTED_MAX) {
            return false;
        }
        if items == 0 || self.may_go(tier, &[page], evictable_bytes) {
            return true;
        }
        // Nothing may be dropped, so there must be a free slot for each. A run needs its pages in a row, which a count
        // of free pages does not promise: it stays.
        let Some(Holder::Item(id)) = slots.pages().holders(page).next() else { return true };
        let class = slots.pages().class_at(self.loc(id).unit);
        let beside = slots.slots_free_beside(class, window);
        let below = self.levels.get(tier + 1).map_or(0, |level| level.slots.class_space(class).0);
        class != self.classes.runs() && beside + below >= items
    }

    /// At most so many of a page's items find a slot of their class on others, free or given up for them. Runs stay where they
    /// are.
    fn slots_elsewhere(&self, tier: usize, page: u32, items: u32) -> u32 {
        let slots = &self.levels[tier].slots;
        let class = slots.pages().class_at(page * PAGE_UNITS);
        if class == self.classes.runs() {
            return 0;
        }
        slots.by_class().slots_free(class) + slots.by_class().used(class).saturating_sub(items)
    }

    /// Empties a page that takes nothing in any more. `false`: an item that may not go for another tenant finds no other place, so
    /// the page stays.
    fn empty_page(&mut self, tier: usize, page: u32, context: &mut Context<'_>) -> bool {
        let holders: Vec<_> = self.levels[tier].slots.pages().holders(page).collect();
        for holder in holders {
            let Holder::Item(id) = holder else { continue };
            if !self.may_leave(id) {
                // A run that covers several pages of the window was met before; another item has gone for one that stays.
                continue;
            }
            let is_protected = self.is_protected(id, context.demand);
            let moved = self.open_move(id, tier, MoveKind::Relocate, context).is_some()
                || tier + 1 < self.levels.len()
                    && self.open_move(id, tier + 1, MoveKind::Demote, context).is_some()
                || is_protected && self.give_slot_to(id, context);
            if moved {
                continue;
            }
            if is_protected {
                self.levels[tier].slots.undrain(page);
                return false;
            }
            self.evict(id, context);
        }
        true
    }

    /// Drops an item of the tenant that is to give, and moves this one of another's to its slot.
    pub(super) fn give_slot_to(&mut self, id: Id, context: &mut Context<'_>) -> bool {
        let loc = self.loc(id);
        let tier = usize::from(loc.tier);
        let class = self.levels[tier].slots.pages().class_at(loc.unit);
        // Of what is drawn some lies on the page that is being emptied: it goes, but makes no room.
        for _ in 0..SLOT_TRIES {
            let budget = self.evictable_bytes_for_admission(context.demand);
            let may_go = |ladder: &Self, victim| victim != id && ladder.place_bytes(victim) <= budget;
            let victim = self.tenant_victim(tier, Some(class), context);
            let Some(victim) = victim.filter(|&victim| may_go(self, victim)) else { return false };
            self.evict(victim, context);
            if self.open_move(id, tier, MoveKind::Relocate, context).is_some() {
                return true;
            }
        }
        false
    }
}
