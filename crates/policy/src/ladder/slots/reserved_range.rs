//! Reserved range: a row of granules of a tier that is held for one large item. Pages and granules that become free there, and
//! elsewhere on its first and last page, are given to no other.

use std::ops::Range;

use super::pages::{Pages, granules_on, pages_of};

/// The row, and how many of its pages are free.
#[derive(Clone, Debug, Default)]
pub(in crate::ladder) struct Held {
    granules: Range<u32>,
    free: u32,
}

impl Held {
    /// A row of which nothing is known to be free.
    pub(super) fn of(granules: Range<u32>) -> Self {
        Held { granules, free: 0 }
    }

    /// The row.
    pub fn granules(&self) -> Range<u32> {
        self.granules.clone()
    }

    /// The pages that it lies on.
    pub(super) fn pages(&self) -> Range<u32> {
        pages_of(&self.granules)
    }

    /// Whether the page is held; it is free from now on.
    pub(super) fn keeps(&mut self, page: u32) -> bool {
        let is_held = self.pages().contains(&page);
        self.free += u32::from(is_held);
        debug_assert!(self.free as usize <= self.pages().len(), "a page of the row becomes free once");
        is_held
    }

    /// Free pages of the row, which are not given out.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// Whether any of these pages is held.
    pub fn overlaps(&self, pages: &Range<u32>) -> bool {
        pages.start < self.pages().end && self.pages().start < pages.end
    }

    /// Whether there is a row and nothing lies in it.
    pub fn is_free(&self, pages: &Pages) -> bool {
        let is_free = |at| granules_on(at, &self.granules) & !pages.free_granules(at) == 0;
        !self.granules.is_empty() && self.pages().all(is_free)
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::Page;
    use super::*;
    use crate::Id;
    use crate::ladder::classes::SizeClasses;
    use std::sync::Arc;

    #[test]
    fn a_row_is_free_when_nothing_lies_in_it_whatever_lies_beside_it() {
        let classes = Arc::new(SizeClasses::geometric(2.0));
        let mut pages = Pages::new(classes.clone());
        // The end of one run and the beginning of another on the row's first and last page.
        (0..4).for_each(|at| pages.open(at, Page::of_runs(classes.runs())));
        pages.begin_run(0..20, Id(1));
        pages.begin_run(40..60, Id(2));
        let mut held = Held::of(20..40);
        assert_eq!((held.pages(), held.free()), (1..3, 0));
        assert!(
            held.is_free(&pages) && !Held::of(19..40).is_free(&pages) && !Held::of(20..41).is_free(&pages)
        );
        pages.end_run(2);
        assert!(Held::of(20..41).is_free(&pages));
        pages.close(2);
        assert!(held.keeps(2) && !held.keeps(3) && held.free() == 1);
        assert!(
            held.overlaps(&(0..2))
                && held.overlaps(&(2..9))
                && !held.overlaps(&(0..1))
                && !held.overlaps(&(3..9))
        );
        let none = Held::default();
        assert!(!none.is_free(&pages) && !none.overlaps(&(0..9)));
    }
}
