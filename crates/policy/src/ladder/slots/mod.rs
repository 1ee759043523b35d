//! Slots: the space of one tier, as pages given to classes, slots within them, and runs of granules for large items.
//!
//! | file | part | owns |
//! | --- | --- | --- |
//! | `pages.rs`, `page.rs` | [`Pages`] | what each page is, and which item holds each of its slots |
//! | `by_class.rs` | [`ByClass`] | the pages of each class, those with a free slot, how many slots there are |
//! | `supply.rs` | [`Supply`] | which pages may be given out, and how many; which granules are free for runs (`free_granules.rs`); which pages are kept for a large item (`reserved_range.rs`) |
//! | `touched.rs` | [`Touched`] | which pages have memory, and of which it is taken ahead (`prefault.rs`) |
//!
//! [`Slots`] takes space and gives it back, which concerns all four. Each can be read by itself.

mod adopt;
mod by_class;
mod free_granules;
mod page;
mod pages;
mod prefault;
mod reserved_range;
mod supply;
mod touched;

use std::ops::Range;
use std::sync::Arc;

use super::classes::{
    Class, Fit, GRANULE_UNITS, PAGE_BYTES, PAGE_GRANULES, PAGE_UNITS, SizeClasses, UNIT_BYTES,
};
use crate::Id;
use crate::deferred_free::DeferredFree;
pub(super) use by_class::ByClass;
use by_class::ClassUse;
pub use page::Holder;
use page::{Page, PageState};
pub(super) use pages::{Pages, granules_on, pages_of};
pub(super) use prefault::distance_pages;
pub(super) use supply::Supply;
pub(super) use touched::Touched;

/// Pages, classes and slots of one tier.
#[derive(Clone, Debug)]
pub struct Slots {
    classes: Arc<SizeClasses>,
    pages: Pages,
    by_class: ByClass,
    supply: Supply,
    touched: Touched,
}

impl Slots {
    /// A tier of `pages_total` pages, all free.
    pub fn new(classes: Arc<SizeClasses>, pages_total: u32) -> Self {
        Slots {
            pages: Pages::new(classes.clone()),
            by_class: ByClass::new(classes.clone()),
            supply: Supply::new(pages_total),
            touched: Touched::new(pages_total),
            classes,
        }
    }

    /// The pages, with the holder of each slot.
    #[inline]
    pub(super) fn pages(&self) -> &Pages {
        &self.pages
    }

    /// The pages, to write down the holder of a place, and to forget free pages behind the end.
    #[inline]
    pub(super) fn pages_mut(&mut self) -> &mut Pages {
        &mut self.pages
    }

    /// The space of each class.
    #[inline]
    pub(super) fn by_class(&self) -> &ByClass {
        &self.by_class
    }

    /// The supply of pages.
    #[inline]
    pub(super) fn supply(&self) -> &Supply {
        &self.supply
    }

    /// The supply, to change the number of pages, and the pages, which say what is free.
    pub(super) fn supply_mut(&mut self) -> (&mut Supply, &Pages) {
        (&mut self.supply, &self.pages)
    }

    /// The touched pages, to take memory and to give it back, and the parts that say where it is needed.
    pub(super) fn touched_mut(&mut self) -> (&mut Touched, &Supply, &Pages) {
        (&mut self.touched, &self.supply, &self.pages)
    }

    /// Gives back all slots at once. Touched pages are remembered.
    pub fn clear(&mut self, deferred_free: &mut DeferredFree) {
        let (pages, bytes) = self.pages.take_all();
        deferred_free.add(pages, bytes);
        self.by_class = ByClass::new(self.classes.clone());
        self.supply.clear();
        self.touched.clear();
    }

    /// A slot of `class` within the pages that it has, not counting those being drained.
    pub fn take_within(&mut self, class: Class, id: Id) -> Option<u32> {
        self.by_class.partial(class).map(|at| self.take_slot(at, class, id))
    }

    /// Space for one item, held by `id`; its address in units.
    pub fn take(&mut self, fit: Fit, id: Id) -> Option<u32> {
        match fit {
            Fit::Slot(class) => {
                let at = self.by_class.partial(class).or_else(|| self.give_page(class))?;
                Some(self.take_slot(at, class, id))
            }
            Fit::Run(granules) => {
                let first = self.supply.first_row(granules)?;
                self.give_run(first..first + granules, id);
                Some(first * GRANULE_UNITS)
            }
        }
    }

