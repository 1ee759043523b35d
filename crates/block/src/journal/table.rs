//! Table: the state of every unit and slot, in pages. One function changes it, during operation and in recovery alike.
//!
//! Every page knows the LSN up to which it includes records, and skips those that it includes already. So a record
//! with units in several pages is applied to each page separately, no matter which of their images a crash has left.
//!
//! The states of units ([`States`]) are always in memory. Checksums and slots, most of a page, are in
//! memory for the recently used pages ([`Frames`]), which may be all. Changes of a page that is not in
//! memory wait until it is read. A page stays in memory as long as its image on the device lacks records.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::page::{self, PAGE_BYTES, PageShape, SlotEntry};
use super::page_buffers::{Frames, NO_FRAME};
use super::record::{PIECES_MAX, Record, VOLUMES_MAX};
use super::states::{Change, States};
use super::{Layout, Lsn};

pub use super::states::UnitState;

/// A record that does not fit the table: what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Illegal(pub &'static str);

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
    /// The dirty ones among them.
    pub dirty: Vec<Range<u64>>,
    /// Units that are lost: reading them is an error.
    pub poisoned: Vec<Range<u64>>,
}

/// State of a page without its bytes.
#[derive(Clone, Copy, Debug)]
struct PageInfo {
    /// Up to where it includes records.
    lsn: Lsn,
    /// The first record that its image on the device does not include; 0: there is none.
    since: Lsn,
    /// Low part of the version of that image.
    version: u32,
    frame: u32,
    /// It is to be read.
    is_wanted: bool,
    /// Its image could not be read, or is not what was written.
    is_lost: bool,
    /// Its next image is being written.
    is_leaving: bool,
}

/// A record's change to a page's bytes.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Sum { unit: u32, sum: u32 },
    Slot { slot: u32, entry: Option<SlotEntry> },
    Open { slot: u32, open: bool },
}

impl Entry {
    fn write(self, shape: PageShape, page: &mut [u8]) -> Result<(), Illegal> {
        match self {
            Entry::Sum { unit, sum } => shape.set_sum(page, unit, sum),
            Entry::Slot { slot, entry } => shape.set_slot(page, slot, entry),
            Entry::Open { slot, open } => {
                let there =
                    shape.slot(page, slot).ok_or(Illegal("it opens or closes a block that is not there"))?;
                shape.set_slot(page, slot, Some(SlotEntry { open, ..there }));
            }
        }
        Ok(())
    }
}

/// The pages.
#[derive(Debug)]
pub struct Table {
    layout: Layout,
    states: States,
    pages: Vec<PageInfo>,
    frames: Frames,
    /// What pages that are not in memory lack, in order.
    late: HashMap<u32, Vec<Entry>>,
    /// Pages to be read.
    wanted: VecDeque<u32>,
    /// Pages with images that lack records, in the order of the first such record.
    dirty: VecDeque<u32>,
}

/// The parts of a range of units by pages: the page, its units, and which of the range comes first.
fn spans(units: Range<u64>, per_page: u32) -> impl Iterator<Item = (u32, Range<u32>, usize)> {
    let mut at = units.start;
    std::iter::from_fn(move || {
        let left = units.end.saturating_sub(at);
        let first = (at % u64::from(per_page)) as u32;
        let count = u64::from(per_page - first).min(left) as u32;
        let span = ((at / u64::from(per_page)) as u32, first..first + count, (at - units.start) as usize);
        at += u64::from(count);
        (left > 0).then_some(span)
    })
}

impl Table {
    /// A table without any image yet. At most `pages_max` pages are
    /// in memory, beside those with images that lack records.
    pub fn new(layout: &Layout, pages_max: usize) -> Self {
        let (lsn, frame) = (Lsn(0), NO_FRAME);
        let nothing = PageInfo {
            lsn,
            since: lsn,
            version: 0,
            frame,
            is_wanted: false,
            is_lost: false,
            is_leaving: false,
        };
        Table {
            layout: layout.clone(),
            states: States::new(layout.shape, layout.pages),
            pages: vec![nothing; layout.pages as usize],
            frames: Frames::new(pages_max),
            late: HashMap::new(),
            wanted: VecDeque::new(),
            dirty: VecDeque::new(),
        }
    }

