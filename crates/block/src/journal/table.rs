//! The table: the state of every unit and slot, in pages. One function changes it, in the course of work and in recovery alike.
//!
//! Every page knows the LSN up to which it includes records, and passes over those that it includes already. So a record whose
//! units lie in several pages is applied to each for itself, whichever images of them a crash has left.

use std::collections::VecDeque;
use std::ops::Range;

use super::page::{self, PAGE_BYTES, SlotEntry};
use super::record::{PIECES_MAX, Record, VOLUMES_MAX};
use super::{Layout, Lsn};

/// Stands as the checksum of a unit that was recorded since its block was mapped, and is not valid.
const GONE: u32 = 1;

/// A record that does not fit the table: what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Illegal(pub &'static str);

/// What the table says of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitState {
    /// The cache does not have it.
    Invalid,
    /// The backing store has the same.
    Clean,
    /// Only the cache has it.
    Dirty,
    /// It is lost.
    Poisoned,
}

/// A block of the cache and the state of its units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockState {
    /// Its first slot.
    pub slot: u32,
    /// Index of its size.
    pub class: u8,
    /// Its volume's number.
    pub volume: u16,
    /// Its first piece in the volume.
    pub piece: u64,
    /// Units that are valid, clean or dirty; units of the data area, ascending.
    pub valid: Vec<Range<u64>>,
    /// Those of them that are dirty.
    pub dirty: Vec<Range<u64>>,
    /// Units that are lost: reading them is an error.
    pub poisoned: Vec<Range<u64>>,
}

/// The pages. All are in memory.
#[derive(Debug)]
pub struct Table {
    layout: Layout,
    pages: Vec<u8>,
    /// For each page the LSN of the first record that its image on the device does not include; 0: there is none.
    since: Vec<u64>,
    /// Pages with such records, in the order of these.
    dirty: VecDeque<u32>,
}

impl Table {
    /// Pages of zeros.
    pub fn new(layout: &Layout) -> Self {
        let pages = layout.pages as usize;
        let bytes = vec![0; pages * PAGE_BYTES];
        Table { layout: layout.clone(), pages: bytes, since: vec![0; pages], dirty: VecDeque::new() }
    }

    /// A page as it is.
    #[inline]
    pub fn page(&self, page: u32) -> &[u8] {
        let at = page as usize * PAGE_BYTES;
        &self.pages[at..at + PAGE_BYTES]
    }

    #[inline]
    fn page_mut(&mut self, page: u32) -> &mut [u8] {
        let at = page as usize * PAGE_BYTES;
        &mut self.pages[at..at + PAGE_BYTES]
    }

    /// Takes an image from the device.
    pub fn load(&mut self, page: u32, image: &[u8]) {
        self.page_mut(page).copy_from_slice(image);
    }

    /// The page of a unit, and its number there.
    #[inline]
    fn unit_place(&self, unit: u64) -> (u32, u32) {
        let per_page = u64::from(self.layout.shape.units);
        ((unit / per_page) as u32, (unit % per_page) as u32)
    }

    /// The page of a slot, and its number there.
    #[inline]
    fn slot_place(&self, slot: u32) -> (u32, u32) {
        let piece_units = self.layout.geometry.piece_units();
        let (page, unit) = self.unit_place(u64::from(slot) * piece_units);
        (page, unit / piece_units as u32)
    }

    /// The block that begins at a slot.
    #[inline]
    pub fn slot(&self, slot: u32) -> Option<SlotEntry> {
        let (page, at) = self.slot_place(slot);
        self.layout.shape.slot(self.page(page), at)
    }

    /// A unit's state and checksum.
    #[inline]
    pub fn unit(&self, unit: u64) -> (UnitState, u32) {
        let (page, at) = self.unit_place(unit);
        let (page, shape) = (self.page(page), self.layout.shape);
        let state = match shape.state(page, at) {
            (false, false) => UnitState::Invalid,
            (true, false) => UnitState::Clean,
            (true, true) => UnitState::Dirty,
            (false, true) => UnitState::Poisoned,
        };
        (state, shape.sum(page, at))
    }

    /// Whether there was any record of a unit since its block was mapped.
    #[inline]
    pub fn is_recorded(&self, unit: u64) -> bool {
        self.unit(unit) != (UnitState::Invalid, 0)
    }

    /// The page that the image of a unit's state is in.
    pub fn page_of(&self, unit: u64) -> u32 {
        self.unit_place(unit).0
    }

