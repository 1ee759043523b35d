//! What is written down of what happens to units, and what must be on the device before something else may happen.

use std::ops::Range;

use tiermem_policy::evict::Order;
use tiermem_policy::extents::{Event, Extents, Map, Mode, OpenBlocks, Part, UNIT_BYTES, Volume};
use tiermem_tier::block::{self as device, BlockIo};

use super::op::{Op, common, units_of};
use super::unflushed_writes::{Generation, Owed};
use super::unmapped::Unmapped;
use crate::journal::{
    BlockState, Journal, JournalError, Lsn, Record, Stats, UnitState, VolumeInfo, Wait, checksum,
};

/// Bytes of writes at most that are told to be done before they are stored.
const EARLY_BYTES_MAX: u64 = 16 << 20;

/// The log, and what must be remembered of it.
struct Log {
    journal: Journal,
    open: OpenBlocks<Lsn>,
    /// Where mappings may come back that are gone.
    unmapped: Unmapped,
    /// Operations that write over something that nobody was promised and that is not sealed, and those whose clients were told already that
    /// they are done: a flush that comes must wait for what they write.
    owed: Owed,
    /// Operations that wait for the log to get so far.
    waiting: Vec<(u32, Wait)>,
    /// Ranges of volumes that are in the store, until the log says so durably.
    cleaned: Vec<(Lsn, usize, Vec<Range<u64>>)>,
    /// Operations wait until there is room in the log.
    room_is_awaited: bool,
    /// How often one found none.
    refusals: u64,
}

impl Log {
    /// Whether the log has got as far as that.
    fn has(&self, wait: Wait) -> bool {
        self.journal.synced() >= wait.synced && self.journal.sealed() >= wait.sealed
    }
}

/// The order of writes: what is kept of a cache that outlives the process. Of one that does not nothing is written down, and nothing waits.
pub(super) struct WriteOrder {
    log: Option<Log>,
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
    /// Of a cache with this log, or without one.
    pub fn new(journal: Option<Journal>) -> Self {
        let log = journal.map(|journal| Log {
            unmapped: Unmapped::new(journal.layout().geometry.group_bytes() / UNIT_BYTES),
            journal,
            open: OpenBlocks::default(),
            owed: Owed::default(),
            waiting: Vec::new(),
            cleaned: Vec::new(),
            room_is_awaited: false,
            refusals: 0,
        });
        WriteOrder { log, events: Vec::new() }
    }

    /// Whether the cache outlives the process.
    pub fn is_kept(&self) -> bool {
        self.log.is_some()
    }

    /// Why nothing can be written down any more.
    pub fn failure(&self) -> Option<&str> {
        self.log.as_ref().and_then(|log| log.journal.failed())
    }

    /// What the log did, where there is one.
    pub fn stats(&self) -> Option<Stats> {
        self.log.as_ref().map(|log| log.journal.stats())
    }

    /// The volumes that the log knows.
    pub fn volumes(&self) -> impl Iterator<Item = &VolumeInfo> {
        self.log.iter().flat_map(|log| log.journal.volumes())
    }

    /// Visits all blocks that the log knows. Nothing is under way yet.
    ///
    /// # Errors
    /// When the device fails.
    pub fn each_block(
        &self,
        cache: &mut Box<dyn BlockIo>,
        each: impl FnMut(&BlockState),
    ) -> Result<(), JournalError> {
        self.log.as_ref().map_or(Ok(()), |log| log.journal.each_block(cache, each))
    }

    /// Writes down how a volume stands.
    pub fn note_volume(&mut self, info: &VolumeInfo) {
        if let Some(log) = &mut self.log {
            log.journal.append(Record::Volume(info));
        }
    }

    /// Has all that was written down made durable; up to where that is.
    pub fn sync(&mut self) -> Wait {
        let Some(log) = &mut self.log else { return Wait::default() };
        let synced = log.journal.appended();
        log.journal.want_synced(synced);
        Wait { synced, ..Wait::default() }
    }

    /// Leaves the log in order: of what is left open the next start would keep nothing that is clean. Up to where that is.
    pub fn close(&mut self) -> Wait {
        let Some(log) = &mut self.log else { return Wait::default() };
        let journal = &mut log.journal;
        log.open.close_all(|slot| _ = journal.append(Record::Close { slot }));
        let sealed = log.journal.appended();
        log.journal.want_sealed(sealed);
        log.journal.want_checkpoint();
        Wait { sealed, ..Wait::default() }
    }

    /// Whether the log has got as far as that, or never will.
    pub fn is_past(&self, wait: Wait) -> bool {
        self.log.as_ref().is_none_or(|log| log.has(wait) || log.journal.failed().is_some())
    }

