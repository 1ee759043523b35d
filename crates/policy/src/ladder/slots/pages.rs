//! Pages of a tier: the class of each, and the holder of each of its slots.
//!
//! A *run* is the place of a large item: granules in a row, on two pages or more. A page of runs can hold the end of one run and
//! the beginning of another, and as a run is longer than a page, that is all that it can hold:
//!
//! ```text
//!      page 7           page 8           page 9
//!   +----------------+----------------+----------------+
//!   |    [ run A . . | . . . ][ run B | . . . . . . ]  |
//!   +----------------+----------------+----------------+
//!        begins here   ends; B begins   ends; the rest is free for a third one
//! ```

use std::ops::Range;
use std::sync::Arc;

use super::page::{FREE, GHOST, Holder, NO_HEAD, Page, PageState, bits};
use crate::Id;
use crate::ladder::classes::{Class, Fit, GRANULE_UNITS, PAGE_GRANULES, PAGE_UNITS, SizeClasses};

/// Pages for which lists of them grow at least.
const PAGES_MORE: usize = 16;
/// Room for `missing` more, by an eighth at least: growth is charged to a tier, so it comes in small pieces.
pub(super) fn reserve_some<T>(list: &mut Vec<T>, missing: usize) {
    if list.capacity() - list.len() < missing {
        list.reserve_exact(missing.max(list.len() / 8 + PAGES_MORE));
    }
}

/// The use of a page of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ladder) struct PageUse {
    /// The class of its slots.
    pub class: Class,
    /// Slots that are taken.
    pub items: u32,
    /// Whether it is being emptied, and gives none.
    pub is_draining: bool,
}

/// Those of these granules that lie on a page, a bit for each.
pub(in crate::ladder) fn granules_on(at: u32, granules: &Range<u32>) -> u16 {
    let first = at * PAGE_GRANULES;
    let on = |granule: u32| granule.clamp(first, first + PAGE_GRANULES) - first;
    bits(on(granules.start)..on(granules.end))
}

/// All pages of a tier, and the items on them.
#[derive(Clone, Debug)]
pub(in crate::ladder) struct Pages {
    classes: Arc<SizeClasses>,
    /// As far as any was ever given out.
    pages: Vec<Page>,
    /// Of their tables.
    table_bytes: u64,
}

impl Pages {
    pub(super) fn new(classes: Arc<SizeClasses>) -> Self {
        Pages { classes, pages: Vec::new(), table_bytes: 0 }
    }

    /// Takes out all pages, to be freed later, and returns their bytes.
    pub(super) fn take_all(&mut self) -> (Vec<Page>, u64) {
        (std::mem::take(&mut self.pages), std::mem::take(&mut self.table_bytes))
    }

    /// A page that was given out once, or lies before one that was.
    pub(super) fn get(&self, at: u32) -> Option<&Page> {
        self.pages.get(at as usize)
    }

    /// A page, to change it.
    #[inline]
    pub(super) fn page(&mut self, at: u32) -> &mut Page {
        &mut self.pages[at as usize]
    }

    /// A free page becomes this.
    pub(super) fn open(&mut self, at: u32, page: Page) {
        if self.pages.len() <= at as usize {
            let missing = at as usize + 1 - self.pages.len();
            reserve_some(&mut self.pages, missing);
            self.pages.resize_with(at as usize + 1, Page::unused);
        }
        debug_assert_eq!(self.pages[at as usize].state, PageState::Free);
        self.table_bytes += page.bytes();
        self.pages[at as usize] = page;
    }

    /// A page is free.
    pub(super) fn close(&mut self, at: u32) {
        let page = std::mem::replace(&mut self.pages[at as usize], Page::unused());
        debug_assert_ne!(page.state, PageState::Free, "a page is closed once");
        debug_assert!(
            page.run_tail == 0 && !page.has_run_head(),
            "a page of runs is closed when no run lies on it"
        );
        self.table_bytes -= page.bytes();
    }