    /// A place for a run that begins with this granule, if it is free and may be given out.
    pub fn take_run_at(&mut self, first: u32, fit: Fit, id: Id) -> Option<u32> {
        let Fit::Run(granules) = fit else { return None };
        let row = first..first + granules;
        self.supply.are_free(row.clone()).then(|| self.give_run(row, id))?;
        Some(first * GRANULE_UNITS)
    }

    fn take_slot(&mut self, at: u32, class: Class, id: Id) -> u32 {
        let slot = self.pages.page(at).take(id);
        self.by_class.note_taken(at, &mut self.pages);
        at * PAGE_UNITS + slot * self.classes.slot_units(class)
    }

    fn give_page(&mut self, class: Class) -> Option<u32> {
        let at = self.supply.first_page()?;
        self.give(at, class);
        Some(at)
    }

    /// Gives a free page to a class.
    fn give(&mut self, at: u32, class: Class) {
        self.open_page(at, Page::of_slots(class, self.classes.slots_per_page(class)));
    }

    /// Gives free granules to one item.
    fn give_run(&mut self, granules: Range<u32>, id: Id) {
        for at in pages_of(&granules) {
            if self.pages.is_free(at) {
                self.open_page(at, Page::of_runs(self.classes.runs()));
            }
        }
        self.pages.begin_run(granules.clone(), id);
        self.by_class.join_run(granules.start / PAGE_GRANULES, &mut self.pages);
        self.note_ends(&granules);
    }

    /// Takes back the run that begins on a page.
    fn take_run_back(&mut self, head: u32) {
        self.by_class.part_run(head, &mut self.pages);
        let granules = self.pages.end_run(head);
        for at in pages_of(&granules) {
            if self.pages.free_granules(at) == u16::MAX {
                self.close_page(at);
            }
        }
        self.note_ends(&granules);
    }

    /// Notes which granules are free on the two pages of a run that others may share.
    fn note_ends(&mut self, granules: &Range<u32>) {
        for at in [granules.start / PAGE_GRANULES, (granules.end - 1) / PAGE_GRANULES] {
            if !self.pages.is_free(at) {
                self.supply.note_granules(at, &self.pages);
            }
        }
    }

    fn open_page(&mut self, at: u32, page: Page) {
        self.pages.open(at, page);
        self.by_class.join(at, &mut self.pages);
        self.supply.note_opened(at);
        self.touched.note_opened(at);
    }

    fn close_page(&mut self, at: u32) {
        self.by_class.part(at, &mut self.pages);
        self.pages.close(at);
        self.supply.note_closed(at);
    }

    /// Whether there is room for a run of so many granules once that at `unit` is free.
    pub fn is_room_for(&self, granules: u32, unit: u32) -> bool {
        let run = self.pages.run(unit / PAGE_UNITS);
        !run.is_empty() && self.supply.is_room_after(&run, granules, &self.pages)
    }

    /// Everyone on a page whose place lies in a row of granules, at least in part. A page of slots lies in it as a whole.
    pub fn holders_in<'a>(&'a self, page: u32, row: &'a Range<u32>) -> impl Iterator<Item = Holder> + 'a {
        let of_slots = self.pages.page_use(page).map(|_| self.pages.holders(page));
        let runs = self.pages.runs_on(page).filter(|(run, _)| run.start < row.end && row.start < run.end);
        of_slots.into_iter().flatten().chain(runs.map(|(_, holder)| holder))
    }

    /// The live items among them.
    pub fn items_in<'a>(&'a self, page: u32, row: &'a Range<u32>) -> impl Iterator<Item = Id> + 'a {
        let item = |holder| if let Holder::Item(id) = holder { Some(id) } else { None };
        self.holders_in(page, row).filter_map(item)
    }

    /// The page of an item's place; of a run one that it shares with no other, if there is one.
    pub fn own_page(&self, unit: u32) -> u32 {
        let head = unit / PAGE_UNITS;
        let run = self.pages.run(head);
        let own = (run.start.div_ceil(PAGE_GRANULES)..run.end / PAGE_GRANULES).next();
        own.filter(|_| !run.is_empty()).unwrap_or(head)
    }

