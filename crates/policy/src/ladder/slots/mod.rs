//! Slots: the space of one tier, as pages given to classes, slots within them, and page runs for large items.
//!
//! | file | part | owns |
//! | --- | --- | --- |
//! | `page.rs` | [`Pages`] | what each page is, and which item holds each of its slots |
//! | `by_class.rs` | [`ByClass`] | the pages of each class, those with a free slot, how many slots there are |
//! | `supply.rs` | [`Supply`] | which pages may be given out, and how many; which are kept for a large item (`reserved_range.rs`) |
//! | `touched.rs` | [`Touched`] | which pages have memory, and of which it is taken ahead (`prefault.rs`) |
//!
//! [`Slots`] takes space and gives it back, which concerns all four. Each can be read by itself.

mod adopt;
mod by_class;
mod page;
mod prefault;
mod reserved_range;
mod supply;
mod touched;

use std::sync::Arc;

use super::classes::{Class, Fit, PAGE_BYTES, PAGE_UNITS, SizeClasses, UNIT_BYTES};
use crate::Id;
use crate::deferred_free::DeferredFree;
pub(super) use by_class::ByClass;
use by_class::ClassUse;
pub use page::Holder;
pub(super) use page::Pages;
use page::{Page, PageState};
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
            Fit::Run(pages) => {
                let first = self.supply.first_run(pages)?;
                self.give_run(first, pages, id);
                Some(first * PAGE_UNITS)
            }
        }
    }

    fn take_slot(&mut self, at: u32, class: Class, id: Id) -> u32 {
        let slot = self.pages.page(at).take(id);
        self.by_class.note_taken(at, &mut self.pages);
        at * PAGE_UNITS + slot * self.classes.slot_units(class)
    }

    fn give_page(&mut self, class: Class) -> Option<u32> {
        let at = self.supply.first_run(1)?;
        self.give(at, class);
        Some(at)
    }

    /// Gives a free page to a class.
    fn give(&mut self, at: u32, class: Class) {
        self.open_page(at, Page::of_slots(class, self.classes.slots_per_page(class)));
    }

    /// Gives free pages to one item.
    fn give_run(&mut self, first: u32, pages: u32, id: Id) {
        let class = self.classes.runs();
        self.open_page(first, Page::run_head(class, pages, id));
        for distance in 1..pages {
            self.open_page(first + distance, Page::run_tail(class, distance));
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

    /// Gives back the space at `unit`.
    pub fn release(&mut self, unit: u32) {
        let (at, slot) = self.pages.locate(unit);
        let page = self.pages.page(at);
        if page.state() == PageState::RunHead {
            (at..at + page.run_pages()).for_each(|page| self.close_page(page));
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
                let mut ids: Vec<_> = (0..24).filter(|&at| slots.pages().run_head(at) == at).flat_map(|at| slots.pages().holders(at)).collect();
                ids.sort_by_key(|holder| match holder { Holder::Item(id) => id.0, Holder::Ghost => 0 });
                let mut expected: Vec<_> = held.values().map(|&(_, id)| Holder::Item(id)).collect();
                expected.sort_by_key(|holder| match holder { Holder::Item(id) => id.0, Holder::Ghost => 0 });
                prop_assert_eq!(ids, expected);
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
        let runs: Vec<_> = (0..4).map(|id| slots.take(Fit::Run(1), Id(id)).unwrap()).collect();
        slots.release(runs[3]);
        slots.release(runs[2]);
        slots.supply.set_limit(3);
        assert_eq!(slots.supply().free(), 1);
        assert_eq!(slots.touched.take_surplus(&slots.supply, &slots.pages), Some(3));
        assert_eq!(slots.touched.take_surplus(&slots.supply, &slots.pages), None);
        assert!(slots.take(Fit::Run(1), Id(9)).is_some());
        assert!(slots.take(Fit::Run(1), Id(10)).is_none());
    }
}