    /// Gives granules of pages of runs, free so far, to an item.
    pub(super) fn begin_run(&mut self, granules: Range<u32>, id: Id) {
        let head = granules.start / PAGE_GRANULES;
        let page = &mut self.pages[head as usize];
        debug_assert!(
            page.state == PageState::Runs && !page.has_run_head(),
            "a page has one beginning of a run at most"
        );
        page.run_head = (granules.start % PAGE_GRANULES) as u8;
        page.run_granules = granules.len() as u32;
        page.table = vec![id.0].into_boxed_slice();
        page.used = 1;
        self.table_bytes += page.bytes();
        for (at, tail) in tails(&granules) {
            let page = &mut self.pages[at as usize];
            debug_assert!(
                page.state == PageState::Runs && page.run_tail == 0,
                "a page has one end of a run at most"
            );
            (page.run_tail, page.run_back) = (tail, at - head);
        }
    }

    /// Takes the granules back of the run that begins on a page. They are returned.
    pub(super) fn end_run(&mut self, head: u32) -> Range<u32> {
        let granules = self.run(head);
        let page = &mut self.pages[head as usize];
        debug_assert!(page.has_run_head(), "a run ends once");
        self.table_bytes -= page.bytes();
        (page.run_head, page.run_granules, page.table, page.used) = (NO_HEAD, 0, Box::default(), 0);
        for (at, _) in tails(&granules) {
            let page = &mut self.pages[at as usize];
            (page.run_tail, page.run_back) = (0, 0);
        }
        granules
    }

    /// The granules of the run that begins on a page; none where no run does.
    pub fn run(&self, head: u32) -> Range<u32> {
        let page = &self.pages[head as usize];
        let first = head * PAGE_GRANULES + u32::from(page.run_head);
        first..first + page.run_granules
    }

    /// The granules of a page that may hold a run, a bit for each.
    pub fn free_granules(&self, at: u32) -> u16 {
        self.pages.get(at as usize).map_or(u16::MAX, Page::free_granules)
    }

    /// The page and the slot of a place, which begins there.
    pub(super) fn locate(&self, unit: u32) -> (u32, usize) {
        let at = unit / PAGE_UNITS;
        let page = &self.pages[at as usize];
        let slot = match page.state {
            PageState::Slots => (unit % PAGE_UNITS) / self.classes.slot_units(page.class),
            _ => 0,
        };
        (at, slot as usize)
    }

    /// The class of the item at `unit`.
    #[inline]
    pub fn class_at(&self, unit: u32) -> Class {
        self.pages[(unit / PAGE_UNITS) as usize].class
    }

    /// The size of the place of the item at `unit`.
    #[inline]
    pub fn fit_at(&self, unit: u32) -> Fit {
        let page = &self.pages[(unit / PAGE_UNITS) as usize];
        if page.state == PageState::Runs { Fit::Run(page.run_granules) } else { Fit::Slot(page.class) }
    }

    /// Bytes that the item at `unit` occupies.
    #[inline]
    pub fn bytes_at(&self, unit: u32) -> u64 {
        self.classes.fit_bytes(self.fit_at(unit))
    }

    /// Writes down the holder of a taken slot.
    pub fn set_holder(&mut self, unit: u32, holder: Holder) {
        let (at, slot) = self.locate(unit);
        self.pages[at as usize].table[slot] = match holder {
            Holder::Item(id) => id.0,
            Holder::Ghost => GHOST,
        };
    }

    /// The holder of the taken slot at `unit`.
    pub fn holder_at(&self, unit: u32) -> Holder {
        let (at, slot) = self.locate(unit);
        match self.pages[at as usize].table[slot] {
            GHOST => Holder::Ghost,
            id => Holder::Item(Id(id)),
        }
    }

