//! The space of one slotted tier: pages given to classes, slots within them, page runs for large items.

mod adopt;
mod held;
pub(super) mod populate;

use std::ops::Range;
use std::sync::Arc;

use super::classes::{Class, Fit, PAGE_BYTES, PAGE_UNITS, SizeClasses, UNIT_BYTES};
use super::page_set::PageSet;
use crate::Id;
use crate::waste::Waste;
use held::Held;
use populate::Ahead;

/// Pages for which lists of them grow at least.
const PAGES_MORE: usize = 16;
const NO_PAGE: u32 = u32::MAX;
const NO_SLOT: u16 = u16::MAX;
/// In a page's table: this slot is free; the rest is the next free slot.
pub(super) const FREE: u32 = 1 << 31;
/// In a page's table: the slot is taken, but its item has left it (a pin or a move under way keeps the bytes).
pub(super) const GHOST: u32 = FREE - 1;

/// Room for `missing` more, by an eighth at least: growth is charged to a tier, so it comes in small pieces.
pub(super) fn reserve_some<T>(list: &mut Vec<T>, missing: usize) {
    if list.capacity() - list.len() < missing {
        list.reserve_exact(missing.max(list.len() / 8 + PAGES_MORE));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageState {
    Free,
    Slots,
    RunHead,
    RunTail,
}

#[derive(Clone, Debug)]
pub(super) struct Page {
    /// What each slot holds; of a run, its one item.
    pub table: Box<[u32]>,
    pub state: PageState,
    pub class: Class,
    /// Being emptied: gives no slots, and is released with its last one.
    pub draining: bool,
    pub used: u16,
    /// Slots at and above were never given.
    pub fresh: u16,
    free: u16,
    /// Of a run's head its pages, of another page of the run its distance from the head.
    run_pages: u32,
    prev: u32,
    next: u32,
    /// Its position among the pages of its class.
    pub at: u32,
}

impl Page {
    fn unused() -> Self {
        Page {
            table: Box::default(),
            state: PageState::Free,
            class: Class(0),
            draining: false,
            used: 0,
            fresh: 0,
            free: NO_SLOT,
            run_pages: 0,
            prev: NO_PAGE,
            next: NO_PAGE,
            at: 0,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct ClassSpace {
    /// The first of the pages that have a free slot.
    pub partial: u32,
    pub slots: u32,
    pub used: u32,
}

/// Who holds a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A live item.
    Item(Id),
    /// Nobody any more, but the bytes must stay for now.
    Ghost,
}

/// Pages, classes and slots of one tier.
#[derive(Clone, Debug)]
pub struct Slots {
    pub(super) classes: Arc<SizeClasses>,
    pub(super) pages: Vec<Page>,
    pub(super) free_pages: PageSet,
    /// Pages that are kept for a large item.
    pub(super) held: Held,
    /// Pages that were written, or had their memory taken for it, since they were last given back to the system.
    pub(super) touched: PageSet,
    /// Which memory is taken before it is written.
    pub(super) ahead: Ahead,
    pub(super) spaces: Vec<ClassSpace>,
    /// Pages that each class has, a run by its head: what a random item is drawn from.
    pub(super) members: Vec<Vec<u32>>,
    /// Pages from this one on are not given out.
    pub(super) end: u32,
    pub(super) page_limit: u32,
    pages_used: u32,
    run_pages_used: u32,
    free_slot_units: u64,
    table_bytes: u64,
}

impl Slots {
    /// A tier of `pages_total` pages, all free.
    pub fn new(classes: Arc<SizeClasses>, pages_total: u32) -> Self {
        let space = ClassSpace { partial: NO_PAGE, slots: 0, used: 0 };
        Slots {
            spaces: vec![space; classes.count()],
            members: vec![Vec::new(); classes.count() + 1],
            classes,
            pages: Vec::new(),
            free_pages: PageSet::full(pages_total),
            held: Held::default(),
            touched: PageSet::empty(pages_total),
            ahead: Ahead::default(),
            end: pages_total,
            page_limit: pages_total,
            pages_used: 0,
            run_pages_used: 0,
            free_slot_units: 0,
            table_bytes: 0,
        }
    }

    /// Gives back everything at once. What was touched is remembered.
    pub fn clear(&mut self, waste: &mut Waste) {
        waste.add(std::mem::take(&mut self.pages), self.table_bytes);
        let touched = std::mem::replace(&mut self.touched, PageSet::empty(0));
        let (end, page_limit, distance) = (self.end, self.page_limit, self.distance_pages());
        *self = Slots { touched, ..Slots::new(self.classes.clone(), self.pages_total()) };
        self.set_end(end);
        self.page_limit = page_limit;
        self.set_distance(distance);
    }

    /// A slot of `class` within the pages that it has, not counting those being drained.
    pub fn take_within(&mut self, class: Class, id: Id) -> Option<u32> {
        if self.spaces.get(class.index())?.partial == NO_PAGE { None } else { self.take_slot(class, id) }
    }

    /// Space for one item, held by `id`; its address in units.
    pub fn take(&mut self, fit: Fit, id: Id) -> Option<u32> {
        match fit {
            Fit::Slot(class) => self.take_slot(class, id),
            Fit::Run(pages) => self.take_run(pages, id),
        }
    }

    fn take_slot(&mut self, class: Class, id: Id) -> Option<u32> {
        if self.spaces[class.index()].partial == NO_PAGE {
            self.give_page(class)?;
        }
        let at = self.spaces[class.index()].partial;
        let units = self.classes.slot_units(class);
        let page = &mut self.pages[at as usize];
        let slot = if page.free == NO_SLOT {
            page.fresh += 1;
            page.fresh - 1
        } else {
            let slot = page.free;
            page.free = (page.table[usize::from(slot)] & !FREE) as u16;
            slot
        };
        page.table[usize::from(slot)] = id.0;
        page.used += 1;
        if usize::from(page.used) == page.table.len() {
            self.unlink(at);
        }
        self.spaces[class.index()].used += 1;
        self.free_slot_units -= u64::from(units);
        Some(at * PAGE_UNITS + u32::from(slot) * units)
    }

    fn give_page(&mut self, class: Class) -> Option<()> {
        if self.pages_free() == 0 {
            return None;
        }
        let at = self.free_pages.first()?;
        self.give(at, class);
        Some(())
    }

    /// Gives a free page to a class.
    fn give(&mut self, at: u32, class: Class) {
        let slots = self.classes.slots_per_page(class);
        let table = vec![0; slots as usize].into_boxed_slice();
        self.open_page(at, Page { table, state: PageState::Slots, class, ..Page::unused() });
        self.spaces[class.index()].slots += slots;
        self.free_slot_units += u64::from(slots * self.classes.slot_units(class));
        self.link(at);
    }

    fn take_run(&mut self, pages: u32, id: Id) -> Option<u32> {
        if pages > self.pages_free() {
            return None;
        }
        let first = self.free_pages.first_run(pages)?;
        self.give_run(first, pages, id);
        Some(first * PAGE_UNITS)
    }

    /// Gives free pages to one item.
    fn give_run(&mut self, first: u32, pages: u32, id: Id) {
        let class = self.classes.runs();
        let table = vec![id.0].into_boxed_slice();
        let head =
            Page { table, state: PageState::RunHead, class, used: 1, run_pages: pages, ..Page::unused() };
        self.open_page(first, head);
        for tail in first + 1..first + pages {
            let run_pages = tail - first;
            self.open_page(tail, Page { state: PageState::RunTail, class, run_pages, ..Page::unused() });
        }
        self.run_pages_used += pages;
    }

    fn open_page(&mut self, at: u32, page: Page) {
        if self.pages.len() <= at as usize {
            let missing = at as usize + 1 - self.pages.len();
            reserve_some(&mut self.pages, missing);
            self.pages.resize_with(at as usize + 1, Page::unused);
        }
        debug_assert_eq!(self.pages[at as usize].state, PageState::Free);
        self.table_bytes += size_of_val(&*page.table) as u64;
        self.pages[at as usize] = page;
        self.join(at);
        self.free_pages.remove(at);
        self.ahead.note_given(at, self.touched.contains(at));
        self.touched.insert(at);
        self.pages_used += 1;
    }

    fn close_page(&mut self, at: u32) {
        self.part(at);
        self.table_bytes -= size_of_val(&*self.pages[at as usize].table) as u64;
        self.pages[at as usize] = Page::unused();
        if !self.held.keeps(at) {
            self.set_free(at);
        }
        self.pages_used -= 1;
    }

    /// Gives back the space at `unit`.
    pub fn release(&mut self, unit: u32) {
        let (at, slot) = self.locate(unit);
        let page = &mut self.pages[at as usize];
        debug_assert!(page.table[slot] & FREE == 0, "a slot is released once");
        if page.state == PageState::RunHead {
            let pages = page.run_pages;
            for page in at..at + pages {
                self.close_page(page);
            }
            self.run_pages_used -= pages;
            return;
        }
        let class = page.class;
        let was_full = usize::from(page.used) == page.table.len();
        page.table[slot] = FREE | u32::from(page.free);
        page.free = slot as u16;
        page.used -= 1;
        let (used, draining) = (page.used, page.draining);
        let space = &mut self.spaces[class.index()];
        space.used -= 1;
        if draining {
            // The slot will not be given again.
            space.slots -= 1;
            if used == 0 {
                self.close_page(at);
            }
            return;
        }
        self.free_slot_units += u64::from(self.classes.slot_units(class));
        if was_full {
            self.link(at);
        }
        // An empty page goes back, unless it is all the free space that its class has.
        let alone = self.spaces[class.index()].partial == at && self.pages[at as usize].next == NO_PAGE;
        if used == 0 && !alone {
            self.drain(at);
        }
    }

    /// Stops giving slots of a page; it is released when its last item leaves, at once if it has none.
    pub fn drain(&mut self, at: u32) {
        let Some(page) = self.pages.get_mut(at as usize) else { return };
        if page.state != PageState::Slots || page.draining {
            return;
        }
        page.draining = true;
        let (class, used, slots) = (page.class, u32::from(page.used), page.table.len() as u32);
        let free = slots - used;
        if free > 0 {
            self.unlink(at);
        }
        // What it had free counts no longer: nobody can have it.
        self.spaces[class.index()].slots -= free;
        self.free_slot_units -= u64::from(free * self.classes.slot_units(class));
        if used == 0 {
            self.close_page(at);
        }
    }

    /// Gives slots of a drained page again: an item that was to leave it stays.
    pub fn undrain(&mut self, unit: u32) {
        self.undrain_page(unit / PAGE_UNITS);
    }

    /// The same for a page.
    pub fn undrain_page(&mut self, at: u32) {
        let page = &mut self.pages[at as usize];
        if !std::mem::replace(&mut page.draining, false) {
            return;
        }
        let free = page.table.len() as u32 - u32::from(page.used);
        let class = page.class;
        self.spaces[class.index()].slots += free;
        self.free_slot_units += u64::from(free * self.classes.slot_units(class));
        if free > 0 {
            self.link(at);
        }
    }

    /// Takes a page back that a class keeps although nothing lies on it; whether there was one.
    pub fn close_empty_page(&mut self) -> bool {
        for class in 0..self.spaces.len() {
            let mut at = self.spaces[class].partial;
            while at != NO_PAGE {
                if self.pages[at as usize].used == 0 {
                    self.drain(at);
                    return true;
                }
                at = self.pages[at as usize].next;
            }
        }
        false
    }

    fn link(&mut self, at: u32) {
        let class = self.pages[at as usize].class.index();
        let first = self.spaces[class].partial;
        self.pages[at as usize].next = first;
        self.pages[at as usize].prev = NO_PAGE;
        if first != NO_PAGE {
            self.pages[first as usize].prev = at;
        }
        self.spaces[class].partial = at;
    }

    fn unlink(&mut self, at: u32) {
        let Page { class, prev, next, .. } = self.pages[at as usize];
        if prev == NO_PAGE {
            self.spaces[class.index()].partial = next;
        } else {
            self.pages[prev as usize].next = next;
        }
        if next != NO_PAGE {
            self.pages[next as usize].prev = prev;
        }
    }

    fn locate(&self, unit: u32) -> (u32, usize) {
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

    /// What the item at `unit` occupies.
    pub fn fit_at(&self, unit: u32) -> Fit {
        let page = &self.pages[(unit / PAGE_UNITS) as usize];
        if page.state == PageState::RunHead { Fit::Run(page.run_pages) } else { Fit::Slot(page.class) }
    }

    /// Bytes that the item at `unit` occupies.
    pub fn bytes_at(&self, unit: u32) -> u64 {
        self.classes.fit_bytes(self.fit_at(unit))
    }

    /// Writes down who holds a taken slot.
    pub fn set_holder(&mut self, unit: u32, holder: Holder) {
        let (at, slot) = self.locate(unit);
        self.pages[at as usize].table[slot] = match holder {
            Holder::Item(id) => id.0,
            Holder::Ghost => GHOST,
        };
    }

    /// Who holds the taken slot at `unit`.
    pub fn holder_at(&self, unit: u32) -> Holder {
        let (at, slot) = self.locate(unit);
        match self.pages[at as usize].table[slot] {
            GHOST => Holder::Ghost,
            id => Holder::Item(Id(id)),
        }
    }

    /// Everyone on a page; of a run, its item whichever page of it is named.
    pub fn holders(&self, at: u32) -> impl Iterator<Item = Holder> + '_ {
        let head = self.run_head(at);
        let page = self.pages.get(head as usize);
        let taken = page.map_or(&[][..], |page| match page.state {
            PageState::Slots => &page.table[..usize::from(page.fresh)],
            _ => &page.table[..],
        });
        let holder = |&cell: &u32| if cell == GHOST { Holder::Ghost } else { Holder::Item(Id(cell)) };
        taken.iter().filter(|&&cell| cell & FREE == 0).map(holder)
    }

    /// The first page of the run that `at` belongs to; `at` itself where that is no run's tail.
    pub fn run_head(&self, at: u32) -> u32 {
        match self.pages.get(at as usize) {
            Some(page) if page.state == PageState::RunTail => at - page.run_pages,
            _ => at,
        }
    }

    /// Pages that can still be given out.
    pub fn pages_free(&self) -> u32 {
        self.page_limit.saturating_sub(self.pages_used + self.held.free())
    }

    /// Pages given out.
    pub fn pages_used(&self) -> u32 {
        self.pages_used
    }

    /// Free space of a class in its own terms (slots, or pages of runs), free pages counted, and what it holds in
    /// all.
    pub fn class_space(&self, class: Class) -> (u64, u64) {
        let pages_free = u64::from(self.pages_free());
        if class == self.classes.runs() {
            return (pages_free, u64::from(self.run_pages_used));
        }
        let space = &self.spaces[class.index()];
        let in_pages = pages_free * u64::from(self.classes.slots_per_page(class));
        (u64::from(space.slots - space.used) + in_pages, u64::from(space.slots))
    }

    /// Slots that [`Self::take_within`] could give for a class if no page of `but` gave any.
    pub fn slots_free_beside(&self, class: Class, but: &Range<u32>) -> u64 {
        let mut at = self.spaces.get(class.index()).map_or(NO_PAGE, |space| space.partial);
        let mut free = 0;
        while at != NO_PAGE {
            let page = &self.pages[at as usize];
            if !but.contains(&at) {
                free += page.table.len() as u64 - u64::from(page.used);
            }
            at = page.next;
        }
        free
    }

    /// Free bytes: whole pages and single slots.
    pub fn free_bytes(&self) -> u64 {
        u64::from(self.pages_free()) * PAGE_BYTES + self.free_slot_units * UNIT_BYTES
    }

    /// Bytes by which lists of pages may grow at once.
    pub fn growth_bytes(&self) -> u64 {
        ((self.pages.capacity() / 8 + PAGES_MORE) * (size_of::<Page>() + size_of::<u32>())) as u64
    }

    /// Bytes of tables held.
    pub fn metadata_bytes(&self) -> u64 {
        self.table_bytes
            + (self.pages.capacity() * size_of::<Page>()) as u64
            + self.members.iter().map(|pages| pages.capacity() as u64 * 4).sum::<u64>()
            + self.free_pages.bytes()
            + self.touched.bytes()
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
                        prop_assert!(slots.bytes_at(unit) >= bytes);
                        held.insert(unit, (slots.bytes_at(unit), id));
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
                prop_assert!(end <= 24 * PAGE_BYTES && slots.pages_used() <= 24);
                let mut ids: Vec<_> = (0..24).filter(|&at| slots.run_head(at) == at).flat_map(|at| slots.holders(at)).collect();
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
        slots.set_page_limit(3);
        assert_eq!(slots.pages_free(), 1);
        assert_eq!(slots.take_surplus(), Some(3));
        assert_eq!(slots.take_surplus(), None);
        assert!(slots.take(Fit::Run(1), Id(9)).is_some());
        assert!(slots.take(Fit::Run(1), Id(10)).is_none());
    }
}
