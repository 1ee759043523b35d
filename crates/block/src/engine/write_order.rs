//! Write order: what must be durable before something else may happen, and the log records that ensure it.

use std::ops::Range;

use tiermem_policy::evict::Order;
use tiermem_policy::extents::{Event, Extents, Geometry, Map, Mode, OpenBlocks, Part, UNIT_BYTES, Volume};

use super::op::{Op, units_of};
use super::unflushed_writes::{Generation, Owed};
use super::unmapped::Unmapped;
use crate::journal::{Lsn, Record, UnitState, Wait};

mod log;

pub(super) use log::Log;

/// Most bytes of writes answered before they are stored.
const EARLY_BYTES_MAX: u64 = 16 << 20;

/// The order of writes of a cache that outlives the process: what is remembered of its [`Log`]. Of one that does not nothing is
/// remembered, and nothing waits.
pub(super) struct WriteOrder {
    open: OpenBlocks<Lsn>,
    /// Where mappings may come back that are gone.
    unmapped: Unmapped,
    /// Operations that overwrite units neither promised nor sealed, and those that
    /// are already answered as done: a later flush must wait for what they write.
    owed: Owed,
    /// Ranges of volumes that are in the store, until the log says so durably.
    cleaned: Vec<(Lsn, usize, Vec<Range<u64>>)>,
    /// Changes of the map that are being written down, kept for their memory.
    events: Vec<Event>,
}

/// What a flush that comes must wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Promise {
    /// These writes must be over; only then is known up to where the log must be durable.
    pub owed: Option<Generation>,
    /// The log must be durable up to here.
    pub log: Option<Lsn>,
}

/// The units of a part, in the cache.
pub(super) fn units_at(part: &Part) -> Range<u64> {
    part.at / UNIT_BYTES..(part.at + part.bytes) / UNIT_BYTES
}