    /// Everyone on a page, whether a place begins there or reaches into it.
    pub fn holders(&self, at: u32) -> impl Iterator<Item = Holder> + '_ {
        let page = self.pages.get(at as usize);
        let head = page.filter(|page| page.run_tail > 0).map(|page| at - page.run_back);
        let before = head.map_or(&[][..], |head| &self.pages[head as usize].table[..]);
        let here = page.map_or(&[][..], |page| match page.state {
            PageState::Slots => &page.table[..usize::from(page.fresh)],
            _ => &page.table[..],
        });
        let holder = |&cell: &u32| if cell == GHOST { Holder::Ghost } else { Holder::Item(Id(cell)) };
        before.iter().chain(here).filter(|&&cell| cell & FREE == 0).map(holder)
    }

    /// The runs that lie on a page of them, with the item of each.
    pub fn runs_on(&self, at: u32) -> impl Iterator<Item = (Range<u32>, Holder)> + '_ {
        let page = self.pages.get(at as usize).filter(|page| page.state == PageState::Runs);
        let before = page.filter(|page| page.run_tail > 0).map(|page| at - page.run_back);
        let here = page.filter(|page| page.has_run_head()).map(|_| at);
        before.into_iter().chain(here).map(|head| {
            let run = self.run(head);
            let holder = self.holder_at(run.start * GRANULE_UNITS);
            (run, holder)
        })
    }

    /// The live items among them.
    pub fn items(&self, at: u32) -> impl Iterator<Item = Id> + '_ {
        self.holders(at).filter_map(|holder| if let Holder::Item(id) = holder { Some(id) } else { None })
    }

    /// Whether nothing lies on a page.
    pub fn is_free(&self, at: u32) -> bool {
        self.pages.get(at as usize).is_none_or(|page| page.state == PageState::Free)
    }

    /// The use of a page of slots; `None` where it is free or belongs to a run.
    pub fn page_use(&self, at: u32) -> Option<PageUse> {
        let page = self.pages.get(at as usize).filter(|page| page.state == PageState::Slots)?;
        Some(PageUse { class: page.class, items: page.used(), is_draining: page.draining })
    }

    /// The last page in use from `end` on. Pages behind it are forgotten.
    #[inline]
    pub fn last_behind(&mut self, end: u32) -> Option<u32> {
        while self.pages.len() as u32 > end {
            let last = self.pages.len() as u32 - 1;
            if !self.is_free(last) {
                return Some(last);
            }
            self.pages.pop();
        }
        None
    }

    /// Whether something lies on a page from `end` on.
    pub fn is_used_behind(&self, end: u32) -> bool {
        (end..self.pages.len() as u32).any(|page| !self.is_free(page))
    }

    /// Bytes held, and by how many the lists of pages may grow at once.
    pub fn bytes(&self) -> (u64, u64) {
        let capacity = self.pages.capacity();
        let growth = (capacity / 8 + PAGES_MORE) * (size_of::<Page>() + size_of::<u32>());
        (self.table_bytes + (capacity * size_of::<Page>()) as u64, growth as u64)
    }
}

/// The pages that granules lie on.
pub(in crate::ladder) fn pages_of(granules: &Range<u32>) -> Range<u32> {
    granules.start / PAGE_GRANULES..granules.end.div_ceil(PAGE_GRANULES)
}

