//! Torn units: those that power loss may have damaged (rule 5 of `docs/block-design.md`). Units that are
//! open, or have records behind the last seal, are compared with their checksums; all others are strict.
//!
//! A unit that does not fit falls back to its last sealed state. If that was dirty, its sectors are its own, old or
//! new, and it is kept as it is: `may_overwrite` ensures that a unit is not overwritten before its dirtiness is
//! sealed. If it was not, the sectors may be another block's. No flush that covered the unit was followed by a write
//! to it, so no client was promised anything, and the backing store's data count. If it was lost, it still is.

use std::collections::BTreeMap;
use std::ops::Range;

use tiermem_policy::extents::UNIT_BYTES;
use tiermem_tier::block::{AlignedBuffer, BlockIo, Completion, Request};

use super::fetch::fetch;
use super::io;
use super::record::Record;
use super::table::{BlockState, Table, UnitState, push};
use super::{JournalError, Layout, Lsn, checksum};

/// Bytes of a read, and reads in flight.
const READ_UNITS: u64 = 64;
const READS: usize = 16;

/// What to do with a dirty unit that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fallback {
    Drop,
    Take,
    Poison,
}

/// Units with records behind the last seal.
pub struct Suspects {
    layout: Layout,
    sealed: Lsn,
    units: BTreeMap<u64, Fallback>,
    /// Pages with images written by an interrupted recovery: their units were checked then.
    ahead: Vec<bool>,
    /// Blocks with units to look at.
    blocks: Vec<Block>,
}

/// A block with units to look at.
#[derive(Clone, Copy, Debug)]
struct Block {
    slot: u32,
    class: u8,
    is_open: bool,
    volume: u16,
    piece: u64,
}

/// The verdicts of recovery.
#[derive(Debug, Default)]
pub struct Verdicts {
    /// Units that fit.
    pub kept_units: u64,
    /// To be dropped.
    pub dropped: Vec<Range<u64>>,
    /// Dirty, with their new checksums.
    pub taken: Vec<(u64, u32)>,
    /// The same by volume, and by bytes of it.
    pub unchecked: Vec<(u16, Range<u64>)>,
    /// Lost.
    pub poisoned: Vec<Range<u64>>,
    /// Blocks that are open.
    pub open: Vec<u32>,
}

/// A unit to look at.
#[derive(Clone, Copy)]
struct Suspect {
    unit: u64,
    volume: u16,
    offset: u64,
    /// The checksum of what was written there.
    sum: Option<u32>,
    is_open: bool,
}

impl Suspects {
    /// For a table as its images are.
    pub fn new(layout: &Layout, table: &Table, sealed: Lsn) -> Self {
        let ahead = (0..layout.pages).map(|page| table.lsn(page) > sealed).collect();
        Suspects { layout: layout.clone(), sealed, units: BTreeMap::new(), ahead, blocks: Vec::new() }
    }

    /// Takes note of a record that is about to be applied.
    pub fn note(&mut self, table: &Table, lsn: Lsn, record: &Record<'_>) {
        if lsn <= self.sealed {
            return;
        }
        match record {
            Record::Units { first, dirty, sums } => {
                let end = first.saturating_add(sums.len() as u64).min(self.layout.units());
                for unit in *first..end {
                    if self.ahead[table.page_of(unit) as usize] {
                        continue;
                    }
                    let sealed = match table.state(unit) {
                        _ if !dirty => Fallback::Drop,
                        // Without a record behind the seal it is as it was then.
                        UnitState::Dirty => Fallback::Take,
                        UnitState::Poisoned => Fallback::Poison,
                        UnitState::Invalid | UnitState::Clean => Fallback::Drop,
                    };
                    let fallback = self.units.entry(unit).or_insert(sealed);
                    if !dirty {
                        *fallback = Fallback::Drop;
                    }
                }
            }
            Record::Map { slot, class, .. } | Record::Unmap { slot, class }
                if usize::from(*class) < self.layout.geometry.classes() =>
            {
                self.set(self.layout.block_units(*slot, usize::from(*class)), Fallback::Drop);
            }
            Record::Clean(units) | Record::Drop(units) => self.set(units.clone(), Fallback::Drop),
            Record::Poison(units) => self.set(units.clone(), Fallback::Poison),
            _ => (),
        }
    }

    fn set(&mut self, units: Range<u64>, to: Fallback) {
        if units.start < units.end {
            self.units.range_mut(units).for_each(|(_, fallback)| *fallback = to);
        }
    }

    /// Takes note of a block, as it is after all records.
    pub fn meet(&mut self, block: &BlockState, is_open: bool) {
        let units = self.layout.block_units(block.slot, usize::from(block.class));
        if is_open || self.units.range(units).next().is_some() {
            let &BlockState { slot, class, volume, piece, .. } = block;
            self.blocks.push(Block { slot, class, is_open, volume, piece });
        }
    }

