//! Supply of pages: how many of a tier may be given out, up to where, and which are kept for a large item.

use std::ops::Range;

use super::free_granules::FreeGranules;
use super::pages::{Pages, granules_on, pages_of};
use super::reserved_range::Held;
use crate::ladder::classes::PAGE_GRANULES;
use crate::ladder::page_set::PageSet;

/// The free pages of a tier, and how many of them may be used.
#[derive(Clone, Debug)]
pub(in crate::ladder) struct Supply {
    /// Pages that may be given out, the limit permitting.
    free: PageSet,
    /// Granules that may be given to runs: those of free pages, and the rest of pages of runs.
    granules: FreeGranules,
    /// Granules that are kept for a large item.
    held: Held,
    /// Pages from this one on are not given out.
    end: u32,
    limit: u32,
    used: u32,
}

impl Supply {
    /// `pages_total` pages, all free.
    pub(super) fn new(pages_total: u32) -> Self {
        let mut granules = FreeGranules::none(pages_total);
        (0..pages_total).for_each(|page| granules.set(page, u16::MAX));
        Supply {
            free: PageSet::full(pages_total),
            granules,
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
        self.set_end(end, |_| u16::MAX);
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
    ///
    /// `free` tells the granules of a page that are free: [`Pages::free_granules`].
    pub fn set_end(&mut self, end: u32, free: impl Fn(u32) -> u16) {
        let (before, end) = (self.end, end.min(self.pages_total()));
        self.end = end;
        for page in end..before {
            self.free.remove(page);
            self.granules.set(page, 0);
        }
        for page in before..end {
            self.set_free(page, free(page));
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

    /// The lowest page that can be given out.
    pub fn first_page(&mut self) -> Option<u32> {
        if self.free() == 0 { None } else { self.free.first() }
    }

    /// The first of the lowest granules in a row that can be given out.
    pub fn first_row(&mut self, granules: u32) -> Option<u32> {
        let first = self.granules.first_row(granules)?;
        (self.pages_opened(&(first..first + granules)) <= self.free()).then_some(first)
    }

    /// Whether so many granules in a row can be given out once a run on these pages is free.
    pub(super) fn is_room_after(&self, run: &Range<u32>, granules: u32, pages: &Pages) -> bool {
        let first = run.start - self.granules.free_before(run.start, granules);
        let row = first..first.saturating_add(granules);
        if row.end > run.end + self.granules.free_from(run.end, granules) {
            return false;
        }
        let closes = |at: &u32| pages.free_granules(*at) | granules_on(*at, run) == u16::MAX;
        let closed = pages_of(run).filter(closes).count() as u32;
        let opens = |at: &u32| self.free.contains(*at) || pages_of(run).contains(at) && closes(at);
        let opened = pages_of(&row).filter(opens).count() as u32;
        self.used + self.held.free() + opened <= self.limit + closed
    }

    /// Free granules before this one on the page before it.
    pub(super) fn free_before(&self, granule: u32) -> u32 {
        self.granules.free_before(granule, PAGE_GRANULES - 1)
    }

    /// Free pages among those that these free granules lie on.
    fn pages_opened(&self, granules: &Range<u32>) -> u32 {
        pages_of(granules).filter(|&page| self.free.contains(page)).count() as u32
    }

    /// Whether so many granules in a row are free, whether they may be given out or not.
    pub fn has_row(&mut self, granules: u32) -> bool {
        self.granules.first_row(granules).is_some()
    }

    /// How many pages have to become free before `pages` may be given out.
    pub fn pages_short(&self, pages: u32) -> u32 {
        (self.used + self.held.free() + pages).saturating_sub(self.limit)
    }

    /// Whether these granules are free and may be given out.
    pub(super) fn are_free(&self, granules: Range<u32>) -> bool {
        granules.end.div_ceil(PAGE_GRANULES) <= self.end
            && self.granules.free_from(granules.start, granules.len() as u32) == granules.len() as u32
            && self.pages_opened(&granules) + self.used <= self.limit
    }

    /// A free page is given out.
    pub(super) fn note_opened(&mut self, at: u32) {
        self.free.remove(at);
        self.granules.set(at, 0);
        self.used += 1;
    }

    /// Other granules of a page of runs are free now.
    pub(super) fn note_granules(&mut self, at: u32, pages: &Pages) {
        self.set_free(at, pages.free_granules(at));
    }

    /// A page is free again.
    pub(super) fn note_closed(&mut self, at: u32) {
        if !self.held.keeps(at) {
            self.set_free(at, u16::MAX);
        }
        self.used -= 1;
    }

    /// These granules of a page are free, and are given out unless they are held or lie behind the end.
    fn set_free(&mut self, page: u32, granules: u16) {
        if page < self.end && !self.held.overlaps(&(page..page + 1)) {
            self.granules.set(page, granules);
            if granules == u16::MAX {
                self.free.insert(page);
            }
        }
    }

    /// Keeps a row of granules for one large item: what becomes free on its pages is given to no other. There is one row at a
    /// time: the free pages of the one before can be given out again. An empty row keeps nothing.
    ///
    /// `free` tells the granules of a page that are free: [`Pages::free_granules`].
    pub fn hold(&mut self, granules: Range<u32>, free: impl Fn(u32) -> u16) {
        for page in std::mem::take(&mut self.held).pages() {
            self.set_free(page, free(page));
        }
        self.held = Held::of(granules);
        for page in self.held.pages() {
            self.granules.set(page, 0);
            if free(page) == u16::MAX {
                self.free.remove(page);
                self.held.keeps(page);
            }
        }
    }

    /// The row that is kept.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Whether the free pages of the row that is kept may be given out, as many as they are.
    pub fn held_fits(&self) -> bool {
        self.used + self.held.free() <= self.limit
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.free.bytes() + self.granules.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::classes::SizeClasses;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    const PAGES: u32 = 40;

    proptest! {
        /// Over any sequence of opens, closes and holds, and with any limit and end: the pages that may be given out equal those
        /// of plain sets. Rows of whole pages here; those of parts of pages are tested with all slots.
        #[test]
        fn equals_sets_of_pages(ops in prop::collection::vec((0u8..8, 0u32..PAGES + 1, 1u32..6), 1..200)) {
            let mut supply = Supply::new(PAGES);
            let pages = Pages::new(Arc::new(SizeClasses::geometric(2.0)));
            let (mut used, mut window, mut end, mut limit) = (BTreeSet::new(), 0..0, PAGES, PAGES);
            let granules_of = |pages: &Range<u32>| pages.start * PAGE_GRANULES..pages.end * PAGE_GRANULES;
            for (what, page, count) in ops {
                let free_granules = |used: &BTreeSet<u32>, page| if used.contains(&page) { 0 } else { u16::MAX };
                match what {
                    0..3 => if let Some(first) = supply.first_row(count * PAGE_GRANULES) {
                        let first = first / PAGE_GRANULES;
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
                        supply.set_end(page, |page| free_granules(&used, page));
                        (end, limit) = (page, page);
                    }
                    _ => {
                        // One that takes the place of another, or none.
                        window = if count < 5 && page + count <= end { page..page + count } else { 0..0 };
                        supply.hold(granules_of(&window), |page| free_granules(&used, page));
                    }
                }
                let free: BTreeSet<u32> =
                    (0..end).filter(|page| !used.contains(page) && !window.contains(page)).collect();
                let held = window.clone().filter(|page| !used.contains(page)).count() as u32;
                prop_assert_eq!((supply.used(), supply.limit()), (used.len() as u32, limit));
                prop_assert_eq!(supply.free(), limit.saturating_sub(used.len() as u32 + held));
                prop_assert_eq!(supply.held_fits(), used.len() as u32 + held <= limit);
                prop_assert_eq!(supply.first_page(), free.first().copied().filter(|_| supply.free() > 0));
                for count in 1..6 {
                    let row = (0..PAGES).find(|start| (*start..*start + count).all(|page| free.contains(&page)));
                    let row = row.map(|page| page * PAGE_GRANULES);
                    prop_assert_eq!(supply.has_row(count * PAGE_GRANULES), row.is_some());
                    prop_assert_eq!(supply.first_row(count * PAGE_GRANULES), row.filter(|_| count <= supply.free()));
                    prop_assert_eq!(
                        supply.pages_short(count),
                        (used.len() as u32 + held + count).saturating_sub(limit),
                    );
                    prop_assert_eq!(
                        supply.are_free(granules_of(&(page..page + count))),
                        (page..page + count).all(|page| free.contains(&page)) && used.len() as u32 + count <= limit,
                    );
                }
            }
            prop_assert!(!Held::default().is_free(&pages));
        }
    }
}