    /// A page that a record is to change, unless it includes it already; `again` also when it is the last that it includes.
    #[inline]
    fn touch(&mut self, page: u32, lsn: Lsn, again: bool) -> Option<&mut [u8]> {
        let last = page::lsn(self.page(page));
        if last > lsn.0 || (last == lsn.0 && !again) {
            return None;
        }
        if self.since[page as usize] == 0 {
            self.since[page as usize] = lsn.0;
            self.dirty.push_back(page);
        }
        let page = self.page_mut(page);
        page::set_lsn(page, lsn.0);
        Some(page)
    }

    /// Visits the pages of a range of units: the page, the units there, and which of the range comes first.
    fn each_page(
        &mut self,
        units: Range<u64>,
        lsn: Lsn,
        again: bool,
        mut each: impl FnMut(&mut [u8], Range<u32>, usize),
    ) -> Result<(), Illegal> {
        if units.start > units.end || units.end > self.layout.units() {
            return Err(Illegal("it speaks of units that are not there"));
        }
        let per_page = self.layout.shape.units;
        let mut at = units.start;
        while at < units.end {
            let (page, first) = self.unit_place(at);
            let count = u64::from(per_page - first).min(units.end - at) as u32;
            if let Some(page) = self.touch(page, lsn, again) {
                each(page, first..first + count, (at - units.start) as usize);
            }
            at += u64::from(count);
        }
        Ok(())
    }

    fn set_units(
        &mut self,
        units: Range<u64>,
        lsn: Lsn,
        again: bool,
        new: impl Fn((bool, bool), u32) -> ((bool, bool), u32),
    ) -> Result<(), Illegal> {
        let shape = self.layout.shape;
        self.each_page(units, lsn, again, |page, range, _| {
            for unit in range {
                let (state, sum) = new(shape.state(page, unit), shape.sum(page, unit));
                shape.set(page, unit, state, sum);
            }
        })
    }

    /// The units of a block, if there can be one of this class at this slot.
    fn block_units(&self, slot: u32, class: u8) -> Result<Range<u64>, Illegal> {
        let geometry = &self.layout.geometry;
        if usize::from(class) >= geometry.classes() {
            return Err(Illegal("it speaks of a block size that there is not"));
        }
        let pieces = geometry.class_pieces(usize::from(class));
        if slot >= geometry.slots() || !u64::from(slot).is_multiple_of(pieces) {
            return Err(Illegal("it speaks of a slot where no block of its size can begin"));
        }
        // A group is a multiple of each size, so what is aligned lies within one.
        Ok(self.layout.block_units(slot, usize::from(class)))
    }

    fn set_slot(
        &mut self,
        slot: u32,
        lsn: Lsn,
        again: bool,
        new: impl FnOnce(Option<SlotEntry>) -> Result<Option<SlotEntry>, Illegal>,
    ) -> Result<(), Illegal> {
        if slot >= self.layout.geometry.slots() {
            return Err(Illegal("it speaks of a slot that is not there"));
        }
        let shape = self.layout.shape;
        let (page, at) = self.slot_place(slot);
        if let Some(page) = self.touch(page, lsn, again) {
            let entry = new(shape.slot(page, at))?;
            shape.set_slot(page, at, entry);
        }
        Ok(())
    }

    /// Applies a record to the pages that do not include it yet. With `again` it may be one of several with the same LSN.
    ///
    /// # Errors
    /// What can be no record of this cache; some pages may have taken it all the same.
    pub fn apply(&mut self, lsn: Lsn, record: &Record<'_>, again: bool) -> Result<(), Illegal> {
        match record {
            &Record::Map { slot, class, volume, piece } => {
                let units = self.block_units(slot, class)?;
                let pieces = self.layout.geometry.class_pieces(usize::from(class));
                if volume >= VOLUMES_MAX || piece >= PIECES_MAX || !piece.is_multiple_of(pieces) {
                    return Err(Illegal("it speaks of an address where no block of its size can begin"));
                }
                // Slot first: its page is among those of the units, and would seem to include the record already.
                self.set_slot(slot, lsn, again, |_| {
                    Ok(Some(SlotEntry { class, volume, piece, open: false }))
                })?;
                self.set_block(slot, units, lsn, again)
            }
            &Record::Unmap { slot, class } => {
                let units = self.block_units(slot, class)?;
                self.set_slot(slot, lsn, again, |_| Ok(None))?;
                self.set_block(slot, units, lsn, again)
            }
            &Record::Units { first, dirty, sums } => {
                let shape = self.layout.shape;
                let end = first.checked_add(sums.len() as u64).ok_or(Illegal("its units have no end"))?;
                self.each_page(first..end, lsn, again, |page, range, offset| {
                    for (unit, sum) in range.zip(&sums[offset..]) {
                        shape.set(page, unit, (true, dirty), *sum);
                    }
                })
            }
            &Record::Open { slot } | &Record::Close { slot } => {
                let open = matches!(record, Record::Open { .. });
                let no_block = Illegal("it opens or closes a block that is not there");
                self.set_slot(slot, lsn, again, |entry| {
                    Ok(Some(SlotEntry { open, ..entry.ok_or(no_block)? }))
                })
            }
            Record::Clean(units) => self
                .set_units(units.clone(), lsn, again, |(valid, dirty), sum| ((valid, dirty && !valid), sum)),
            Record::Drop(units) => self.set_units(units.clone(), lsn, again, |(valid, dirty), sum| {
                ((false, false), if valid || dirty { GONE } else { sum })
            }),
            Record::Poison(units) => self.set_units(units.clone(), lsn, again, |_, _| ((false, true), GONE)),
            Record::Page { page, .. } if *page >= self.layout.pages => {
                Err(Illegal("it speaks of a page that is not there"))
            }
            Record::Volume(_) | Record::Page { .. } | Record::Mend => Ok(()),
        }
    }

