//! Touched pages: pages of a tier that have memory, because they were written or because their memory was taken ahead. It is
//! given back where the tier may not use it any more.

use std::ops::Range;

use super::pages::Pages;
use super::prefault::Ahead;
use super::supply::Supply;
use crate::ladder::page_set::PageSet;

/// Pages that were written, or had their memory taken for it, since they were last given back to the system.
#[derive(Clone, Debug)]
pub(in crate::ladder) struct Touched {
    pages: PageSet,
    /// The memory that is taken before it is written.
    ahead: Ahead,
}

impl Touched {
    /// No touched page among `pages_total`, and nothing is taken ahead.
    pub(super) fn new(pages_total: u32) -> Self {
        Touched { pages: PageSet::empty(pages_total), ahead: Ahead::default() }
    }

    /// All pages are free again; pages with memory keep it.
    pub(super) fn clear(&mut self) {
        self.ahead = Ahead::of(self.ahead.distance_pages());
    }

    /// A free page is given out.
    pub(super) fn note_opened(&mut self, at: u32) {
        self.ahead.note_given(at, self.pages.contains(at));
        self.pages.insert(at);
    }

    /// Changes how many free pages are to have their memory before they are given out.
    pub fn set_distance(&mut self, distance_pages: u32, pages: &Pages) {
        let is_new = pages.get(0).is_none();
        if is_new {
            self.ahead = Ahead::of(distance_pages);
        }
        self.ahead.set_distance(distance_pages);
    }

    /// Free pages in a row whose memory is to be taken now; they count as written.
    #[inline]
    pub fn take_ahead(&mut self, supply: &Supply) -> Option<Range<u32>> {
        self.ahead.take(supply.end(), supply.free_pages(), &mut self.pages, supply.limit())
    }

    /// Whether memory is held that may be given back: behind the end, or more of it than may be used.
    #[inline]
    pub fn has_surplus(&self, supply: &Supply) -> bool {
        self.pages.len() > supply.limit() || self.pages.last().is_some_and(|page| page >= supply.end())
    }

    /// A free page that was written and is not to be used, to be given back to the system. Asked in every step, so it costs
    /// nothing while there is none.
    #[inline]
    pub fn take_surplus(&mut self, supply: &Supply, pages: &Pages) -> Option<u32> {
        if !self.has_surplus(supply) {
            return None;
        }
        let behind = self.pages.last().filter(|&page| page >= supply.end() && pages.is_free(page));
        // Used pages were touched: where all touched pages are used, there is no free one to look for.
        let is_above = self.pages.len() > supply.limit().max(supply.used());
        let above = || is_above.then(|| self.pages.last_common(supply.free_pages())).flatten();
        let page = behind.or_else(above)?;
        self.pages.remove(page);
        self.pages.trim();
        Some(page)
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.pages.bytes()
    }

    /// Pages that were written, or had their memory taken.
    #[cfg(test)]
    pub(super) fn pages(&self) -> &PageSet {
        &self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::Page;
    use super::*;
    use crate::ladder::classes::{Class, SizeClasses};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    const PAGES: u32 = 40;

    proptest! {
        /// Over any sequence of pages given out and given back, and with any limit and end: the pages held equal a plain set. A
        /// page that is given back is the last free one behind the end, or the last one that may be given out where more is held
        /// than may be used.
        #[test]
        fn gives_back_what_a_set_of_pages_says(ops in prop::collection::vec((0u8..8, 0u32..PAGES + 1), 1..200)) {
            let classes = Arc::new(SizeClasses::geometric(2.0));
            let (mut supply, mut pages) = (Supply::new(PAGES), Pages::new(classes.clone()));
            let mut touched = Touched::new(PAGES);
            let (mut used, mut held) = (BTreeSet::new(), BTreeSet::new());
            for (what, page) in ops {
                match what {
                    0..3 => if let Some(first) = supply.first_page() {
                        pages.open(first, Page::of_slots(Class(0), 1));
                        supply.note_opened(first);
                        touched.note_opened(first);
                        used.insert(first);
                        held.insert(first);
                    }
                    3 => if let Some(&page) = used.range(page..).next() {
                        used.remove(&page);
                        pages.close(page);
                        supply.note_closed(page);
                    }
                    4 => supply.set_limit(page),
                    5 => supply.set_end(page, |page| pages.free_granules(page)),
                    _ => {
                        let (end, limit) = (supply.end(), supply.limit());
                        let last = held.last().copied();
                        let behind = last.filter(|page| *page >= end && !used.contains(page));
                        let free = held.iter().rev().find(|page| **page < end && !used.contains(page)).copied();
                        let expected = behind.or(free.filter(|_| held.len() > limit as usize));
                        prop_assert_eq!(touched.take_surplus(&supply, &pages), expected);
                        expected.into_iter().for_each(|page| _ = held.remove(&page));
                    }
                }
                let beyond = held.last().is_some_and(|page| *page >= supply.end());
                prop_assert_eq!(touched.has_surplus(&supply), beyond || held.len() > supply.limit() as usize);
                prop_assert_eq!((0..PAGES).filter(|&page| touched.pages().contains(page)).collect::<BTreeSet<_>>(), held.clone());
            }
        }
    }

    #[test]
    fn a_tier_without_a_page_looks_ahead_from_its_start() {
        let classes = Arc::new(SizeClasses::geometric(2.0));
        let (mut pages, mut supply) = (Pages::new(classes.clone()), Supply::new(1000));
        let mut touched = Touched::new(1000);
        assert_eq!(touched.take_ahead(&supply), None, "nothing is taken ahead unless that is asked for");
        touched.set_distance(40, &pages);
        assert_eq!(
            touched.take_ahead(&supply),
            Some(0..32),
            "one piece, as it is not known yet whether anything comes"
        );
        pages.open(0, Page::of_slots(Class(0), 1));
        supply.note_opened(0);
        touched.note_opened(0);
        touched.set_distance(60, &pages);
        assert_eq!(
            touched.take_ahead(&supply),
            Some(32..41),
            "behind what was given out; the distance counts from then"
        );
        supply.note_closed(0);
        touched.clear();
        assert_eq!((touched.take_ahead(&supply), touched.pages().len()), (None, 41), "what it has it keeps");
        supply.note_opened(32);
        touched.note_opened(32);
        assert_eq!(touched.take_ahead(&supply), Some(41..93), "as far ahead as before");
    }
}