    /// Where a row of granules begins that takes a page: with the run that lies at the page's start, if one does, and with the free
    /// granules before it.
    pub fn start_of_row(&self, page: u32) -> u32 {
        let start = page * PAGE_GRANULES;
        let first = self.pages.runs_on(page).map(|(run, _)| run.start).find(|&first| first <= start);
        let first = first.unwrap_or(start);
        first - self.supply.free_before(first)
    }

    /// Gives back the space at `unit`.
    pub fn release(&mut self, unit: u32) {
        let (at, slot) = self.pages.locate(unit);
        let page = self.pages.page(at);
        if page.state() == PageState::Runs {
            self.take_run_back(at);
            return;
        }
        page.release(slot);
        let (is_empty, is_draining) = (page.used() == 0, page.draining);
        self.by_class.note_released(at, &mut self.pages);
        if is_empty && is_draining {
            self.close_page(at);
        } else if is_empty && !self.by_class.is_alone(at, &self.pages) {
            // An empty page goes back, unless it is all the free space that its class has.
            self.drain(at);
        }
    }

    /// Stops giving slots of a page; it is released when its last item leaves, at once if it has none.
    pub fn drain(&mut self, at: u32) {
        if self.pages.get(at).is_none_or(|page| page.state() != PageState::Slots || page.draining) {
            return;
        }
        let page = self.pages.page(at);
        page.draining = true;
        let is_empty = page.used() == 0;
        self.by_class.begin_draining(at, &mut self.pages);
        if is_empty {
            self.close_page(at);
        }
    }

    /// Gives slots of a drained page again: an item that was to leave it stays.
    pub fn undrain(&mut self, at: u32) {
        if std::mem::replace(&mut self.pages.page(at).draining, false) {
            self.by_class.end_draining(at, &mut self.pages);
        }
    }

    /// Takes a page back that a class keeps although nothing lies on it. Returns whether there was one.
    pub fn close_empty_page(&mut self) -> bool {
        let mut classes = (0..self.classes.runs().0).map(Class);
        let empty = classes.find_map(|class| {
            let mut partials = self.by_class.partials(class, &self.pages);
            partials.find(|(_, page)| page.used() == 0).map(|(at, _)| at)
        });
        empty.into_iter().for_each(|at| self.drain(at));
        empty.is_some()
    }

    /// Takes back the pages that classes keep although nothing lies on them, where they are next to be given.
    pub fn close_idle_pages(&mut self) {
        for class in (0..self.classes.runs().0).map(Class) {
            let next = self.by_class.partial(class);
            let idle = next.filter(|&at| self.pages.get(at).is_some_and(|page| page.used() == 0));
            idle.into_iter().for_each(|at| self.drain(at));
        }
    }

    /// Whether no more is held than may be used, nothing lies behind the end, and all other memory is given back.
    pub fn is_within_limits(&self) -> bool {
        let Slots { supply, pages, touched, .. } = self;
        supply.used() <= supply.limit() && !pages.is_used_behind(supply.end()) && !touched.has_surplus(supply)
    }

    /// Free space of a class in its own terms (slots, or pages of runs), free pages counted, and the space that it holds in all.
    pub fn class_space(&self, class: Class) -> (u64, u64) {
        let ClassUse { slots, slots_free, .. } = self.by_class.class_use(class);
        let of_a_page = if class == self.classes.runs() { 1 } else { self.classes.slots_per_page(class) };
        let in_pages = u64::from(self.supply.free()) * u64::from(of_a_page);
        (u64::from(slots_free) + in_pages, u64::from(slots))
    }

    /// Free bytes: whole pages and single slots.
    pub fn free_bytes(&self) -> u64 {
        u64::from(self.supply.free()) * PAGE_BYTES + self.by_class.free_units() * UNIT_BYTES
    }

