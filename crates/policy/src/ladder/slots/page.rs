//! Pages of a tier: the class of each, and the holder of each of its slots.

use std::sync::Arc;

use crate::Id;
use crate::ladder::classes::{Class, Fit, PAGE_UNITS, SizeClasses};

/// Pages for which lists of them grow at least.
const PAGES_MORE: usize = 16;
/// In place of a page: there is none.
pub(super) const NO_PAGE: u32 = u32::MAX;
const NO_SLOT: u16 = u16::MAX;
/// In a page's table: this slot is free; the rest is the next free slot.
const FREE: u32 = 1 << 31;
/// In a page's table: the slot is taken, but its item has left it (a pin or a move under way keeps the bytes).
const GHOST: u32 = FREE - 1;

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

/// The holder of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A live item.
    Item(Id),
    /// No item any more, but the bytes must stay for now.
    Ghost,
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

/// A page.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// The content of each slot; of a run, its one item.
    table: Box<[u32]>,
    state: PageState,
    class: Class,
    /// Being emptied: gives no slots, and is released with its last one.
    pub(super) draining: bool,
    used: u16,
    /// Slots at and above were never given.
    fresh: u16,
    free: u16,
    /// Of a run's head its pages, of another page of the run its distance from the head.
    run_pages: u32,
    /// The next ones of its class that have a free slot.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// Its position among the pages of its class.
    pub(super) at: u32,
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

    /// A page of a class, with `slots` free slots.
    pub(super) fn of_slots(class: Class, slots: u32) -> Self {
        let table = vec![0; slots as usize].into_boxed_slice();
        Page { table, state: PageState::Slots, class, ..Page::unused() }
    }

    /// The first page of a run that an item has.
    pub(super) fn run_head(class: Class, pages: u32, id: Id) -> Self {
        let table = vec![id.0].into_boxed_slice();
        Page { table, state: PageState::RunHead, class, used: 1, run_pages: pages, ..Page::unused() }
    }

    /// Another page of a run, so far from its head.
    pub(super) fn run_tail(class: Class, distance: u32) -> Self {
        Page { state: PageState::RunTail, class, run_pages: distance, ..Page::unused() }
    }

    pub(super) fn state(&self) -> PageState {
        self.state
    }

    pub(super) fn class(&self) -> Class {
        self.class
    }

    /// Slots that are taken.
    pub(super) fn used(&self) -> u32 {
        u32::from(self.used)
    }

    /// Slots that are not.
    pub(super) fn slots_free(&self) -> u32 {
        self.table.len() as u32 - self.used()
    }

    /// Pages of the run that begins here.
    pub(super) fn run_pages(&self) -> u32 {
        self.run_pages
    }

    /// Gives a free slot to an item; which one.
    pub(super) fn take(&mut self, id: Id) -> u32 {
        debug_assert!(self.slots_free() > 0, "a slot is taken where one is free");
        let slot = if self.free == NO_SLOT {
            self.fresh += 1;
            self.fresh - 1
        } else {
            let slot = self.free;
            self.free = (self.table[usize::from(slot)] & !FREE) as u16;
            slot
        };
        self.table[usize::from(slot)] = id.0;
        self.used += 1;
        u32::from(slot)
    }

    /// Gives a certain slot to an item, and leaves those below it free. `false`, and nothing done, where it lies below one given before.
    pub(super) fn take_at(&mut self, slot: u32, id: Id) -> bool {
        if slot < u32::from(self.fresh) {
            return false;
        }
        // Those passed over are free.
        for passed in self.fresh..slot as u16 {
            self.table[usize::from(passed)] = FREE | u32::from(self.free);
            self.free = passed;
        }
        self.table[slot as usize] = id.0;
        self.fresh = slot as u16 + 1;
        self.used += 1;
        true
    }

    /// Takes a slot back.
    pub(super) fn release(&mut self, slot: usize) {
        debug_assert!(self.table[slot] & FREE == 0, "a slot is released once");
        self.table[slot] = FREE | u32::from(self.free);
        self.free = slot as u16;
        self.used -= 1;
    }

    /// The item in a slot, if there is one.
    #[inline]
    pub(super) fn item(&self, slot: usize) -> Option<Id> {
        if self.state == PageState::Slots && slot >= usize::from(self.fresh) {
            return None;
        }
        let cell = *self.table.get(slot)?;
        (cell & FREE == 0 && cell != GHOST).then_some(Id(cell))
    }

    fn bytes(&self) -> u64 {
        size_of_val(&*self.table) as u64
    }
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
        self.table_bytes -= page.bytes();
    }

    /// The page and the slot of a place.
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
        if page.state == PageState::RunHead { Fit::Run(page.run_pages) } else { Fit::Slot(page.class) }
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

    /// The live items among them.
    pub fn items(&self, at: u32) -> impl Iterator<Item = Id> + '_ {
        self.holders(at).filter_map(|holder| if let Holder::Item(id) = holder { Some(id) } else { None })
    }

    /// The first page of the run that `at` belongs to; `at` itself where that is no run's tail.
    pub fn run_head(&self, at: u32) -> u32 {
        match self.pages.get(at as usize) {
            Some(page) if page.state == PageState::RunTail => at - page.run_pages,
            _ => at,
        }
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

    /// The last page in use from `end` on, of a large item its first. Pages behind it are forgotten.
    #[inline]
    pub fn last_behind(&mut self, end: u32) -> Option<u32> {
        while self.pages.len() as u32 > end {
            let last = self.pages.len() as u32 - 1;
            if !self.is_free(last) {
                return Some(self.run_head(last));
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PAGES: u32 = 16;

    /// A page that is given out, as a list knows it.
    #[derive(Clone, Debug)]
    struct Known {
        class: Class,
        /// The holder of each slot that is taken; of a run, the whole of it.
        holders: BTreeMap<u32, Holder>,
        /// Of a run its pages.
        run: Option<u32>,
        is_draining: bool,
    }

    impl Known {
        fn pages(&self) -> u32 {
            self.run.unwrap_or(1)
        }

        /// Slots of a table of its own; a run has one cell.
        fn cells(&self, classes: &SizeClasses) -> u32 {
            if self.run.is_some() { 1 } else { classes.slots_per_page(self.class) }
        }

        fn unit_of(&self, slot: u32, classes: &SizeClasses) -> u32 {
            if self.run.is_some() { 0 } else { slot * classes.slot_units(self.class) }
        }
    }

    /// Pages beside a list of all that are given out, by their first ones.
    struct Twins {
        classes: Arc<SizeClasses>,
        pages: Pages,
        known: BTreeMap<u32, Known>,
    }

    impl Twins {
        fn new() -> Self {
            let classes = Arc::new(SizeClasses::geometric(2.0));
            Twins { pages: Pages::new(classes.clone()), classes, known: BTreeMap::new() }
        }

        /// The first page of what covers a page, if that is given out.
        fn head(&self, at: u32) -> Option<u32> {
            let (&head, known) = self.known.range(..=at).next_back()?;
            (at < head + known.pages()).then_some(head)
        }

        /// Gives out a page of slots, or a run.
        fn open(&mut self, at: u32, class: Class, run: Option<(u32, Id)>) {
            let (class, holders) = match run {
                None => {
                    let slots = self.classes.slots_per_page(class);
                    self.pages.open(at, Page::of_slots(class, slots));
                    (class, BTreeMap::new())
                }
                Some((count, id)) => {
                    let class = self.classes.runs();
                    self.pages.open(at, Page::run_head(class, count, id));
                    (1..count).for_each(|far| self.pages.open(at + far, Page::run_tail(class, far)));
                    (class, [(0, Holder::Item(id))].into())
                }
            };
            let run = run.map(|(count, _)| count);
            self.known.insert(at, Known { class, holders, run, is_draining: false });
        }

        /// Takes a slot for an item, and turns whether the page is being emptied.
        fn take(&mut self, at: u32, id: Id, turns: bool) {
            let of = self.known.get_mut(&at).unwrap();
            let slot = self.pages.page(at).take(id);
            assert!(of.holders.insert(slot, Holder::Item(id)).is_none(), "a slot is taken once");
            self.pages.page(at).draining ^= turns;
            of.is_draining ^= turns;
        }

        fn set_last_holder(&mut self, at: u32, holder: Holder) {
            let of = self.known.get_mut(&at).unwrap();
            let slot = *of.holders.keys().next_back().unwrap();
            of.holders.insert(slot, holder);
            self.pages.set_holder(at * PAGE_UNITS + of.unit_of(slot, &self.classes), holder);
        }

        fn release(&mut self, at: u32, nth: usize) {
            let of = self.known.get_mut(&at).unwrap();
            let slot = *of.holders.keys().nth(nth % of.holders.len()).unwrap();
            let unit = at * PAGE_UNITS + of.unit_of(slot, &self.classes);
            assert_eq!(self.pages.locate(unit), (at, slot as usize));
            self.pages.page(at).release(slot as usize);
            of.holders.remove(&slot);
        }

        fn close(&mut self, at: u32) {
            let of = self.known.remove(&at).unwrap();
            (at..at + of.pages()).for_each(|at| self.pages.close(at));
        }

        /// What each page is, and who lies on it.
        fn check_pages(&mut self) {
            for at in 0..PAGES {
                let head = self.head(at);
                let of = head.and_then(|head| self.known.get(&head));
                assert_eq!(
                    (self.pages.run_head(at), self.pages.is_free(at)),
                    (head.unwrap_or(at), of.is_none())
                );
                let mut holders: Vec<Holder> = of.map_or(vec![], |of| of.holders.values().copied().collect());
                assert_eq!(self.pages.holders(at).collect::<Vec<_>>(), holders);
                holders.retain(|holder| *holder != Holder::Ghost);
                assert_eq!(self.pages.items(at).map(Holder::Item).collect::<Vec<_>>(), holders);
                let page_use = of.filter(|of| of.run.is_none()).map(|of| PageUse {
                    class: of.class,
                    items: of.holders.len() as u32,
                    is_draining: of.is_draining,
                });
                assert_eq!(self.pages.page_use(at), page_use);
            }
        }

        /// What lies at each unit that is taken.
        fn check_units(&self) {
            for (&at, of) in &self.known {
                let fit = of.run.map_or(Fit::Slot(of.class), Fit::Run);
                for (&slot, &holder) in &of.holders {
                    let unit = at * PAGE_UNITS + of.unit_of(slot, &self.classes);
                    assert_eq!((self.pages.class_at(unit), self.pages.fit_at(unit)), (of.class, fit));
                    let bytes = self.classes.fit_bytes(fit);
                    assert_eq!((self.pages.bytes_at(unit), self.pages.holder_at(unit)), (bytes, holder));
                }
            }
        }

        /// What is used behind each of these ends, and the bytes of the tables.
        fn check_sums(&mut self, ends: [u32; 2]) {
            let last = self.known.last_key_value().map(|(&last, known)| (last, last + known.pages()));
            for end in ends {
                let last = last.filter(|(_, behind)| *behind > end).map(|(last, _)| last);
                assert_eq!(
                    (self.pages.is_used_behind(end), self.pages.last_behind(end)),
                    (last.is_some(), last)
                );
            }
            let tables: u32 = self.known.values().map(|of| of.cells(&self.classes)).sum();
            let of_pages = (self.pages.pages.capacity() * size_of::<Page>()) as u64;
            assert_eq!(self.pages.bytes().0, of_pages + 4 * u64::from(tables));
        }
    }

    proptest! {
        /// Over any sequence of opens, takes, returns and closes, contents and holders equal those of a plain list of pages.
        #[test]
        fn equals_a_list_of_pages(ops in prop::collection::vec((0u8..10, any::<prop::sample::Index>(), 0u8..6, 1u32..5), 1..150)) {
            let mut twins = Twins::new();
            for (number, (what, pick, class, count)) in ops.into_iter().enumerate() {
                let (id, class) = (Id(number as u32), Class(class + 4));
                let at = pick.index(PAGES as usize) as u32;
                let is_free = |count| at + count <= PAGES && (at..at + count).all(|at| twins.head(at).is_none());
                match (what, twins.known.get(&at)) {
                    (0 | 1, None) if is_free(1) => twins.open(at, class, None),
                    (2, None) if is_free(count) => twins.open(at, class, Some((count, id))),
                    (3..7, Some(of)) if of.run.is_none() && of.holders.len() < of.cells(&twins.classes) as usize => {
                        twins.take(at, id, count == 1);
                    }
                    (7, Some(of)) if !of.holders.is_empty() => {
                        twins.set_last_holder(at, if count > 2 { Holder::Ghost } else { Holder::Item(id) });
                    }
                    (8, Some(of)) if of.run.is_none() && !of.holders.is_empty() => twins.release(at, count as usize),
                    (9, Some(of)) if of.run.is_some() || of.holders.is_empty() => twins.close(at),
                    _ => {}
                }
                twins.check_pages();
                twins.check_units();
                twins.check_sums([count, PAGES / 2]);
            }
        }
    }
}
