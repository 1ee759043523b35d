//! Which pages of a tier may be given out: how many, up to where, and which are kept for a large item or had their memory taken
//! early.

use std::ops::Range;

use super::ahead::Ahead;
use super::held::Held;
use crate::ladder::page_set::PageSet;

/// The free pages of a tier and what may be used of them.
#[derive(Clone, Debug)]
pub(in crate::ladder) struct Supply {
    /// Pages that may be given out, the limit permitting.
    free: PageSet,
    /// Pages that are kept for a large item.
    held: Held,
    /// Pages that were written, or had their memory taken for it, since they were last given back to the system.
    touched: PageSet,
    /// Which memory is taken before it is written.
    ahead: Ahead,
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
            touched: PageSet::empty(pages_total),
            ahead: Ahead::default(),
            end: pages_total,
            limit: pages_total,
            used: 0,
        }
    }

    /// All pages are free again; what was touched is remembered.
    pub(super) fn clear(&mut self) {
        let Supply { end, limit, ref ahead, .. } = *self;
        let distance = ahead.distance_pages();
        let touched = std::mem::replace(&mut self.touched, PageSet::empty(0));
        *self = Supply { touched, ..Supply::new(self.pages_total()) };
        self.set_end(end, |_| true);
        self.limit = limit;
        self.ahead = Ahead::of(distance);
    }

    /// Pages that there is address space for.
    pub fn pages_total(&self) -> u32 {
        self.free.capacity()
    }

    /// How many pages may be given out.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Changes how many pages may be given out. What is above the limit stays until reclaimed.
    pub fn set_limit(&mut self, pages: u32) {
        self.limit = pages.min(self.end);
    }

    /// Where the pages end that may be given out.
    pub(super) fn end(&self) -> u32 {
        self.end
    }

    /// Changes that. What lies behind stays until it was emptied, so that a tier that was made smaller has the same order of pages as
    /// one that always was.
    pub(super) fn set_end(&mut self, end: u32, is_free: impl Fn(u32) -> bool) {
        let (before, end) = (self.end, end.min(self.pages_total()));
        self.end = end;
        for page in end..before {
            self.free.remove(page);
        }
        for page in before..end {
            if is_free(page) && !self.is_held(&(page..page + 1)) {
                self.free.insert(page);
            }
        }
        self.limit = self.limit.min(end);
    }

    /// Pages given out.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Pages that can still be given out.
    pub fn free(&self) -> u32 {
        self.limit.saturating_sub(self.used + self.held.free())
    }

    /// The lowest page that can be given out.
    pub(super) fn first(&mut self) -> Option<u32> {
        if self.free() == 0 { None } else { self.free.first() }
    }

    /// The lowest pages in a row that can be given out.
    pub(super) fn first_run(&mut self, pages: u32) -> Option<u32> {
        if pages > self.free() { None } else { self.free.first_run(pages) }
    }

    /// Whether so many pages in a row can be given out.
    pub fn has_run(&mut self, pages: u32) -> bool {
        self.first_run(pages).is_some()
    }

    /// Whether so many pages in a row are free, may they be given out or not.
    pub fn has_pages_in_row(&mut self, pages: u32) -> bool {
        self.free.first_run(pages).is_some()
    }

    /// How many pages have to become free before so many may be given out.
    pub fn pages_short(&self, pages: u32) -> u32 {
        (self.used + self.held.free() + pages).saturating_sub(self.limit)
    }

    /// Whether so many pages from `at` on are free and may be given out.
    pub(super) fn are_free(&self, at: u32, pages: u32) -> bool {
        let end = u64::from(at) + u64::from(pages);
        end <= u64::from(self.end)
            && self.used.saturating_add(pages) <= self.limit
            && (at..at + pages).all(|page| self.free.contains(page))
    }

    /// A free page is given out.
    pub(super) fn note_opened(&mut self, at: u32) {
        self.free.remove(at);
        self.ahead.note_given(at, self.touched.contains(at));
        self.touched.insert(at);
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

    /// Keeps a window of pages for one large item: what becomes free in it is given to nobody else. There is one at a time.
    pub(super) fn hold(&mut self, window: Range<u32>, is_free: impl Fn(u32) -> bool) {
        self.held = Held::of(window.clone());
        for page in window.filter(|&page| is_free(page)) {
            self.free.remove(page);
            self.held.keeps(page);
        }
    }

    /// Gives the window's free pages back to everybody.
    pub(super) fn unhold(&mut self, is_free: impl Fn(u32) -> bool) {
        for page in std::mem::take(&mut self.held).window().filter(|&page| is_free(page)) {
            self.set_free(page);
        }
    }

    /// Whether any of these pages is held.
    pub fn is_held(&self, pages: &Range<u32>) -> bool {
        self.held.overlaps(pages)
    }

    /// Whether a window is held and empty.
    pub fn is_held_free(&self) -> bool {
        self.held.is_free()
    }

    /// Whether the pages of the window may be given out, as many as they are.
    pub fn held_fits(&self) -> bool {
        self.used + self.held.window().len() as u32 <= self.limit
    }

    /// Whether memory is held that may be given back: behind the end, or more of it than may be used.
    #[inline]
    pub fn has_surplus(&self) -> bool {
        self.touched.len() > self.limit || self.touched.last().is_some_and(|page| page >= self.end)
    }

    /// A free page that was written and is not to be used, to be given back to the system. Asked in every step, so it costs
    /// nothing while there is none.
    #[inline]
    pub(super) fn take_surplus(&mut self, is_free: impl Fn(u32) -> bool) -> Option<u32> {
        if !self.has_surplus() {
            return None;
        }
        let behind = self.touched.last().filter(|&page| page >= self.end && is_free(page));
        // What is used was touched: where all that was touched is used, there is no free one to look for.
        let is_above = self.touched.len() > self.limit.max(self.used);
        let above = || is_above.then(|| self.touched.last_common(&self.free)).flatten();
        let page = behind.or_else(above)?;
        self.touched.remove(page);
        self.touched.trim();
        Some(page)
    }

    /// Changes how many free pages are to have their memory before they are given out; so far none was given out if `is_new`.
    pub(super) fn set_distance(&mut self, pages: u32, is_new: bool) {
        if is_new {
            self.ahead = Ahead::of(pages);
        }
        self.ahead.set_distance(pages);
    }

    /// Free pages in a row whose memory is to be taken now; they count as written.
    #[inline]
    pub fn take_ahead(&mut self) -> Option<Range<u32>> {
        let Supply { ahead, free, touched, end, limit, .. } = self;
        ahead.take(*end, free, touched, *limit)
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.free.bytes() + self.touched.bytes()
    }

    /// Pages that were written, or had their memory taken.
    #[cfg(test)]
    pub(super) fn touched(&self) -> &PageSet {
        &self.touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const PAGES: u32 = 40;

    proptest! {
        /// Whatever is opened, closed and held, and wherever limit and end go: what may be given out is what sets of pages say.
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
                        (end, limit) = (page, limit.min(page));
                    }
                    _ if window.is_empty() && page + count <= end => {
                        window = page..page + count;
                        supply.hold(window.clone(), |page| !used.contains(&page));
                    }
                    _ => {
                        window = 0..0;
                        supply.unhold(|page| !used.contains(&page));
                    }
                }
                let free: BTreeSet<u32> =
                    (0..end).filter(|page| !used.contains(page) && !window.contains(page)).collect();
                let held = window.clone().filter(|page| !used.contains(page)).count() as u32;
                prop_assert_eq!((supply.used(), supply.limit()), (used.len() as u32, limit));
                prop_assert_eq!(supply.free(), limit.saturating_sub(used.len() as u32 + held));
                prop_assert_eq!(supply.first(), free.first().copied().filter(|_| supply.free() > 0));
                prop_assert_eq!(supply.is_held_free(), !window.is_empty() && held as usize == window.len());
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