    /// Reads the data of all that are valid, and judges them.
    pub fn judge(
        &self,
        device: &mut dyn BlockIo,
        table: &mut Table,
        uuid: &[u8; 16],
    ) -> Result<Verdicts, JournalError> {
        let mut verdicts = Verdicts::default();
        let mut batch = Vec::new();
        for block in &self.blocks {
            if block.is_open {
                verdicts.open.push(block.slot);
            }
            let all = self.layout.block_units(block.slot, usize::from(block.class));
            let piece_bytes = self.layout.geometry.piece_bytes();
            for unit in all.clone() {
                let is_valid = matches!(table.state(unit), UnitState::Clean | UnitState::Dirty);
                if is_valid && (block.is_open || self.units.contains_key(&unit)) {
                    table.make_room();
                    fetch(device, table, uuid, table.page_of(unit))?;
                    let sum = table.sum(unit);
                    let offset = block.piece * piece_bytes + (unit - all.start) * UNIT_BYTES;
                    batch.push(Suspect { unit, volume: block.volume, offset, sum, is_open: block.is_open });
                }
            }
            if batch.len() as u64 >= READS as u64 * READ_UNITS {
                self.judge_some(device, table, &mut batch, &mut verdicts);
            }
        }
        self.judge_some(device, table, &mut batch, &mut verdicts);
        Ok(verdicts)
    }

    fn judge_some(
        &self,
        device: &mut dyn BlockIo,
        table: &Table,
        suspects: &mut Vec<Suspect>,
        verdicts: &mut Verdicts,
    ) {
        // A block may be larger than what is read at once.
        for suspects in suspects.chunks(READS * READ_UNITS as usize) {
            let requests = suspects
                .chunk_by(|a, b| a.unit + 1 == b.unit && !b.unit.is_multiple_of(READ_UNITS))
                .map(|run| self.read(run[0].unit, run.len()))
                .collect();
            let mut data = BTreeMap::new();
            for done in io::all(device, requests) {
                data.insert((done.offset - self.layout.data_at) / UNIT_BYTES, done);
            }
            for suspect in suspects {
                let found = self.found(device, &data, suspect);
                self.judge_one(table, suspect, found, verdicts);
            }
        }
        suspects.clear();
    }

    fn read(&self, unit: u64, units: usize) -> Request {
        let buffer = AlignedBuffer::zeroed(units * UNIT_BYTES as usize);
        Request::read(unit, self.layout.unit_at(unit), buffer)
    }

    /// The checksum of what lies there; `None` if it cannot be read, also not alone.
    fn found(&self, device: &mut dyn BlockIo, data: &BTreeMap<u64, Completion>, it: &Suspect) -> Option<u32> {
        let (first, done) = data.range(..=it.unit).next_back()?;
        if done.result.is_ok() {
            let at = (it.unit - first) as usize * UNIT_BYTES as usize;
            return Some(checksum(it.volume, it.offset, &done.buffer[at..at + UNIT_BYTES as usize]));
        }
        let alone = io::read(device, self.layout.unit_at(it.unit), UNIT_BYTES as usize).ok()?;
        Some(checksum(it.volume, it.offset, &alone))
    }

    fn judge_one(&self, table: &Table, it: &Suspect, found: Option<u32>, verdicts: &mut Verdicts) {
        let is_clean = table.state(it.unit) == UnitState::Clean;
        // The backing store may have been written past a clean unit of an open block, so that it does not even matter whether it fits.
        if is_clean && it.is_open {
            return push(&mut verdicts.dropped, it.unit);
        }
        let fallback = match self.units.get(&it.unit) {
            Some(fallback) => *fallback,
            // Untouched since it was sealed as dirty. But a verdict of an
            // earlier recovery must fit, and is checked when it is read.
            None if self.ahead[table.page_of(it.unit) as usize] => return verdicts.kept_units += 1,
            None => Fallback::Take,
        };
        match (found, fallback) {
            (Some(found), _) if Some(found) == it.sum => verdicts.kept_units += 1,
            _ if is_clean => push(&mut verdicts.dropped, it.unit),
            (Some(_), Fallback::Drop) => push(&mut verdicts.dropped, it.unit),
            (Some(found), Fallback::Take) => {
                verdicts.taken.push((it.unit, found));
                let bytes = it.offset..it.offset + UNIT_BYTES;
                match verdicts.unchecked.last_mut() {
                    Some((volume, last)) if *volume == it.volume && last.end == bytes.start => {
                        last.end = bytes.end
                    }
                    _ => verdicts.unchecked.push((it.volume, bytes)),
                }
            }
            // It may have been durable, and a flush acknowledged: nothing older may be given out in its place.
            (None, _) | (_, Fallback::Poison) => push(&mut verdicts.poisoned, it.unit),
        }
    }
}
