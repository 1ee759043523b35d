//! A page of a tier: its class, and the holder of each of its slots or of the run that begins on it.

use std::ops::Range;

use crate::Id;
use crate::ladder::classes::{Class, PAGE_GRANULES};

/// In place of a page: there is none.
pub(super) const NO_PAGE: u32 = u32::MAX;
const NO_SLOT: u16 = u16::MAX;
/// In a page's table: this slot is free; the rest is the next free slot.
pub(super) const FREE: u32 = 1 << 31;
/// In a page's table: the slot is taken, but its item has left it (a pin or a move under way keeps the bytes).
pub(super) const GHOST: u32 = FREE - 1;
/// In place of a granule of a page: no run begins here.
pub(super) const NO_HEAD: u8 = PAGE_GRANULES as u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageState {
    Free,
    Slots,
    Runs,
}

/// The holder of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A live item.
    Item(Id),
    /// No item any more, but the bytes must stay for now.
    Ghost,
}

/// A page.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// The content of each slot; of a page of runs, the item of the run that begins here.
    pub(super) table: Box<[u32]>,
    pub(super) state: PageState,
    pub(super) class: Class,
    /// Being emptied: gives no slots, and is released with its last one.
    pub(super) draining: bool,
    pub(super) used: u16,
    /// Slots at and above were never given.
    pub(super) fresh: u16,
    pub(super) free: u16,
    /// Granules at the page's start that lie in a run which begins on an earlier page.
    pub(super) run_tail: u8,
    /// The granule at which a run begins.
    pub(super) run_head: u8,
    /// How many pages before this one the run of the tail begins.
    pub(super) run_back: u32,
    /// Granules of the run that begins here.
    pub(super) run_granules: u32,
    /// The next ones of its class that have a free slot.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// Its position among the pages of its class.
    pub(super) at: u32,
}

impl Page {
    pub(super) fn unused() -> Self {
        Page {
            table: Box::default(),
            state: PageState::Free,
            class: Class(0),
            draining: false,
            used: 0,
            fresh: 0,
            free: NO_SLOT,
            run_tail: 0,
            run_head: NO_HEAD,
            run_back: 0,
            run_granules: 0,
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

    /// A page of runs, on which none lies yet.
    pub(super) fn of_runs(class: Class) -> Self {
        Page { state: PageState::Runs, class, ..Page::unused() }
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

    /// Whether a run begins here.
    pub(super) fn has_run_head(&self) -> bool {
        self.run_head != NO_HEAD
    }

    /// The granules that lie in no run, a bit for each; of a page of slots none are free, of a free one all.
    pub(super) fn free_granules(&self) -> u16 {
        let of_head = u32::from(self.run_head)
            ..PAGE_GRANULES.min(u32::from(self.run_head).saturating_add(self.run_granules));
        match self.state {
            PageState::Free => u16::MAX,
            PageState::Slots => 0,
            PageState::Runs => !(bits(0..u32::from(self.run_tail)) | bits(of_head)),
        }
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

    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.table) as u64
    }
}

/// These granules of a page, a bit for each.
pub(super) fn bits(granules: Range<u32>) -> u16 {
    let below = |granule: u32| (1u32 << granule) - 1;
    (below(granules.end) & !below(granules.start)) as u16
}