    /// Whether it has a checkpoint of all that it says, or never will.
    pub fn is_checkpointed(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.journal.is_checkpointed() || log.journal.failed().is_some())
    }

    /// Does what the log has to do; when it is to be called again though no device has done anything.
    pub fn poll(&mut self, now_ns: u64, outgoing: &mut Vec<device::Request>) {
        if let Some(log) = &mut self.log {
            log.journal.poll(now_ns, outgoing);
        }
    }

    /// When the log wants to be called though no device has done anything.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.log.as_ref().and_then(|log| log.journal.deadline_ns())
    }

    /// A request of the log's own is done.
    pub fn complete(&mut self, completion: device::Completion) {
        if let Some(log) = &mut self.log {
            log.journal.complete(completion);
        }
    }

    /// Whether the log takes more work now, or never again.
    pub fn has_room(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.journal.has_room() || log.journal.failed().is_some())
    }

    /// The same for an operation, which is called when there is room.
    pub fn await_room(&mut self) -> bool {
        let has_room = self.has_room();
        if let Some(log) = &mut self.log {
            log.room_is_awaited |= !has_room;
            log.refusals += u64::from(!has_room);
        }
        has_room
    }

    /// How often an operation has found no room in the log.
    pub fn refusals(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.refusals)
    }

    /// Whether there is room again that operations wait for; once.
    pub fn take_awaited_room(&mut self) -> bool {
        self.has_room() && self.log.as_mut().is_some_and(|log| std::mem::take(&mut log.room_is_awaited))
    }

    /// Whether an operation must wait for the log to get so far: it is called then.
    pub fn must_wait(&mut self, id: u32, wait: Wait) -> bool {
        let Some(log) = &mut self.log else { return false };
        if log.has(wait) {
            return false;
        }
        log.journal.want_synced(wait.synced);
        if wait.sealed > log.journal.sealed() {
            log.journal.want_sealed(wait.sealed);
        }
        log.waiting.push((id, wait));
        true
    }

    /// Operations for which the log has got far enough, or all that wait where it never will.
    pub fn take_woken(&mut self) -> Vec<u32> {
        let Some(log) = &mut self.log else { return Vec::new() };
        let waiting = std::mem::take(&mut log.waiting);
        let is_over = log.journal.failed().is_some();
        let (woken, waiting): (Vec<_>, _) =
            waiting.into_iter().partition(|(_, wait)| is_over || log.has(*wait));
        log.waiting = waiting;
        woken.into_iter().map(|(id, _)| id).collect()
    }

    /// Blocks were mapped or unmapped.
    pub fn note_map(&mut self, extents: &mut Extents<Order>) {
        let Some(log) = &mut self.log else { return };
        extents.changes_mut().take(&mut self.events);
        for event in self.events.drain(..) {
            match event {
                Event::Mapped { slot, class, volume, piece } => {
                    let class = class as u8;
                    log.journal.append(Record::Map { slot, class, volume: volume.0, piece });
                }
                Event::Unmapped { slot, class, volume, piece } => {
                    log.open.forget(slot);
                    let lsn = log.journal.append(Record::Unmap { slot, class: class as u8 });
                    let geometry = extents.geometry();
                    let per_piece = geometry.piece_units();
                    let units = piece * per_piece..(piece + geometry.class_pieces(class)) * per_piece;
                    log.unmapped.note(volume.0, &units, lsn, log.journal.synced());
                }
            }
        }
    }

    /// Says in the log what an operation is about to write over; what must be waited for.
    pub fn open_blocks(&mut self, op: &mut Op, volume: Volume, mode: Mode, map: &Map) -> Wait {
        let mut wait = Wait::default();
        let Some(log) = &mut self.log else { return wait };
        for part in &op.plan.fill {
            let units = units_at(part);
            if units.clone().all(|unit| !log.journal.is_recorded(unit)) {
                continue;
            }
            let is_unsealed = log.journal.is_unsealed(units.clone());
            // A flush that came before this operation does not wait for it, and may promise what this would tear.
            let may_be_promised = is_unsealed && log.owed.is_awaited();
            if may_be_promised || !log.journal.may_overwrite(units.clone()) {
                wait.sealed = log.journal.appended();
            } else if op.owed.is_none() && is_unsealed {
                op.owed = Some(log.owed.enter(op.bytes));
            }
            let mut unit = units.start;
            while unit < units.end {
                let Some((_, block)) = map.block_of_unit(unit) else { break };
                let end = (u64::from(block.slot) + block.pieces) * map.geometry().piece_units();
                let (slot, journal) = (block.slot, &mut log.journal);
                let synced = log.open.enter(slot, || journal.append(Record::Open { slot }));
                wait.synced = wait.synced.max(synced);
                op.opened.push(block.slot);
                unit = end;
            }
        }
        if mode == Mode::WriteAround || op.plan.fill.is_empty() {
            for part in &op.plan.dropped {
                wait.synced = wait.synced.max(log.journal.append(Record::Drop(units_at(part))));
            }
        }
        // What goes to the store must not be undone by a mapping that comes back.
        if !op.plan.through.is_empty() {
            wait.synced = wait.synced.max(log.unmapped.last_of(volume.0, &op.units()));
        }
        wait
    }

    /// An operation does not write over blocks any more; up to where the log says what flushes may have waited for it to say.
    pub fn leave_blocks(&mut self, op: &mut Op) -> Option<Lsn> {
        let log = self.log.as_mut()?;
        for slot in op.opened.drain(..) {
            let journal = &mut log.journal;
            log.open.leave(slot, |slot| _ = journal.append(Record::Close { slot }));
        }
        let is_over = op.owed.take().is_some_and(|generation| log.owed.leave(generation, op.bytes));
        is_over.then(|| log.journal.appended())
    }

    /// What must be waited for before these units of a volume may change in the store: no mapping of what was there may come back afterwards.
    pub fn before_store(&self, volume: Volume, units: &Range<u64>) -> Wait {
        let last = self.log.as_ref().map(|log| log.unmapped.last_of(volume.0, units));
        Wait { synced: last.unwrap_or_default(), ..Wait::default() }
    }

    /// Whether a client may be told that its write is done though it is not stored yet: nothing more is promised of it than before, for
    /// what was not flushed may be lost with the process either way. Where there is no log, a cache in memory is written at once.
    pub fn has_early_room(&self, bytes: u64) -> bool {
        self.log.as_ref().is_some_and(|log| log.owed.bytes() + bytes <= EARLY_BYTES_MAX)
    }

    /// A flush that comes must wait until an operation is over.
    pub fn owe(&mut self, op: &mut Op) {
        if let Some(log) = &mut self.log
            && op.owed.is_none()
        {
            op.owed = Some(log.owed.enter(op.bytes));
        }
    }

    /// A flush comes: what it must wait for, so that all that was told to be done is durable.
    pub fn flush(&mut self) -> Promise {
        let Some(log) = &mut self.log else { return Promise::default() };
        let lsn = log.journal.appended();
        log.journal.promise(lsn);
        let owed = log.owed.flush();
        let waits = owed.is_none() && lsn > log.journal.synced();
        if waits {
            log.journal.want_synced(lsn);
        }
        Promise { owed, log: waits.then_some(lsn) }
    }

    /// Whether the writes are over that a flush waits for: from now on it waits for the log up to `lsn`.
    pub fn settle(&mut self, promise: &mut Promise, lsn: Lsn) {
        let Some(log) = &mut self.log else { return };
        if promise.owed.take_if(|owed| log.owed.is_over(*owed)).is_some() {
            promise.log = Some(lsn);
            log.journal.promise(lsn);
            log.journal.want_synced(lsn);
        }
    }

    /// Up to where the log is durable; none where there is none.
    pub fn synced(&self) -> Option<Lsn> {
        self.log.as_ref().map(|log| log.journal.synced())
    }

    /// The checksums of a part of an operation's plan that is about to be stored.
    pub fn sum(&mut self, op: &mut Op, volume: Volume, fill: usize, buffer: &[u8]) {
        if self.log.is_some() {
            let offset = op.plan.fill[fill].offset;
            let units = buffer.chunks_exact(UNIT_BYTES as usize).enumerate();
            let sum = |(at, unit): (usize, &[u8])| checksum(volume.0, offset + at as u64 * UNIT_BYTES, unit);
            op.sums.extend(units.map(sum));
        }
    }

    /// An operation's plan is stored: what it made dirty, and what was fetched beside that.
    pub fn note_stored(&mut self, op: &Op) {
        let Some(log) = &mut self.log else { return };
        let mut sums = &op.sums[..];
        for part in &op.plan.fill {
            let units = units_at(part);
            let (own, rest) = sums.split_at(((units.end - units.start) as usize).min(sums.len()));
            sums = rest;
            for_each_run(part, &op.plan.dirtied, |from, to, dirty| {
                let sums = &own[from as usize..to as usize];
                log.journal.append(Record::Units { first: units.start + from, dirty, sums });
            });
            log.journal.note_data(part.bytes);
        }
    }

    /// These parts of a volume are not cached any more.
    pub fn note_dropped(&mut self, volume: Volume, parts: &[Part]) {
        let Some(log) = &mut self.log else { return };
        for part in parts {
            let lsn = log.journal.append(Record::Drop(units_at(part)));
            let units = units_of(&(part.offset..part.offset + part.bytes));
            log.unmapped.note(volume.0, &units, lsn, log.journal.synced());
        }
    }

    /// These units are lost.
    pub fn note_lost(&mut self, units: Range<u64>) {
        if let Some(log) = &mut self.log {
            log.journal.append(Record::Poison(units));
        }
    }

    /// These parts, of ranges of the volume at a place, are in the store for good. [`Self::take_cleaned`] gives the ranges back once the log says
    /// so durably: until then no other data may come to their places.
    pub fn note_clean(&mut self, parts: &[Part], volume: usize, ranges: Vec<Range<u64>>) {
        let Some(log) = &mut self.log else { return };
        let mut lsn = log.journal.appended();
        for part in parts {
            lsn = log.journal.append(Record::Clean(units_at(part)));
        }
        log.journal.want_synced(lsn);
        log.cleaned.push((lsn, volume, ranges));
    }

    /// The ranges of volumes of which the log has said durably that they are clean.
    pub fn take_cleaned(&mut self) -> Vec<(usize, Vec<Range<u64>>)> {
        let mut settled = Vec::new();
        let Some(log) = &mut self.log else { return settled };
        let synced = log.journal.synced();
        log.cleaned.retain_mut(|(lsn, volume, ranges)| {
            let is_settled = *lsn <= synced;
            if is_settled {
                settled.push((*volume, std::mem::take(ranges)));
            }
            !is_settled
        });
        settled
    }

    /// Whether all that is clean has been noted, or never will be.
    pub fn is_settled(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.cleaned.is_empty() || log.journal.failed().is_some())
    }

    /// Whether the store lacks what lies in one of these units of the cache, as far as is written down; none where nothing is.
    pub fn is_recorded_dirty(&self, mut units: Range<u64>) -> Option<bool> {
        let log = self.log.as_ref()?;
        Some(units.any(|unit| matches!(log.journal.state(unit), UnitState::Dirty | UnitState::Poisoned)))
    }

    /// Whether the log knows the checksums of these units now; it reads those that it does not.
    pub fn has_sums(&mut self, units: Range<u64>) -> bool {
        self.log.as_mut().is_none_or(|log| log.journal.has_sums(units))
    }

    /// Whether nobody can tell what lies in these units, since their checksums are lost.
    pub fn has_lost_sums(&self, units: Range<u64>) -> bool {
        self.log.as_ref().is_some_and(|log| log.journal.has_lost_sums(units))
    }

    /// The runs of a volume's units, read from byte `at` of the cache on, that are not what was stored there.
    pub fn misfits(
        &self,
        volume: Volume,
        range: &Range<u64>,
        at: u64,
        bytes: &[u8],
        out: &mut Vec<Range<u64>>,
    ) {
        let Some(log) = &self.log else { return };
        for (place, unit) in bytes.chunks_exact(UNIT_BYTES as usize).enumerate() {
            let offset = range.start + place as u64 * UNIT_BYTES;
            if log.journal.sum(at / UNIT_BYTES + place as u64) != Some(checksum(volume.0, offset, unit)) {
                match out.last_mut() {
                    Some(last) if last.end == offset => last.end += UNIT_BYTES,
                    _ => out.push(offset..offset + UNIT_BYTES),
                }
            }
        }
    }
}