    /// Takes a page's image from the device, at start.
    pub fn load(&mut self, page: u32, image: &[u8]) {
        let info = &mut self.pages[page as usize];
        (info.lsn, info.version) = (Lsn(page::lsn(image)), page::version(image) as u32);
        self.states.load(page, image);
        if self.frames.has_room() {
            info.frame = self.frames.insert(page, image);
        }
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

    /// The block that begins at a slot; `None` also where the page is not in memory.
    pub fn slot(&self, slot: u32) -> Option<SlotEntry> {
        let (page, at) = self.slot_place(slot);
        let frame = self.pages[page as usize].frame;
        if frame == NO_FRAME { None } else { self.layout.shape.slot(self.frames.get(frame), at) }
    }

    /// A unit's state.
    #[inline]
    pub fn state(&self, unit: u64) -> UnitState {
        let (page, at) = self.unit_place(unit);
        self.states.get(page, at)
    }

    /// The checksum of a valid unit; `None` also where the page is not in memory.
    #[inline]
    pub fn sum(&self, unit: u64) -> Option<u32> {
        let (page, at) = self.unit_place(unit);
        let frame = self.pages[page as usize].frame;
        let is_valid = matches!(self.states.get(page, at), UnitState::Clean | UnitState::Dirty);
        (is_valid && frame != NO_FRAME).then(|| self.layout.shape.sum(self.frames.get(frame), at))
    }

    /// Whether there was any record of a unit since its block was mapped.
    #[inline]
    pub fn is_recorded(&self, unit: u64) -> bool {
        let (page, at) = self.unit_place(unit);
        self.states.is_recorded(page, at)
    }

    /// The page that a unit's checksum is in.
    pub fn page_of(&self, unit: u64) -> u32 {
        self.unit_place(unit).0
    }

    /// Up to where a page includes records.
    pub fn lsn(&self, page: u32) -> Lsn {
        self.pages[page as usize].lsn
    }

    /// Where on the device a page's image lies.
    pub fn image_at(&self, page: u32) -> u64 {
        self.layout.page_at(page, u64::from(self.pages[page as usize].version))
    }

    /// # Errors
    /// When an image is not what was written last of this page.
    pub fn recognise(&self, page: u32, image: &[u8], uuid: &[u8; 16]) -> Result<(), Illegal> {
        let version = self.pages[page as usize].version;
        let is_sound = page::is_sound(image, uuid, page, u64::from(version % 2));
        if is_sound && page::version(image) as u32 == version {
            return Ok(());
        }
        Err(Illegal("a page of the table is not as it was written"))
    }

    /// Whether a page is in memory.
    #[inline]
    pub fn is_here(&self, page: u32) -> bool {
        self.pages[page as usize].frame != NO_FRAME
    }

    /// Whether the checksums of these units are in memory, or lost. Others will be read.
    #[inline]
    pub fn has_sums(&mut self, units: Range<u64>) -> bool {
        let mut all = true;
        for (page, _, _) in spans(units, self.layout.shape.units) {
            let info = self.pages[page as usize];
            match info.frame {
                NO_FRAME if !info.is_lost => {
                    all = false;
                    self.want(page);
                }
                NO_FRAME => (),
                frame => self.frames.used(frame),
            }
        }
        all
    }

    /// Whether checksums of these units are lost.
    pub fn has_lost_sums(&self, units: Range<u64>) -> bool {
        spans(units, self.layout.shape.units).any(|(page, _, _)| self.pages[page as usize].is_lost)
    }

    /// A page could not be read.
    pub fn lose(&mut self, page: u32) {
        self.pages[page as usize].is_lost = true;
    }

    fn want(&mut self, page: u32) {
        let info = &mut self.pages[page as usize];
        if !info.is_wanted {
            info.is_wanted = true;
            self.wanted.push_back(page);
        }
    }

    /// The next page that is to be read.
    pub fn next_wanted(&mut self) -> Option<u32> {
        self.wanted.pop_front()
    }

    /// A page was read: takes it into memory, and all that it lacks.
    ///
    /// # Errors
    /// When it is not what was written last; when what it lacks cannot be.
    pub fn arrived(&mut self, page: u32, image: &[u8], uuid: &[u8; 16]) -> Result<(), Illegal> {
        let info = &mut self.pages[page as usize];
        info.is_wanted = false;
        if info.frame != NO_FRAME {
            return Ok(());
        }
        self.recognise(page, image, uuid)?;
        let info = &mut self.pages[page as usize];
        info.frame = self.frames.insert(page, image);
        let bytes = self.frames.get_mut(info.frame);
        let late = self.late.remove(&page).unwrap_or_default();
        late.into_iter().try_for_each(|entry| entry.write(self.layout.shape, bytes))
    }

    /// Drops pages from memory where there are too many, only those with complete images.
    #[inline]
    pub fn make_room(&mut self) {
        let pages = &mut self.pages;
        let may_go = |pages: &[PageInfo], page: u32| {
            let info = &pages[page as usize];
            info.since == Lsn(0) && !info.is_leaving
        };
        while let Some(page) = self.frames.evict(|page| may_go(pages, page)) {
            pages[page as usize].frame = NO_FRAME;
        }
    }

    /// Whether a record changes a page: not where it includes it already. With `again` also when it is the last that it includes.
    #[inline]
    fn touch(&mut self, page: u32, lsn: Lsn, again: bool) -> bool {
        let info = &mut self.pages[page as usize];
        if info.lsn > lsn || (info.lsn == lsn && !again) {
            return false;
        }
        if info.since == Lsn(0) {
            info.since = lsn;
            self.dirty.push_back(page);
        }
        info.lsn = lsn;
        // Its image will be written, and that takes all of it.
        if info.frame == NO_FRAME {
            self.want(page);
        }
        true
    }

    fn change_units(
        &mut self,
        units: Range<u64>,
        lsn: Lsn,
        again: bool,
        change: Change,
    ) -> Result<(), Illegal> {
        self.check_units(&units)?;
        for (page, range, _) in spans(units, self.layout.shape.units) {
            if self.touch(page, lsn, again) {
                self.states.change(page, range, change);
            }
        }
        Ok(())
    }

    fn check_units(&self, units: &Range<u64>) -> Result<(), Illegal> {
        if units.start > units.end || units.end > self.layout.units() {
            return Err(Illegal("it speaks of units that are not there"));
        }
        Ok(())
    }

    /// Writes what a record says into a page, or keeps it for when it is there.
    fn enter(&mut self, page: u32, entry: Entry) -> Result<(), Illegal> {
        match self.pages[page as usize].frame {
            NO_FRAME => self.late.entry(page).or_default().push(entry),
            frame => entry.write(self.layout.shape, self.frames.get_mut(frame))?,
        }
        Ok(())
    }

    /// Units were written, and have these checksums now.
    fn write_units(
        &mut self,
        first: u64,
        dirty: bool,
        sums: &[u32],
        lsn: Lsn,
        again: bool,
    ) -> Result<(), Illegal> {
        let end = first.checked_add(sums.len() as u64).ok_or(Illegal("its units have no end"))?;
        self.check_units(&(first..end))?;
        let shape = self.layout.shape;
        for (page, units, offset) in spans(first..end, shape.units) {
            if !self.touch(page, lsn, again) {
                continue;
            }
            self.states.change(page, units.clone(), Change::Written { dirty });
            let sums = units.zip(&sums[offset..]);
            match self.pages[page as usize].frame {
                NO_FRAME => {
                    let entries = sums.map(|(unit, sum)| Entry::Sum { unit, sum: *sum });
                    self.late.entry(page).or_default().extend(entries);
                }
                frame => {
                    let page = self.frames.get_mut(frame);
                    sums.for_each(|(unit, sum)| shape.set_sum(page, unit, *sum));
                }
            }
        }
        Ok(())
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

    /// A block begins at a slot, or does not any more; its units are invalid and unrecorded.
    fn set_block(
        &mut self,
        slot: u32,
        class: u8,
        entry: Option<SlotEntry>,
        lsn: Lsn,
        again: bool,
    ) -> Result<(), Illegal> {
        let units = self.block_units(slot, class)?;
        let (home, at) = self.slot_place(slot);
        for (page, range, _) in spans(units, self.layout.shape.units) {
            if self.touch(page, lsn, again) {
                self.states.change(page, range, Change::Begin);
                if page == home {
                    self.enter(page, Entry::Slot { slot: at, entry })?;
                }
            }
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
                self.block_units(slot, class)?;
                let pieces = self.layout.geometry.class_pieces(usize::from(class));
                if volume >= VOLUMES_MAX || piece >= PIECES_MAX || !piece.is_multiple_of(pieces) {
                    return Err(Illegal("it speaks of an address where no block of its size can begin"));
                }
                let entry = SlotEntry { class, volume, piece, open: false };
                self.set_block(slot, class, Some(entry), lsn, again)
            }
            &Record::Unmap { slot, class } => self.set_block(slot, class, None, lsn, again),
            &Record::Units { first, dirty, sums } => self.write_units(first, dirty, sums, lsn, again),
            &Record::Open { slot } | &Record::Close { slot } => {
                if slot >= self.layout.geometry.slots() {
                    return Err(Illegal("it speaks of a slot that is not there"));
                }
                let (page, at) = self.slot_place(slot);
                if self.touch(page, lsn, again) {
                    let open = matches!(record, Record::Open { .. });
                    self.enter(page, Entry::Open { slot: at, open })?;
                }
                Ok(())
            }
            Record::Clean(units) => self.change_units(units.clone(), lsn, again, Change::Clean),
            Record::Drop(units) => self.change_units(units.clone(), lsn, again, Change::Drop),
            Record::Poison(units) => self.change_units(units.clone(), lsn, again, Change::Poison),
            Record::Page { page, .. } if *page >= self.layout.pages => {
                Err(Illegal("it speaks of a page that is not there"))
            }
            Record::Volume(_) | Record::Page { .. } | Record::Mend => Ok(()),
        }
    }

    /// The pages that a record writes into and does not find in memory.
    pub fn missing_for(&self, lsn: Lsn, record: &Record<'_>) -> impl Iterator<Item = u32> {
        let units = match record {
            Record::Units { first, sums, .. } => *first..first.saturating_add(sums.len() as u64),
            Record::Map { slot, .. }
            | Record::Unmap { slot, .. }
            | Record::Open { slot }
            | Record::Close { slot } => {
                let first = u64::from(*slot) * self.layout.geometry.piece_units();
                first..first + 1
            }
            _ => 0..0,
        };
        let end = units.end.min(self.layout.units());
        spans(units.start.min(end)..end, self.layout.shape.units)
            .map(|(page, _, _)| page)
            .filter(move |page| !self.is_here(*page) && self.lsn(*page) <= lsn)
    }

    /// The LSN of the first record that the image of some page does not include.
    pub fn oldest(&self) -> Option<Lsn> {
        self.dirty.front().map(|page| self.pages[*page as usize].since)
    }

    /// Pages with images that do not include all records.
    pub fn dirty_pages(&self) -> usize {
        self.dirty.len()
    }

    /// Most dirty pages that there should be: they stay in memory.
    pub fn dirty_pages_max(&self) -> usize {
        if self.frames.pages_max() >= self.pages.len() { usize::MAX } else { self.frames.pages_max() / 2 }
    }

    /// The page that waits longest for its image to be written.
    pub fn next_dirty(&self) -> Option<u32> {
        self.dirty.front().copied()
    }

    /// Whether that page has to be read first.
    pub fn waits_for_dirty(&self) -> bool {
        self.next_dirty().is_some_and(|page| !self.is_here(page))
    }

    /// Takes that page: the page, and the first record that its image lacks.
    pub fn take_dirty(&mut self) -> Option<(u32, Lsn)> {
        let page = self.dirty.pop_front()?;
        Some((page, std::mem::take(&mut self.pages[page as usize].since)))
    }

    /// Copies the image of a page that is in memory with the next version, including all records up to `lsn`, into a page of memory.
    /// It stays until that is [`Self::written`].
    pub fn capture(&mut self, number: u32, uuid: &[u8; 16], lsn: Lsn, image: &mut [u8]) -> u64 {
        let info = &mut self.pages[number as usize];
        (info.lsn, info.is_leaving) = (lsn, true);
        let page = self.frames.get_mut(info.frame);
        self.states.store(number, page);
        page::set_lsn(page, lsn.0);
        let version = page::version(page) + 1;
        page::seal(page, uuid, number, version);
        image.copy_from_slice(page);
        version
    }

    /// That image is on the device.
    pub fn written(&mut self, page: u32) {
        let info = &mut self.pages[page as usize];
        info.is_leaving = false;
        info.version = info.version.wrapping_add(1);
        self.frames.look_again();
    }

    /// Visits the blocks in the order of slots, and whether each is open. `image` gives the pages
    /// that are not in memory, in order; nothing must have been applied to them since they were read.
    pub fn each_block<E>(
        &self,
        mut image: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
        mut each: impl FnMut(&BlockState, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        debug_assert!(self.late.is_empty(), "pages that are not in memory are as their images are");
        let (shape, piece_units) = (self.layout.shape, self.layout.geometry.piece_units());
        let mut read = vec![0; PAGE_BYTES];
        let mut block = BlockState::default();
        for number in 0..self.layout.pages {
            let page = match self.pages[number as usize].frame {
                NO_FRAME => {
                    image(number, &mut read)?;
                    &read[..]
                }
                frame => self.frames.get(frame),
            };
            let units = u64::from(number) * u64::from(shape.units);
            let first = units.div_ceil(piece_units);
            let end = (units + u64::from(shape.units)).div_ceil(piece_units);
            for slot in first as u32..end.min(u64::from(self.layout.geometry.slots())) as u32 {
                let Some(entry) = shape.slot(page, self.slot_place(slot).1) else { continue };
                self.describe(slot, entry, &mut block);
                each(&block, entry.open)?;
            }
        }
        Ok(())
    }

    fn describe(&self, slot: u32, entry: SlotEntry, block: &mut BlockState) {
        let SlotEntry { class, volume, piece, .. } = entry;
        (block.slot, block.class, block.volume, block.piece) = (slot, class, volume, piece);
        block.valid.clear();
        block.dirty.clear();
        block.poisoned.clear();
        // An impossible block has no units to report: the caller checks it.
        for unit in self.block_units(slot, class).unwrap_or(0..0) {
            let state = self.state(unit);
            if matches!(state, UnitState::Clean | UnitState::Dirty) {
                push(&mut block.valid, unit);
            }
            match state {
                UnitState::Dirty => push(&mut block.dirty, unit),
                UnitState::Poisoned => push(&mut block.poisoned, unit),
                UnitState::Invalid | UnitState::Clean => (),
            }
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let late: usize = self.late.values().map(|late| late.capacity() * size_of::<Entry>()).sum();
        let lists = (self.wanted.capacity() + self.dirty.capacity()) * size_of::<u32>();
        let pages = self.pages.len() * size_of::<PageInfo>();
        self.states.bytes() + self.frames.bytes() + (pages + late + lists) as u64
    }
}

/// Appends a unit to runs.
pub(super) fn push(runs: &mut Vec<Range<u64>>, unit: u64) {
    match runs.last_mut() {
        Some(last) if last.end == unit => last.end += 1,
        _ => runs.push(unit..unit + 1),
    }
}
