//! Prefaulting: memory for pages is taken before it is needed.
//!
//! The first write to a page waits for the system to find and clear memory for it, a huge page at a time, and no request is
//! served meanwhile. So the driver is told which pages come next, and has their memory taken by a thread that may wait.
//!
//! Nothing here decides about items: a page whose memory was taken early counts as written, so it is given back like any other
//! when the tier may hold less, and no more is taken than may be used.

use std::ops::Range;

use crate::ladder::PAGE_BYTES;
use crate::ladder::page_set::PageSet;

/// Free pages are searched once for this many pages given out, a huge page of most processors, and never for less.
const PIECE_PAGES: u32 = (2 << 20) / PAGE_BYTES as u32;
/// At most this part of a tier is taken ahead.
const TIER_PARTS: u64 = 16;
/// Where most pages are in use the next free ones lie far away: the search covers this many times the distance.
const LOOKED_OVER: u32 = 4;

/// Pages that are still to be searched.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead {
    /// Free pages that are to have their memory before they are given out; 0: none.
    distance_pages: u32,
    next: u32,
    until: u32,
    free_left: u32,
}

impl Ahead {
    /// From the start of a tier. It is not known yet whether there will be items, so it is one piece.
    pub fn of(distance_pages: u32) -> Self {
        let piece = distance_pages.min(PIECE_PAGES);
        Ahead { distance_pages, next: 0, until: piece, free_left: piece }
    }

    /// A page is given out; the next ones follow behind it, because the lowest free page is given out first.
    #[inline]
    pub fn note_given(&mut self, page: u32, was_touched: bool) {
        if !was_touched || page.is_multiple_of(PIECE_PAGES) {
            self.next = page + 1;
            self.until = self.next.saturating_add(self.distance_pages.saturating_mul(LOOKED_OVER));
            self.free_left = self.distance_pages;
        }
    }

    /// Changes how many free pages are to have their memory before they are given out.
    pub fn set_distance(&mut self, pages: u32) {
        self.distance_pages = pages;
    }

    /// How many that are.
    pub fn distance_pages(&self) -> u32 {
        self.distance_pages
    }

    /// Pages in a row before `end`, free and not touched, whose memory is to be taken now. They count as touched from now on;
    /// `limit` pages may be touched at most.
    pub fn take(
        &mut self,
        end: u32,
        free: &PageSet,
        touched: &mut PageSet,
        limit: u32,
    ) -> Option<Range<u32>> {
        let mut first = None;
        while self.free_left > 0 && self.next < self.until.min(end) {
            let page = self.next;
            let is_free = free.contains(page);
            let is_new = is_free && !touched.contains(page);
            if is_new && touched.len() >= limit {
                self.free_left = 0;
                break;
            }
            if !is_new && first.is_some() {
                break;
            }
            if is_new {
                first.get_or_insert(page);
                touched.insert(page);
            }
            self.next += 1;
            self.free_left -= u32::from(is_free);
        }
        first.map(|first| first..self.next)
    }
}

/// How many pages ahead a tier takes the memory of.
pub(in crate::ladder) fn distance_pages(ahead_bytes: u64, capacity_bytes: u64) -> u32 {
    let pages = (ahead_bytes.min(capacity_bytes / TIER_PARTS) / PAGE_BYTES) as u32;
    if pages < PIECE_PAGES { 0 } else { pages }
}

#[cfg(test)]
mod tests {
    use super::super::Slots;
    use super::*;
    use crate::Id;
    use crate::ladder::classes::{Fit, PAGE_GRANULES, PAGE_UNITS, SizeClasses};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    const ONE_PAGE: Fit = Fit::Run(PAGE_GRANULES);

    fn slots(pages: u32, distance: u32) -> Slots {
        let mut slots = Slots::new(Arc::new(SizeClasses::geometric(1.3)), pages);
        let (touched, _, pages) = slots.touched_mut();
        touched.set_distance(distance, pages);
        slots
    }

    fn take_ahead(slots: &mut Slots) -> Option<Range<u32>> {
        let (touched, supply, _) = slots.touched_mut();
        touched.take_ahead(supply)
    }

    fn take_surplus(slots: &mut Slots) -> Option<u32> {
        let (touched, supply, pages) = slots.touched_mut();
        touched.take_surplus(supply, pages)
    }