    /// Makes all units of a block invalid and unrecorded. The slot's page was touched just before by the same record.
    fn set_block(&mut self, slot: u32, units: Range<u64>, lsn: Lsn, again: bool) -> Result<(), Illegal> {
        let (home, _) = self.slot_place(slot);
        let per_page = u64::from(self.layout.shape.units);
        let end_here = units.end.min((u64::from(home) + 1) * per_page);
        // Only if that page took the record: one that is ahead of it keeps what it has.
        if page::lsn(self.page(home)) == lsn.0 {
            self.set_units(units.start..end_here, lsn, true, |_, _| ((false, false), 0))?;
        }
        self.set_units(end_here..units.end, lsn, again, |_, _| ((false, false), 0))
    }

    /// The LSN of the first record that the image of some page does not include.
    pub fn oldest(&self) -> Option<Lsn> {
        self.dirty.front().map(|page| Lsn(self.since[*page as usize]))
    }

    /// Pages whose images do not include all records.
    pub fn dirty_pages(&self) -> usize {
        self.dirty.len()
    }

    /// Takes the page that waits longest for its image to be written: the page, and the first record that its image lacks.
    pub fn take_dirty(&mut self) -> Option<(u32, Lsn)> {
        let page = self.dirty.pop_front()?;
        Some((page, Lsn(std::mem::take(&mut self.since[page as usize]))))
    }

    /// Copies the image of a page with the next version, including all records up to `lsn`, into a page of memory.
    pub fn capture(&mut self, number: u32, uuid: &[u8; 16], lsn: Lsn, image: &mut [u8]) -> u64 {
        let page = self.page_mut(number);
        page::set_lsn(page, lsn.0);
        let version = page::version(page) + 1;
        page::seal(page, uuid, number, version);
        image.copy_from_slice(page);
        version
    }

    /// Visits the blocks in the order of slots.
    pub fn each_block(&self, mut each: impl FnMut(&BlockState, bool)) {
        let mut block = BlockState::default();
        for slot in 0..self.layout.geometry.slots() {
            let Some(SlotEntry { class, volume, piece, open }) = self.slot(slot) else { continue };
            (block.slot, block.class, block.volume, block.piece) = (slot, class, volume, piece);
            block.valid.clear();
            block.dirty.clear();
            block.poisoned.clear();
            for unit in self.layout.block_units(slot, usize::from(class)) {
                let (state, _) = self.unit(unit);
                if matches!(state, UnitState::Clean | UnitState::Dirty) {
                    push(&mut block.valid, unit);
                }
                match state {
                    UnitState::Dirty => push(&mut block.dirty, unit),
                    UnitState::Poisoned => push(&mut block.poisoned, unit),
                    UnitState::Invalid | UnitState::Clean => (),
                }
            }
            each(&block, open);
        }
    }

    /// Whether blocks are where they can be: none over another, one size in a group.
    pub fn check(&self) -> Result<(), Illegal> {
        let (mut end, mut last) = (0, None);
        for slot in 0..self.layout.geometry.slots() {
            let Some(entry) = self.slot(slot) else { continue };
            let units = self.block_units(slot, entry.class)?;
            if units.start < end {
                return Err(Illegal("two blocks lie over each other"));
            }
            end = units.end;
            let group = self.layout.geometry.group_of(slot);
            if last.is_some_and(|(of, class)| of == group && class != entry.class) {
                return Err(Illegal("a group has blocks of two sizes"));
            }
            last = Some((group, entry.class));
        }
        Ok(())
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.pages.len() + self.since.len() * 8 + self.dirty.capacity() * 4) as u64
    }
}

/// Appends a unit to runs.
pub(super) fn push(runs: &mut Vec<Range<u64>>, unit: u64) {
    match runs.last_mut() {
        Some(last) if last.end == unit => last.end += 1,
        _ => runs.push(unit..unit + 1),
    }
}
