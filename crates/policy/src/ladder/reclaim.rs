//! Taking pages back: a class that has no page can always get one.

use std::ops::Range;

use super::slots::Holder;
use super::{Act, Eviction, Ladder, MoveKind, Why};
use crate::{Id, Now};
use tiermem_base::Rng;

/// Places looked at for a run of pages.
const WINDOWS: u32 = 64;

impl Ladder {
    /// Empties the coldest `pages` pages in a row of a tier: their items move within their class where it has free
    /// slots elsewhere, else down, else out. `false`: no such pages can be emptied.
    ///
    /// The pages are free when the moves that this opens are done.
    pub(super) fn reclaim(
        &mut self,
        tier: usize,
        pages: u32,
        now: Now,
        rng: &mut Rng,
        acts: &mut Vec<Act>,
    ) -> bool {
        if pages == 1 && self.levels[tier].slots.close_empty_page() {
            return true;
        }
        let window = if pages == 1 {
            self.coldest_page(tier, now, rng)
        } else {
            self.coldest_window(tier, pages, now)
        };
        let Some((first, count)) = window else { return false };
        // No page of the window may take in what leaves another.
        for page in first..first + count {
            self.levels[tier].slots.drain(page);
        }
        for page in first..first + count {
            self.empty_page(tier, page, now, acts);
        }
        true
    }

    /// The page under the coldest item whose page can be emptied.
    fn coldest_page(&mut self, tier: usize, now: Now, rng: &mut Rng) -> Option<(u32, u32)> {
        let donors = self.donors(tier, now, rng);
        let slots = &self.levels[tier].slots;
        let page_of = |id: Id| slots.run_head((self.loc(id).byte_offset() / super::PAGE_BYTES) as u32);
        let mut pages = donors.into_iter().map(|(_, _, id)| page_of(id));
        pages.find(|&page| self.can_empty(tier, page, &(page..page + 1))).map(|page| (page, 1))
    }

    /// Among windows spread over the tier, the one whose pages' first items are the oldest in sum.
    fn coldest_window(&self, tier: usize, pages: u32, now: Now) -> Option<(u32, u32)> {
        let slots = &self.levels[tier].slots;
        let starts = slots.page_limit().checked_sub(pages)? + 1;
        let count = WINDOWS.min(starts);
        let start =
            |window: u32| slots.run_head((u64::from(window) * u64::from(starts) / u64::from(count)) as u32);
        // One item speaks for its page here; whether all can leave is asked of the best windows only.
        let coldness = |page: u32| match slots.holders(page).next() {
            Some(Holder::Item(id)) if !self.places.get(id).is_free() => u64::from(self.age(id, now)),
            Some(_) => 0,
            None => u64::from(u32::MAX),
        };
        let coldness = |start: u32| (start..start + pages).map(coldness).sum::<u64>();
        let mut windows: Vec<_> = (0..count).map(|window| (coldness(start(window)), start(window))).collect();
        windows.sort_by_key(|&(coldness, start)| (std::cmp::Reverse(coldness), start));
        let fits = |start: u32| {
            let window = start..start + pages;
            let heads = window.clone().map(|page| slots.run_head(page).max(start));
            // Each page is asked by itself; where nothing may be dropped they must not count on the same space.
            let taken = window.clone().filter(|&page| slots.holders(page).next().is_some()).count();
            (self.config.eviction == Eviction::AllItems || taken <= 1)
                && heads.into_iter().all(|head| self.can_empty(tier, head, &window))
        };
        windows.into_iter().map(|(_, start)| start).find(|&start| fits(start)).map(|start| (start, pages))
    }

    /// Whether every item of a page can leave it, and the window that the page is in.
    fn can_empty(&self, tier: usize, page: u32, window: &Range<u32>) -> bool {
        let slots = &self.levels[tier].slots;
        let mut items = 0;
        for holder in slots.holders(page) {
            let Holder::Item(id) = holder else { return false };
            let place = self.places.get(id);
            if place.is_moving() || place.is_pinned() {
                return false;
            }
            items += 1;
        }
        if self.config.eviction == Eviction::AllItems || items == 0 {
            return true;
        }
        // Nothing may be dropped, so there must be a free slot for each. A run needs its pages in a row, which a count
        // of free pages does not promise: it stays.
        let Some(Holder::Item(id)) = slots.holders(page).next() else { return true };
        let class = slots.class_at(self.loc(id).unit);
        let beside = slots.slots_free_beside(class, window);
        let below = self.levels.get(tier + 1).map_or(0, |level| level.slots.class_space(class).0);
        class != self.classes.runs() && beside + below >= items
    }

    fn empty_page(&mut self, tier: usize, page: u32, now: Now, acts: &mut Vec<Act>) {
        let holders: Vec<_> = self.levels[tier].slots.holders(page).collect();
        for holder in holders {
            let Holder::Item(id) = holder else { continue };
            if self.places.get(id).is_moving() {
                // A run that covers several pages of the window was met before.
                continue;
            }
            let moved = self.open_move(id, tier, MoveKind::Relocate, acts).is_some()
                || tier + 1 < self.levels.len()
                    && self.open_move(id, tier + 1, MoveKind::Demote, acts).is_some();
            if !moved {
                self.drop_item(id, Why::Evicted, now, acts);
            }
        }
    }
}