    #[test]
    fn whoever_fills_a_tier_finds_its_memory_there() {
        let mut slots = slots(1000, 40);
        let mut asked = BTreeSet::new();
        asked.extend(take_ahead(&mut slots).unwrap());
        assert_eq!(asked.len() as u32, PIECE_PAGES, "an empty tier holds little");
        for at in 0..1000u32 {
            let unit = slots.take(ONE_PAGE, Id(at)).unwrap();
            assert!(asked.contains(&(unit / PAGE_UNITS)), "page {}", unit / PAGE_UNITS);
            asked.extend(take_ahead(&mut slots).into_iter().flatten());
            assert!(asked.len() as u32 <= at + 1 + 40 + 1);
        }
        assert_eq!(asked.len(), 1000);
        // Reused pages were held all along.
        (0..500).for_each(|page| slots.release(page * PAGE_UNITS));
        (0..500).for_each(|at| assert!(slots.take(ONE_PAGE, Id(at)).is_some()));
        assert_eq!(take_ahead(&mut slots), None);
    }

    #[test]
    fn a_large_item_is_followed_by_what_comes_behind_it() {
        let mut slots = slots(1000, 64);
        take_ahead(&mut slots);
        slots.take(Fit::Run(100 * PAGE_GRANULES), Id(1)).unwrap();
        assert_eq!(take_ahead(&mut slots), Some(100..164));
        assert_eq!(take_ahead(&mut slots), None);
    }

    #[test]
    fn small_tiers_take_nothing_ahead() {
        const MIB: u64 = 1 << 20;
        assert_eq!(distance_pages(32 * MIB, 31 * MIB), 0);
        assert_eq!(distance_pages(32 * MIB, 32 * MIB), PIECE_PAGES);
        assert_eq!(distance_pages(32 * MIB, 1 << 40), 16 * PIECE_PAGES);
        assert_eq!(distance_pages(0, 1 << 40), 0);
        let mut slots = slots(100, 0);
        for id in 0..100 {
            slots.take(ONE_PAGE, Id(id)).unwrap();
            assert_eq!(take_ahead(&mut slots), None);
        }
    }

    proptest! {
        /// Over any sequence of takes and returns and any limits: pages taken ahead are free, new and within the limits, pages
        /// that count as written are those held, and the places given out are the same as without prefaulting.
        #[test]
        fn what_is_taken_ahead_changes_no_place(
            ops in prop::collection::vec((0u8..9, 0u64..300_000, any::<prop::sample::Index>()), 1..300),
            distance in 1u32..60,
        ) {
            const PAGES: u32 = 150;
            let (mut slots, mut without) = (slots(PAGES, distance), slots(PAGES, 0));
            let mut held = BTreeSet::new();
            let mut taken = BTreeMap::new();
            for (number, (what, bytes, pick)) in ops.into_iter().enumerate() {
                match what {
                    0..3 => {
                        let fit = slots.classes.fit(bytes);
                        let unit = slots.take(fit, Id(number as u32));
                        prop_assert_eq!(unit, without.take(fit, Id(number as u32)));
                        if let Some(unit) = unit {
                            let end = (unit + slots.classes.fit_units(fit)).div_ceil(PAGE_UNITS);
                            held.extend(unit / PAGE_UNITS..end);
                            taken.insert(unit, fit);
                        }
                    }
                    3 if !taken.is_empty() => {
                        let unit = *taken.keys().nth(pick.index(taken.len())).unwrap();
                        taken.remove(&unit);
                        slots.release(unit);
                        without.release(unit);
                    }
                    4 => {
                        let pages = pick.index(PAGES as usize) as u32;
                        slots.supply.set_limit(pages);
                        without.supply.set_limit(pages);
                    }
                    5 => {
                        let pages = pick.index(PAGES as usize + 1) as u32;
                        for slots in [&mut slots, &mut without] {
                            let (supply, all) = slots.supply_mut();
                            supply.set_end(pages, |page| all.free_granules(page));
                        }
                    }
                    6 => {
                        take_surplus(&mut without);
                        if let Some(page) = take_surplus(&mut slots) {
                            prop_assert!(held.remove(&page));
                        }
                    }
                    _ => {
                        for page in take_ahead(&mut slots).into_iter().flatten() {
                            prop_assert!(slots.pages().is_free(page) && page < slots.supply().end());
                            prop_assert!(held.insert(page), "page {} was held", page);
                            prop_assert!(held.len() as u32 <= slots.supply().limit());
                        }
                    }
                }
                let touched: BTreeSet<u32> = (0..PAGES).filter(|&page| slots.touched.pages().contains(page)).collect();
                prop_assert_eq!(&touched, &held);
                prop_assert_eq!(slots.supply().free(), without.supply().free());
            }
            taken.into_keys().for_each(|unit| slots.release(unit));
            while slots.close_empty_page() {}
            slots.supply.set_limit(0);
            while take_surplus(&mut slots).is_some() {}
            prop_assert_eq!(slots.touched.pages().len(), 0, "what is taken ahead is given back");
        }
    }
}