/// The pages that a run reaches into behind the one where it begins, and how many granules of each.
fn tails(granules: &Range<u32>) -> impl Iterator<Item = (u32, u8)> + use<> {
    let (head, end) = (granules.start / PAGE_GRANULES, granules.end);
    let pages = head + 1..end.div_ceil(PAGE_GRANULES);
    pages.map(move |at| (at, (end - at * PAGE_GRANULES).min(PAGE_GRANULES) as u8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PAGES: u32 = 16;

    /// A page of slots that is given out, as a list knows it.
    #[derive(Clone, Debug)]
    struct Known {
        class: Class,
        /// The holder of each slot that is taken.
        holders: BTreeMap<u32, Holder>,
        is_draining: bool,
    }

    /// Pages beside a list of all that are given out.
    struct Twins {
        classes: Arc<SizeClasses>,
        pages: Pages,
        known: BTreeMap<u32, Known>,
        /// Runs by their first granules: behind the last one, and the holder.
        runs: BTreeMap<u32, (u32, Holder)>,
    }

    impl Twins {
        fn new() -> Self {
            let classes = Arc::new(SizeClasses::geometric(2.0));
            Twins {
                pages: Pages::new(classes.clone()),
                classes,
                known: BTreeMap::new(),
                runs: BTreeMap::new(),
            }
        }

        /// The runs that have a granule on a page.
        fn runs_on(&self, at: u32) -> impl Iterator<Item = (Range<u32>, Holder)> + '_ {
            let page = at * PAGE_GRANULES..(at + 1) * PAGE_GRANULES;
            let all = self.runs.iter().map(|(&first, &(end, holder))| (first..end, holder));
            all.filter(move |(run, _)| run.start < page.end && page.start < run.end)
        }

        fn is_free(&self, at: u32) -> bool {
            !self.known.contains_key(&at) && self.runs_on(at).next().is_none()
        }

        fn are_free(&self, granules: &Range<u32>) -> bool {
            let mut pages = pages_of(granules);
            granules.end <= PAGES * PAGE_GRANULES
                && pages.all(|at| !self.known.contains_key(&at))
                && self.runs.iter().all(|(&first, &(end, _))| granules.end <= first || end <= granules.start)
        }

        /// Gives out a page of slots.
        fn open(&mut self, at: u32, class: Class) {
            self.pages.open(at, Page::of_slots(class, self.classes.slots_per_page(class)));
            self.known.insert(at, Known { class, holders: BTreeMap::new(), is_draining: false });
        }

        fn begin_run(&mut self, granules: Range<u32>, id: Id) {
            for at in pages_of(&granules) {
                if self.is_free(at) {
                    self.pages.open(at, Page::of_runs(self.classes.runs()));
                }
            }
            self.pages.begin_run(granules.clone(), id);
            self.runs.insert(granules.start, (granules.end, Holder::Item(id)));
        }

        fn end_run(&mut self, first: u32) {
            let (end, _) = self.runs.remove(&first).unwrap();
            assert_eq!(self.pages.end_run(first / PAGE_GRANULES), first..end);
            for at in pages_of(&(first..end)) {
                if self.is_free(at) {
                    self.pages.close(at);
                }
            }
        }

        /// Takes a slot for an item, and turns whether the page is being emptied.
        fn take(&mut self, at: u32, id: Id, turns: bool) {
            let of = self.known.get_mut(&at).unwrap();
            let slot = self.pages.page(at).take(id);
            assert!(of.holders.insert(slot, Holder::Item(id)).is_none(), "a slot is taken once");
            self.pages.page(at).draining ^= turns;
            of.is_draining ^= turns;
        }

        fn set_holder(&mut self, pick: usize, holder: Holder) {
            let mut units = self.units();
            if !units.is_empty() {
                let (unit, ..) = units.swap_remove(pick % units.len());
                self.pages.set_holder(unit, holder);
                let at = unit / PAGE_UNITS;
                match self.known.get_mut(&at) {
                    Some(of) => {
                        let slot = unit % PAGE_UNITS / self.classes.slot_units(of.class);
                        of.holders.insert(slot, holder);
                    }
                    None => self.runs.get_mut(&(unit / GRANULE_UNITS)).unwrap().1 = holder,
                }
            }
        }

        fn release(&mut self, at: u32, nth: usize) {
            let of = self.known.get_mut(&at).unwrap();
            let slot = *of.holders.keys().nth(nth % of.holders.len()).unwrap();
            let unit = at * PAGE_UNITS + slot * self.classes.slot_units(of.class);
            assert_eq!(self.pages.locate(unit), (at, slot as usize));
            self.pages.page(at).release(slot as usize);
            of.holders.remove(&slot);
        }

        /// All places that are taken: where, which fit, whose.
        fn units(&self) -> Vec<(u32, Fit, Holder)> {
            let of_slots = self.known.iter().flat_map(|(&at, of)| {
                let unit = move |slot: u32| at * PAGE_UNITS + slot * self.classes.slot_units(of.class);
                of.holders.iter().map(move |(&slot, &holder)| (unit(slot), Fit::Slot(of.class), holder))
            });
            let of_runs = self
                .runs
                .iter()
                .map(|(&first, &(end, holder))| (first * GRANULE_UNITS, Fit::Run(end - first), holder));
            of_slots.chain(of_runs).collect()
        }

        /// What each page is, and who lies on it.
        fn check_pages(&self) {
            for at in 0..PAGES {
                let of = self.known.get(&at);
                let runs: Vec<(Range<u32>, Holder)> = self.runs_on(at).collect();
                assert_eq!(self.pages.is_free(at), self.is_free(at));
                assert_eq!(self.pages.runs_on(at).collect::<Vec<_>>(), runs);
                let in_run = |granule: &u32| runs.iter().any(|(run, _)| run.contains(granule));
                let free = (at * PAGE_GRANULES..(at + 1) * PAGE_GRANULES)
                    .filter(|granule| of.is_none() && !in_run(granule));
                let free = free.fold(0, |free, granule| free | 1 << (granule % PAGE_GRANULES));
                assert_eq!(self.pages.free_granules(at), free);
                let mut holders: Vec<Holder> = runs.iter().map(|(_, holder)| *holder).collect();
                holders.extend(of.iter().flat_map(|of| of.holders.values()));
                assert_eq!(self.pages.holders(at).collect::<Vec<_>>(), holders);
                holders.retain(|holder| *holder != Holder::Ghost);
                assert_eq!(self.pages.items(at).map(Holder::Item).collect::<Vec<_>>(), holders);
                let page_use = of.map(|of| PageUse {
                    class: of.class,
                    items: of.holders.len() as u32,
                    is_draining: of.is_draining,
                });
                assert_eq!(self.pages.page_use(at), page_use);
            }
        }

        /// What lies at each unit that is taken.
        fn check_units(&self) {
            for (unit, fit, holder) in self.units() {
                assert_eq!(
                    (self.pages.class_at(unit), self.pages.fit_at(unit)),
                    (self.classes.class(fit), fit)
                );
                assert_eq!(
                    (self.pages.bytes_at(unit), self.pages.holder_at(unit)),
                    (self.classes.fit_bytes(fit), holder)
                );
            }
        }

        /// What is used behind each of these ends, and the bytes of the tables.
        fn check_sums(&mut self, ends: [u32; 2]) {
            let last = (0..PAGES).rev().find(|&at| !self.is_free(at));
            for end in ends {
                let last = last.filter(|last| *last >= end);
                assert_eq!(
                    (self.pages.is_used_behind(end), self.pages.last_behind(end)),
                    (last.is_some(), last)
                );
            }
            let tables: u32 = self.known.values().map(|of| self.classes.slots_per_page(of.class)).sum();
            let of_pages = (self.pages.pages.capacity() * size_of::<Page>()) as u64;
            assert_eq!(self.pages.bytes().0, of_pages + 4 * (u64::from(tables) + self.runs.len() as u64));
        }
    }

    proptest! {
        /// Over any sequence of opens, takes, returns and closes, contents and holders equal those of a plain list of pages and
        /// one of runs.
        #[test]
        fn equals_a_list_of_pages(ops in prop::collection::vec((0u8..10, any::<prop::sample::Index>(), 0u8..6, 0u32..40), 1..150)) {
            let mut twins = Twins::new();
            for (number, (what, pick, class, count)) in ops.into_iter().enumerate() {
                let (id, class) = (Id(number as u32), Class(class + 4));
                let at = pick.index(PAGES as usize) as u32;
                let first = pick.index((PAGES * PAGE_GRANULES) as usize) as u32;
                let granules = first..first + PAGE_GRANULES + 1 + count;
                match (what, twins.known.get(&at)) {
                    (0 | 1, _) if twins.is_free(at) => twins.open(at, class),
                    (2 | 3, _) if twins.are_free(&granules) => twins.begin_run(granules, id),
                    (4..7, Some(of)) if of.holders.len() < twins.classes.slots_per_page(of.class) as usize => {
                        twins.take(at, id, count == 1);
                    }
                    (7, _) => twins.set_holder(count as usize, if count > 12 { Holder::Ghost } else { Holder::Item(id) }),
                    (8, Some(of)) if !of.holders.is_empty() => twins.release(at, count as usize),
                    (9, Some(of)) if of.holders.is_empty() => {
                        twins.known.remove(&at);
                        twins.pages.close(at);
                    }
                    (9, None) => {
                        let run = twins.runs.range(first..).next().map(|(&first, _)| first);
                        run.into_iter().for_each(|first| twins.end_run(first));
                    }
                    _ => {}
                }
                twins.check_pages();
                twins.check_units();
                twins.check_sums([count % 5, PAGES / 2]);
            }
        }
    }
}
