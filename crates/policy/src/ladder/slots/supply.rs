//! Supply of pages: how many of a tier may be given out, up to where, and which are kept for a large item.

use std::ops::Range;

use super::reserved_range::Held;
use crate::ladder::page_set::PageSet;

/// The free pages of a tier, and how many of them may be used.
#[derive(Clone, Debug)]
pub(in crate::ladder) struct Supply {
    /// Pages that may be given out, the limit permitting.
    free: PageSet,
    /// Pages that are kept for a large item.
    held: Held,
    /// Pages from this one on are not given out.
    end: u32,
    limit: u32,
    used: u32,
}

impl Supply {
    /// `pages_total` pages, all free.
    pub(super) fn new(pages_total: u32) -> Self {
        Supply {
            free: PageSet::full(pages_total),
            held: Held::default(),
            end: pages_total,
            limit: pages_total,
            used: 0,
        }
    }

    /// All pages are free again, and none is kept.
    pub(super) fn clear(&mut self) {
        let Supply { end, limit, .. } = *self;
        *self = Supply::new(self.pages_total());
        self.set_end(end, |_| true);
        self.limit = limit;
    }

    /// Pages that there is address space for.
    pub fn pages_total(&self) -> u32 {
        self.free.capacity()
    }

    /// How many pages may be given out.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Changes how many pages may be given out. Pages above the limit stay until they are reclaimed.
    pub fn set_limit(&mut self, pages: u32) {
        self.limit = pages.min(self.end);
    }

    /// Where the pages end that may be given out.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Changes the end: all pages before it may be given out. Pages behind it stay until they were emptied, so that a tier that
    /// was made smaller has the same order of pages as one that always was.
    pub fn set_end(&mut self, end: u32, is_free: impl Fn(u32) -> bool) {
        let (before, end) = (self.end, end.min(self.pages_total()));
        self.end = end;
        for page in end..before {
            self.free.remove(page);
        }
        for page in before..end {
            if is_free(page) && !self.held.overlaps(&(page..page + 1)) {
                self.free.insert(page);
            }
        }
        self.limit = end;
    }

    /// Pages given out.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Pages that can still be given out.
    pub fn free(&self) -> u32 {
        self.limit.saturating_sub(self.used + self.held.free())
    }

    /// Free pages before the end that are not kept, whether they may be given out or not.
    pub(super) fn free_pages(&self) -> &PageSet {
        &self.free
    }

    /// The lowest pages in a row that can be given out.
    pub fn first_run(&mut self, pages: u32) -> Option<u32> {
        if pages > self.free() { None } else { self.free.first_run(pages) }
    }

    /// Whether `pages` pages in a row are free, whether they may be given out or not.
    pub fn has_pages_in_row(&mut self, pages: u32) -> bool {
        self.free.first_run(pages).is_some()
    }

    /// How many pages have to become free before `pages` may be given out.
    pub fn pages_short(&self, pages: u32) -> u32 {
        (self.used + self.held.free() + pages).saturating_sub(self.limit)
    }

    /// Whether `pages` pages from `at` on are free and may be given out.
    pub(super) fn are_free(&self, at: u32, pages: u32) -> bool {
        let end = u64::from(at) + u64::from(pages);
        end <= u64::from(self.end)
            && self.used.saturating_add(pages) <= self.limit
            && (at..at + pages).all(|page| self.free.contains(page))
    }

    /// A free page is given out.
    pub(super) fn note_opened(&mut self, at: u32) {
        self.free.remove(at);
        self.used += 1;
    }

    /// A page is free again.
    pub(super) fn note_closed(&mut self, at: u32) {
        if !self.held.keeps(at) {
            self.set_free(at);
        }
        self.used -= 1;
    }

    fn set_free(&mut self, page: u32) {
        if page < self.end {
            self.free.insert(page);
        }
    }

    /// Keeps a window of pages for one large item: pages that become free in it are given to no other. There is one window at a
    /// time: the free pages of the one before can be given out again. An empty window keeps nothing.
    pub fn hold(&mut self, window: Range<u32>, is_free: impl Fn(u32) -> bool) {
        for page in std::mem::take(&mut self.held).window().filter(|&page| is_free(page)) {
            self.set_free(page);
        }
        self.held = Held::of(window.clone());
        for page in window.filter(|&page| is_free(page)) {
            self.free.remove(page);
            self.held.keeps(page);
        }
    }

    /// The window.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Whether the pages of the window may be given out, as many as they are.
    pub fn held_fits(&self) -> bool {
        self.used + self.held.window().len() as u32 <= self.limit
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.free.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const PAGES: u32 = 40;

    proptest! {
        /// Over any sequence of opens, closes and holds, and with any limit and end: the pages that may be given out equal those
        /// of plain sets.
        #[test]
        fn equals_sets_of_pages(ops in prop::collection::vec((0u8..8, 0u32..PAGES + 1, 1u32..6), 1..200)) {
            let mut supply = Supply::new(PAGES);
            let (mut used, mut window, mut end, mut limit) = (BTreeSet::new(), 0..0, PAGES, PAGES);
            for (what, page, count) in ops {
                match what {
                    0..3 => if let Some(first) = supply.first_run(count) {
                        for page in first..first + count {
                            supply.note_opened(page);
                            used.insert(page);
                        }
                    }
                    3 | 4 => if let Some(&page) = used.range(page..).next() {
                        used.remove(&page);
                        supply.note_closed(page);
                    }
                    5 => {
                        supply.set_limit(page);
                        limit = page.min(end);
                    }
                    6 => {
                        supply.set_end(page, |page| !used.contains(&page));
                        (end, limit) = (page, page);
                    }
                    _ => {
                        // One that takes the place of another, or none.
                        window = if count < 5 && page + count <= end { page..page + count } else { 0..0 };
                        supply.hold(window.clone(), |page| !used.contains(&page));
                    }
                }
                let free: BTreeSet<u32> =
                    (0..end).filter(|page| !used.contains(page) && !window.contains(page)).collect();
                let held = window.clone().filter(|page| !used.contains(page)).count() as u32;
                prop_assert_eq!((supply.used(), supply.limit()), (used.len() as u32, limit));
                prop_assert_eq!(supply.free(), limit.saturating_sub(used.len() as u32 + held));
                prop_assert_eq!(supply.held().is_free(), !window.is_empty() && held as usize == window.len());
                for count in 1..6 {
                    let run = (0..PAGES).find(|start| (*start..start + count).all(|page| free.contains(&page)));
                    prop_assert_eq!(supply.has_pages_in_row(count), run.is_some());
                    prop_assert_eq!(supply.first_run(count), run.filter(|_| count <= supply.free()));
                    prop_assert_eq!(
                        supply.pages_short(count),
                        (used.len() as u32 + held + count).saturating_sub(limit),
                    );
                    prop_assert_eq!(
                        supply.are_free(page, count),
                        (page..page + count).all(|page| free.contains(&page)) && used.len() as u32 + count <= limit,
                    );
                }
            }
        }
    }
}