impl WriteOrder {
    /// Of a cache in which nothing was done yet.
    pub fn new(geometry: &Geometry) -> Self {
        WriteOrder {
            open: OpenBlocks::default(),
            unmapped: Unmapped::new(geometry.group_bytes() / UNIT_BYTES),
            owed: Owed::default(),
            cleaned: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Leaves the log in order: of what is left open the next start would keep nothing that is clean. Up to where that is.
    pub fn close(&mut self, log: &mut Log) -> Wait {
        let Some(journal) = log.journal_mut() else { return Wait::default() };
        self.open.close_all(|slot| _ = journal.append(Record::Close { slot }));
        let sealed = journal.appended();
        journal.want_sealed(sealed);
        journal.want_checkpoint();
        Wait { sealed, ..Wait::default() }
    }

    /// Closes blocks that nobody has written to for a while, and has that sealed: from then on damage to them is told from a write that
    /// the end of the process cut off.
    pub fn close_idle(&mut self, log: &mut Log, now_ns: u64) {
        if !log.has_room() || self.open.look_at_ns().is_none_or(|at_ns| now_ns < at_ns) {
            return;
        }
        let Some(journal) = log.journal_mut().filter(|journal| journal.failed().is_none()) else { return };
        let mut any = false;
        self.open.close_idle(now_ns, |slot| {
            any = true;
            journal.append(Record::Close { slot });
        });
        if any {
            let sealed = journal.appended();
            journal.want_sealed(sealed);
        }
    }

    /// When [`Self::close_idle`] has something to do next.
    pub fn closes_at_ns(&self, log: &Log) -> Option<u64> {
        self.open.look_at_ns().filter(|_| log.failure().is_none() && log.has_room())
    }

    /// Blocks were mapped or unmapped.
    pub fn note_map(&mut self, log: &mut Log, extents: &mut Extents<Order>) {
        let Some(journal) = log.journal_mut() else { return };
        extents.changes_mut().take(&mut self.events);
        for event in self.events.drain(..) {
            match event {
                Event::Mapped { slot, class, volume, piece } => {
                    let class = class as u8;
                    journal.append(Record::Map { slot, class, volume: volume.0, piece });
                }
                Event::Unmapped { slot, class, volume, piece } => {
                    self.open.forget(slot);
                    let lsn = journal.append(Record::Unmap { slot, class: class as u8 });
                    let geometry = extents.geometry();
                    let per_piece = geometry.piece_units();
                    let units = piece * per_piece..(piece + geometry.class_pieces(class)) * per_piece;
                    self.unmapped.note(volume.0, &units, lsn, journal.synced());
                }
            }
        }
    }

    /// Says in the log what an operation is about to write over; what must be waited for.
    pub fn open_blocks(&mut self, log: &mut Log, op: &mut Op, volume: Volume, mode: Mode, map: &Map) -> Wait {
        let mut wait = Wait::default();
        let Some(journal) = log.journal_mut() else { return wait };
        for part in &op.plan.fill {
            let units = units_at(part);
            if units.clone().all(|unit| !journal.is_recorded(unit)) {
                continue;
            }
            let is_unsealed = journal.is_unsealed(units.clone());
            // A flush that came before this operation does not wait for it, and may promise what this would tear.
            let may_be_promised = is_unsealed && self.owed.is_awaited();
            if may_be_promised || !journal.may_overwrite(units.clone()) {
                wait.sealed = journal.appended();
            } else if op.owed.is_none() && is_unsealed {
                op.owed = Some(self.owed.enter(op.bytes));
            }
            let mut unit = units.start;
            while unit < units.end {
                let Some((_, block)) = map.block_of_unit(unit) else { break };
                let end = (u64::from(block.slot) + block.pieces) * map.geometry().piece_units();
                let slot = block.slot;
                let synced = self.open.enter(slot, || journal.append(Record::Open { slot }));
                wait.synced = wait.synced.max(synced);
                op.opened.push(block.slot);
                unit = end;
            }
        }
        if mode == Mode::WriteAround || op.plan.fill.is_empty() {
            for part in &op.plan.dropped {
                wait.synced = wait.synced.max(journal.append(Record::Drop(units_at(part))));
            }
        }
        // What goes to the store must not be undone by a mapping that comes back.
        if !op.plan.through.is_empty() {
            wait.synced = wait.synced.max(self.unmapped.last_of(volume.0, &op.units()));
        }
        wait
    }

    /// An operation no longer writes over blocks. Flushes that have waited for it, and for no
    /// other, wait from now on for the log, up to the record that they may have waited for.
    pub fn leave_blocks<'a>(
        &mut self,
        log: &mut Log,
        op: &mut Op,
        promises: impl Iterator<Item = &'a mut Promise>,
    ) {
        let Some(journal) = log.journal_mut() else { return };
        for slot in op.opened.drain(..) {
            self.open.leave(slot, |slot| _ = journal.append(Record::Close { slot }));
        }
        if !op.owed.take().is_some_and(|generation| self.owed.leave(generation, op.bytes)) {
            return;
        }
        let lsn = journal.appended();
        for promise in promises {
            if promise.owed.take_if(|owed| self.owed.is_over(*owed)).is_some() {
                promise.log = Some(lsn);
                journal.promise(lsn);
                journal.want_synced(lsn);
            }
        }
    }

    /// The wait required before these units of a volume may change in
    /// the store: no older mapping of them may come back afterwards.
    pub fn before_store(&self, volume: Volume, units: &Range<u64>) -> Wait {
        Wait { synced: self.unmapped.last_of(volume.0, units), ..Wait::default() }
    }

    /// Whether a client may be answered before its write is stored. That promises no more than before, as an unflushed
    /// write may be lost with the process either way. Where there is no log, a cache in memory is written at once.
    pub fn has_early_room(&self, log: &Log, bytes: u64) -> bool {
        log.is_kept() && self.owed.bytes() + bytes <= EARLY_BYTES_MAX
    }

    /// A flush that comes must wait until an operation is over.
    pub fn owe(&mut self, log: &Log, op: &mut Op) {
        if log.is_kept() && op.owed.is_none() {
            op.owed = Some(self.owed.enter(op.bytes));
        }
    }

    /// A flush arrives: the condition that it must wait for, so that all writes answered as done are durable.
    pub fn flush(&mut self, log: &mut Log) -> Promise {
        let Some(journal) = log.journal_mut() else { return Promise::default() };
        let lsn = journal.appended();
        journal.promise(lsn);
        let owed = self.owed.flush();
        let waits = owed.is_none() && lsn > journal.synced();
        if waits {
            journal.want_synced(lsn);
        }
        Promise { owed, log: waits.then_some(lsn) }
    }

    /// These parts of a volume are not cached any more.
    pub fn note_dropped(&mut self, log: &mut Log, volume: Volume, parts: &[Part]) {
        let Some(journal) = log.journal_mut() else { return };
        for part in parts {
            let lsn = journal.append(Record::Drop(units_at(part)));
            let units = units_of(&(part.offset..part.offset + part.bytes));
            self.unmapped.note(volume.0, &units, lsn, journal.synced());
        }
    }

    /// A write did not bring a unit into the cache, whose bytes are the last ones now that may be read at this byte of the volume: no
    /// older content may come back in their place. What was promised of it and is gone is an error after a crash.
    pub fn note_unstored(&mut self, log: &mut Log, volume: Volume, offset: u64, unit: u64) {
        let Some(journal) = log.journal_mut() else { return };
        match journal.state(unit) {
            UnitState::Invalid => {}
            UnitState::Clean => {
                let part = Part { offset, at: unit * UNIT_BYTES, bytes: UNIT_BYTES };
                self.note_dropped(log, volume, &[part]);
            }
            UnitState::Dirty | UnitState::Poisoned => _ = journal.append(Record::Poison(unit..unit + 1)),
        }
    }

    /// These parts, of ranges of the volume at a place, are durable in the store. [`Self::take_cleaned`] returns
    /// the ranges once the log says so durably: until then no other data may be written to their places.
    pub fn note_clean(&mut self, log: &mut Log, parts: &[Part], volume: usize, ranges: Vec<Range<u64>>) {
        let Some(journal) = log.journal_mut() else { return };
        let mut lsn = journal.appended();
        for part in parts {
            lsn = journal.append(Record::Clean(units_at(part)));
        }
        journal.want_synced(lsn);
        self.cleaned.push((lsn, volume, ranges));
    }

    /// The ranges of volumes of which the log has said durably that they are clean; all of them where it never will.
    pub fn take_cleaned(&mut self, log: &Log) -> Vec<(usize, Vec<Range<u64>>)> {
        let mut settled = Vec::new();
        let Some(journal) = log.journal() else { return settled };
        let (synced, has_failed) = (journal.synced(), journal.failed().is_some());
        self.cleaned.retain_mut(|(lsn, volume, ranges)| {
            let is_settled = has_failed || *lsn <= synced;
            if is_settled {
                settled.push((*volume, std::mem::take(ranges)));
            }
            !is_settled
        });
        settled
    }

    /// Whether all that is clean has been noted, or never will be.
    pub fn is_settled(&self, log: &Log) -> bool {
        self.cleaned.is_empty() || log.failure().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::op::Kind;
    use crate::journal::{self, Journal, LayoutConfig};
    use tiermem_base::Rng;
    use tiermem_policy::evict::Named;
    use tiermem_policy::extents::{Config, Fill, Request, Sizing, Verdict};
    use tiermem_tier::block::MemoryDisk;

    const BLOCK: u64 = 64 << 10;
    const VOLUME: Volume = Volume(0);

    /// A log, and what is remembered of it.
    struct Written {
        log: Log,
        order: WriteOrder,
    }

    /// A log on an empty device, and a cache of which it says everything.
    fn empty() -> (Written, Extents<Order>) {
        let mut disk = MemoryDisk::new(4 << 20).open();
        let layout = LayoutConfig { block_bytes: vec![BLOCK], group_bytes: None, log_bytes: Some(512 << 10) };
        journal::format(&mut disk, &layout, false).unwrap();
        let (journal, _) = journal::open(&mut disk, &layout, None).unwrap();
        let config = Config { fill: Fill::Units, sizing: Sizing::Request, shares: 1 };
        let order = Order::new(Named::Lru, Extents::<Order>::domains(1), 0);
        let mut extents = Extents::new(journal.layout().geometry.clone(), config, order, Rng::seeded(1));
        extents.changes_mut().record(true);
        let order = WriteOrder::new(extents.geometry());
        (Written { log: Log::new(Some(journal)), order }, extents)
    }

    /// Plans a write of the first unit of a block.
    fn write(written: &mut Written, extents: &mut Extents<Order>, block: u64) -> Op {
        let mut op = Op { kind: Kind::Write, offset: block * BLOCK, bytes: UNIT_BYTES, ..Op::default() };
        let write = Some(Mode::WriteBack);
        let request = Request { volume: VOLUME, offset: op.offset, bytes: op.bytes, write, bypass: false };
        assert_eq!(extents.plan(&request, &mut op.plan), Verdict::Ready);
        extents.finish(&mut op.plan);
        written.order.note_map(&mut written.log, extents);
        op
    }

    fn open(Written { log, order }: &mut Written, extents: &Extents<Order>, op: &mut Op) -> Wait {
        order.open_blocks(log, op, VOLUME, Mode::WriteBack, extents.map())
    }

    #[test]
    fn what_a_flush_that_waits_is_to_promise_is_written_over_only_when_it_is_sealed() {
        for flushes in [false, true] {
            let (mut written, mut extents) = empty();
            let mut early = write(&mut written, &mut extents, 1);
            written.order.owe(&written.log, &mut early);
            let promise = if flushes { written.order.flush(&mut written.log) } else { Promise::default() };
            assert_eq!((promise.owed.is_some(), promise.log), (flushes, None), "it waits for the early one");
            // This comes later than the flush, which promises it all the same: all that is in the log when the early one is over.
            let mut first = write(&mut written, &mut extents, 0);
            assert_eq!(open(&mut written, &extents, &mut first), Wait::default(), "nothing was there");
            first.note_sums(VOLUME, 0, &[7; UNIT_BYTES as usize]);
            written.log.note_stored(&first);
            let mut again = write(&mut written, &mut extents, 0);
            let wait = open(&mut written, &extents, &mut again);
            assert_eq!((wait.sealed > Lsn(0), again.owed.is_some()), (flushes, !flushes));
            assert!(
                written.log.must_wait(7, wait) && written.log.take_woken().is_empty(),
                "the log is not there yet"
            );
        }
    }

    #[test]
    fn a_flush_that_waits_for_writes_waits_for_the_log_when_these_are_over_and_no_sooner() {
        let (mut written, mut extents) = empty();
        let mut ops = [0, 1].map(|block| write(&mut written, &mut extents, block));
        let Written { log, order } = &mut written;
        let mut promises = [Promise::default(); 3];
        for (op, promise) in ops.iter_mut().zip(&mut promises) {
            order.owe(log, op);
            *promise = order.flush(log);
            assert!(promise.owed.is_some() && promise.log.is_none());
        }
        let later = promises[1];
        let mut upto = [None; 2];
        for (op, upto) in ops.iter_mut().zip(&mut upto) {
            op.note_sums(VOLUME, 0, &[7; UNIT_BYTES as usize]);
            log.note_stored(op);
            order.leave_blocks(log, op, promises.iter_mut());
            *upto = log.journal().map(Journal::appended);
            assert!(upto.is_some() && promises[2] == Promise::default(), "who waits for nothing");
            assert!(promises[0].log.is_some() && (promises[1] == later || promises[1].log == *upto));
            assert_eq!(promises[1] == later, op.offset == 0, "the second write came behind the first flush");
        }
        assert_eq!(promises.map(|promise| promise.log), [upto[0], upto[1], None]);
        assert_ne!(upto[0], upto[1]);
    }

    #[test]
    fn nothing_goes_to_a_store_before_older_mappings_are_gone_durably() {
        let (mut written, mut extents) = empty();
        write(&mut written, &mut extents, 0);
        let units = 0..BLOCK / UNIT_BYTES;
        assert_eq!(written.order.before_store(VOLUME, &units), Wait::default(), "nothing is gone");
        extents.discard(VOLUME, 0..BLOCK);
        written.order.note_map(&mut written.log, &mut extents);
        let wait = written.order.before_store(VOLUME, &units);
        assert!(
            wait.synced > Lsn(0)
                && written.order.before_store(VOLUME, &(units.end..units.end + 1)) == Wait::default()
        );
        let through = |offset: u64| {
            let mut op = Op { kind: Kind::Write, offset, bytes: UNIT_BYTES, ..Op::default() };
            op.plan.through.push(op.range());
            op
        };
        assert_eq!(open(&mut written, &extents, &mut through(0)), wait);
        assert_eq!(open(&mut written, &extents, &mut through(BLOCK)), Wait::default());
    }

    #[test]
    fn a_cache_without_a_log_waits_for_nothing() {
        let (_, mut extents) = empty();
        let order = WriteOrder::new(extents.geometry());
        let mut written = Written { log: Log::new(None), order };
        let mut op = write(&mut written, &mut extents, 0);
        written.order.owe(&written.log, &mut op);
        assert_eq!(
            (open(&mut written, &extents, &mut op), written.order.flush(&mut written.log)),
            (Wait::default(), Promise::default())
        );
        assert!(op.owed.is_none() && !written.order.has_early_room(&written.log, 0));
    }
}