/// The runs of a part's units that lie in some of these ranges of the volume, ascending, and those that do not: from where to where in the
/// part, and which they are.
fn for_each_run(part: &Part, ranges: &[Range<u64>], mut each: impl FnMut(u64, u64, bool)) {
    let whole = part.offset..part.offset + part.bytes;
    let mut at = whole.start;
    let mut run = |from: u64, to: u64, is_in: bool| {
        if from < to {
            each((from - whole.start) / UNIT_BYTES, (to - whole.start) / UNIT_BYTES, is_in);
        }
    };
    for range in ranges {
        let shared = common(range, &whole);
        if !shared.is_empty() {
            run(at, shared.start, false);
            run(shared.start, shared.end, true);
            at = shared.end;
        }
    }
    run(at, whole.end, false);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::op::Kind;
    use crate::journal::{self, LayoutConfig};
    use tiermem_base::Rng;
    use tiermem_policy::evict::Named;
    use tiermem_policy::extents::{Config, Fill, Request, Sizing, Verdict};
    use tiermem_tier::block::MemoryDisk;

    const BLOCK: u64 = 64 << 10;
    const VOLUME: Volume = Volume(0);

    /// A log on an empty device, and a cache of which it says everything.
    fn empty() -> (WriteOrder, Extents<Order>) {
        let mut disk = MemoryDisk::new(4 << 20).open();
        let layout = LayoutConfig { block_bytes: vec![BLOCK], group_bytes: None, log_bytes: Some(512 << 10) };
        journal::format(&mut disk, &layout, false).unwrap();
        let (journal, _) = journal::open(&mut disk, &layout, None).unwrap();
        let config = Config { fill: Fill::Units, sizing: Sizing::Request, shares: 1 };
        let order = Order::new(Named::Lru, Extents::<Order>::domains(1), 0);
        let mut extents = Extents::new(journal.layout().geometry.clone(), config, order, Rng::seeded(1));
        extents.changes_mut().record(true);
        (WriteOrder::new(Some(journal)), extents)
    }

    /// Plans a write of the first unit of a block.
    fn write(write_order: &mut WriteOrder, extents: &mut Extents<Order>, block: u64) -> Op {
        let mut op = Op { kind: Kind::Write, offset: block * BLOCK, bytes: UNIT_BYTES, ..Op::default() };
        let write = Some(Mode::WriteBack);
        let request = Request { volume: VOLUME, offset: op.offset, bytes: op.bytes, write, bypass: false };
        assert_eq!(extents.plan(&request, &mut op.plan), Verdict::Ready);
        extents.finish(&mut op.plan);
        write_order.note_map(extents);
        op
    }

    fn open(write_order: &mut WriteOrder, extents: &Extents<Order>, op: &mut Op) -> Wait {
        write_order.open_blocks(op, VOLUME, Mode::WriteBack, extents.map())
    }

    #[test]
    fn what_a_flush_that_waits_is_to_promise_is_written_over_only_when_it_is_sealed() {
        for flushes in [false, true] {
            let (mut write_order, mut extents) = empty();
            let mut early = write(&mut write_order, &mut extents, 1);
            write_order.owe(&mut early);
            let promise = if flushes { write_order.flush() } else { Promise::default() };
            assert_eq!((promise.owed.is_some(), promise.log), (flushes, None), "it waits for the early one");
            // This comes later than the flush, which promises it all the same: all that is in the log when the early one is over.
            let mut first = write(&mut write_order, &mut extents, 0);
            assert_eq!(open(&mut write_order, &extents, &mut first), Wait::default(), "nothing was there");
            write_order.sum(&mut first, VOLUME, 0, &[7; UNIT_BYTES as usize]);
            write_order.note_stored(&first);
            let mut again = write(&mut write_order, &mut extents, 0);
            let wait = open(&mut write_order, &extents, &mut again);
            assert_eq!((wait.sealed > Lsn(0), again.owed.is_some()), (flushes, !flushes));
            assert!(
                write_order.must_wait(7, wait) && write_order.take_woken().is_empty(),
                "the log is not there yet"
            );
        }
    }

    #[test]
    fn nothing_goes_to_a_store_before_older_mappings_are_gone_durably() {
        let (mut write_order, mut extents) = empty();
        write(&mut write_order, &mut extents, 0);
        let units = 0..BLOCK / UNIT_BYTES;
        assert_eq!(write_order.before_store(VOLUME, &units), Wait::default(), "nothing is gone");
        extents.discard(VOLUME, 0..BLOCK);
        write_order.note_map(&mut extents);
        let wait = write_order.before_store(VOLUME, &units);
        assert!(
            wait.synced > Lsn(0)
                && write_order.before_store(VOLUME, &(units.end..units.end + 1)) == Wait::default()
        );
        let through = |offset: u64| {
            let mut op = Op { kind: Kind::Write, offset, bytes: UNIT_BYTES, ..Op::default() };
            op.plan.through.push(op.range());
            op
        };
        assert_eq!(open(&mut write_order, &extents, &mut through(0)), wait);
        assert_eq!(open(&mut write_order, &extents, &mut through(BLOCK)), Wait::default());
    }

    #[test]
    fn a_cache_without_a_log_waits_for_nothing() {
        let (_, mut extents) = empty();
        let mut write_order = WriteOrder::new(None);
        let mut op = write(&mut write_order, &mut extents, 0);
        write_order.owe(&mut op);
        assert_eq!(
            (open(&mut write_order, &extents, &mut op), write_order.flush()),
            (Wait::default(), Promise::default())
        );
        assert!(
            op.owed.is_none()
                && !write_order.has_early_room(0)
                && write_order.await_room()
                && !write_order.is_kept()
        );
    }
}