    /// Bytes of tables held.
    pub fn metadata_bytes(&self) -> u64 {
        self.pages.bytes().0 + self.by_class.bytes() + self.supply.bytes() + self.touched.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_run_is_given_the_granules_that_are_named_if_they_are_free() {
        let mut slots = Slots::new(Arc::new(SizeClasses::geometric(1.08)), 8);
        let (first, fit) = (2 * PAGE_GRANULES + 5, Fit::Run(40));
        assert_eq!(slots.take_run_at(first, fit, Id(1)), Some(first * GRANULE_UNITS));
        assert_eq!(slots.take_run_at(first + 39, fit, Id(2)), None, "its last granule is taken");
        assert_eq!(slots.take_run_at(first + 40, fit, Id(2)), Some((first + 40) * GRANULE_UNITS));
        slots.supply_mut().0.set_limit(7);
        assert_eq!(slots.take(Fit::Run(33), Id(3)), None, "two pages are free, and one may be used");
    }

    proptest! {
        /// No two items ever overlap, addresses lie within the tier, and the counters equal a recount.
        #[test]
        fn space_is_never_given_twice(ops in prop::collection::vec((0u8..8, 0u64..200_000, any::<prop::sample::Index>()), 1..400)) {
            let classes = Arc::new(SizeClasses::geometric(1.3));
            let mut slots = Slots::new(classes.clone(), 24);
            let mut held = BTreeMap::<u32, (u64, Id)>::new();
            for (number, (what, bytes, pick)) in ops.into_iter().enumerate() {
                let id = Id(number as u32);
                if what < 5 {
                    let bytes = if what == 0 { bytes } else { bytes % 3000 };
                    if let Some(unit) = slots.take(classes.fit(bytes), id) {
                        prop_assert!(slots.pages().bytes_at(unit) >= bytes);
                        held.insert(unit, (slots.pages().bytes_at(unit), id));
                    }
                } else if what == 7 {
                    slots.drain(pick.index(24) as u32);
                } else if !held.is_empty() {
                    let unit = *held.keys().nth(pick.index(held.len())).unwrap();
                    held.remove(&unit);
                    slots.release(unit);
                }
                let mut end = 0;
                for (&unit, &(bytes, _)) in &held {
                    prop_assert!(u64::from(unit) * UNIT_BYTES >= end);
                    end = u64::from(unit) * UNIT_BYTES + bytes;
                }
                prop_assert!(end <= 24 * PAGE_BYTES && slots.supply().used() <= 24);
                let ends = |unit: u32, bytes: u64| (u64::from(unit) * UNIT_BYTES + bytes).div_ceil(PAGE_BYTES) as u32;
                for page in 0..24 {
                    // Everyone whose place reaches into the page.
                    let here = held.iter().filter(|&(&unit, &(bytes, _))| (unit / PAGE_UNITS..ends(unit, bytes)).contains(&page));
                    let mut expected: Vec<u32> = here.map(|(_, (_, id))| id.0).collect();
                    expected.sort();
                    let mut ids: Vec<u32> = slots.pages().items(page).map(|id| id.0).collect();
                    ids.sort();
                    prop_assert_eq!(ids, expected);
                }
                if let Some((&unit, _)) = held.range(pick.index(24) as u32 * PAGE_UNITS..).find(|(_, (bytes, _))| *bytes > PAGE_BYTES) {
                    let mut without = slots.clone();
                    without.release(unit);
                    for granules in [17, 20, 33, 60] {
                        let is_room = slots.is_room_for(granules, unit);
                        let had = slots.clone().take(Fit::Run(granules), id).is_some();
                        let has = without.clone().take(Fit::Run(granules), id).is_some();
                        prop_assert!(has || !is_room, "room for {} is promised", granules);
                        prop_assert!(is_room || had || !has, "room for {} is there", granules);
                    }
                }
            }
            for unit in held.into_keys() {
                slots.release(unit);
            }
            // Only a class's last partly free page may stay open.
            prop_assert!(slots.free_bytes() + u64::from(PAGE_UNITS) * UNIT_BYTES * 24 >= 24 * PAGE_BYTES);
        }
    }

    #[test]
    fn a_lower_limit_gives_back_what_was_touched() {
        let classes = Arc::new(SizeClasses::geometric(2.0));
        let mut slots = Slots::new(classes, 4);
        let runs: Vec<_> = (0..4).map(|id| slots.take(Fit::Run(PAGE_GRANULES), Id(id)).unwrap()).collect();
        slots.release(runs[3]);
        slots.release(runs[2]);
        slots.supply.set_limit(3);
        assert_eq!(slots.supply().free(), 1);
        assert_eq!(slots.touched.take_surplus(&slots.supply, &slots.pages), Some(3));
        assert_eq!(slots.touched.take_surplus(&slots.supply, &slots.pages), None);
        assert!(slots.take(Fit::Run(PAGE_GRANULES), Id(9)).is_some());
        assert!(slots.take(Fit::Run(PAGE_GRANULES), Id(10)).is_none());
    }
}
