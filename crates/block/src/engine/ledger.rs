//! What is written down of what happens to units, and what must be on the device before something else may happen.

use std::ops::Range;

use tiermem_policy::extents::{Event, Mode, OpenBlocks, Part, UNIT_BYTES};
use tiermem_tier::block::AlignedBuffer;

use super::Engine;
use super::op::{Kind, Op, Stage, common, units_of};
use super::owed::Owed;
use super::unmapped::Unmapped;
use crate::journal::{Journal, Lsn, Record, UnitState, Wait, checksum};

/// Bytes of writes at most that are told to be done before they are stored.
const EARLY_BYTES_MAX: u64 = 16 << 20;

/// The log, and what the engine must remember of it.
pub(super) struct Ledger {
    pub journal: Journal,
    pub open: OpenBlocks<Lsn>,
    /// Where mappings may come back that are gone.
    pub unmapped: Unmapped,
    /// Operations that write over something that nobody was promised and that is not sealed, and those whose clients were told already that
    /// they are done: a flush that comes must wait for what they write.
    pub owed: Owed,
    /// Operations that wait for the log.
    pub waiting: Vec<u32>,
    /// Parts of operations that were read, whose checksums are not in memory yet.
    pub unproven: Vec<(u32, u32, AlignedBuffer)>,
    /// Ranges of volumes that are in the store, until the log says so durably.
    pub cleaned: Vec<(Lsn, usize, Vec<Range<u64>>)>,
    /// Operations are parked until there is room in the log.
    pub room_is_awaited: bool,
}

/// The units of a part, in the cache.
pub(super) fn units_at(part: &Part) -> Range<u64> {
    part.at / UNIT_BYTES..(part.at + part.bytes) / UNIT_BYTES
}

impl Ledger {
    /// Whether the store lacks what lies in a unit of the cache, as far as is written down.
    pub(super) fn is_recorded_dirty(&self, unit: u64) -> bool {
        matches!(self.journal.state(unit), UnitState::Dirty | UnitState::Poisoned)
    }

    pub(super) fn new(journal: Journal) -> Self {
        let geometry = &journal.layout().geometry;
        let unmapped = Unmapped::new(geometry.group_bytes() / UNIT_BYTES);
        Ledger {
            journal,
            open: OpenBlocks::default(),
            unmapped,
            owed: Owed::default(),
            waiting: Vec::new(),
            unproven: Vec::new(),
            cleaned: Vec::new(),
            room_is_awaited: false,
        }
    }

    /// Whether the log has got as far as that.
    pub(super) fn has(&self, wait: Wait) -> bool {
        self.journal.synced() >= wait.synced && self.journal.sealed() >= wait.sealed
    }
}

impl Engine {
    /// Blocks were mapped or unmapped.
    pub(super) fn note_map(&mut self) {
        let Some(ledger) = &mut self.ledger else { return };
        self.extents.changes_mut().take(&mut self.events);
        for event in self.events.drain(..) {
            match event {
                Event::Mapped { slot, class, volume, piece } => {
                    let class = class as u8;
                    ledger.journal.append(Record::Map { slot, class, volume: volume.0, piece });
                }
                Event::Unmapped { slot, class, volume, piece } => {
                    ledger.open.forget(slot);
                    let lsn = ledger.journal.append(Record::Unmap { slot, class: class as u8 });
                    let geometry = self.extents.geometry();
                    let per_piece = geometry.piece_units();
                    let units = piece * per_piece..(piece + geometry.class_pieces(class)) * per_piece;
                    ledger.unmapped.note(volume.0, &units, lsn, ledger.journal.synced());
                }
            }
        }
    }

    /// Whether the log takes more work now, or never again.
    pub(super) fn has_log_room(&self) -> bool {
        let has_room = |journal: &Journal| journal.has_room() || journal.failed().is_some();
        self.ledger.as_ref().is_none_or(|ledger| has_room(&ledger.journal))
    }

    /// The same for an operation, which is parked where there is none, and called when there is.
    pub(super) fn await_log_room(&mut self) -> bool {
        let has_room = self.has_log_room();
        if let Some(ledger) = &mut self.ledger {
            ledger.room_is_awaited |= !has_room;
        }
        has_room
    }

    /// Why nothing can be kept any more.
    pub(super) fn log_failure(&self) -> Option<&str> {
        self.ledger.as_ref().and_then(|ledger| ledger.journal.failed())
    }

    /// Says in the log what the operation is about to write over; whether that must be waited for.
    pub(super) fn open_blocks(&mut self, id: u32, op: &mut Op) -> bool {
        let Some(ledger) = &mut self.ledger else { return false };
        let mut wait = Wait::default();
        for part in &op.plan.fill {
            let units = units_at(part);
            if units.clone().all(|unit| !ledger.journal.is_recorded(unit)) {
                continue;
            }
            let is_unsealed = ledger.journal.is_unsealed(units.clone());
            // A flush that came before this operation does not wait for it, and may promise what this would tear.
            let may_be_promised = is_unsealed && ledger.owed.is_awaited();
            if may_be_promised || !ledger.journal.may_overwrite(units.clone()) {
                wait.sealed = ledger.journal.appended();
            } else if op.owed.is_none() && is_unsealed {
                op.owed = Some(ledger.owed.enter(op.bytes));
            }
            let mut unit = units.start;
            while unit < units.end {
                let Some((_, block)) = self.extents.map().block_of_unit(unit) else { break };
                let per_piece = self.extents.geometry().piece_units();
                let end = (u64::from(block.slot) + block.pieces) * per_piece;
                let (slot, journal) = (block.slot, &mut ledger.journal);
                let synced = ledger.open.enter(slot, || journal.append(Record::Open { slot }));
                wait.synced = wait.synced.max(synced);
                op.opened.push(block.slot);
                unit = end;
            }
        }
        if self.volumes[op.volume].mode == Mode::WriteAround || op.plan.fill.is_empty() {
            for part in &op.plan.dropped {
                wait.synced = wait.synced.max(ledger.journal.append(Record::Drop(units_at(part))));
            }
        }
        // What goes to the store must not be undone by a mapping that comes back.
        if !op.plan.through.is_empty() {
            let number = self.volumes[op.volume].number.0;
            wait.synced = wait.synced.max(ledger.unmapped.last_of(number, &op.units()));
        }
        if ledger.has(wait) {
            return false;
        }
        ledger.journal.want_synced(wait.synced);
        if wait.sealed > ledger.journal.sealed() {
            ledger.journal.want_sealed(wait.sealed);
        }
        op.stage = Stage::Opening;
        op.wait = wait;
        ledger.waiting.push(id);
        true
    }

    /// The log has got further: those who waited for that go on.
    pub(super) fn log_progressed(&mut self) {
        let Some(ledger) = &mut self.ledger else { return };
        if ledger.journal.failed().is_some() {
            return self.log_failed();
        }
        let mut woken = Vec::new();
        let mut waiting = std::mem::take(&mut ledger.waiting);
        waiting.retain(|id| {
            let has = self.ops[*id as usize].as_ref().is_none_or(|op| ledger.has(op.wait));
            if has {
                woken.push(*id);
            }
            !has
        });
        ledger.waiting = waiting;
        for id in woken {
            if let Some(op) = self.ops[id as usize].take() {
                self.resume(id, op);
            }
        }
        self.settle_cleaned();
        // Those who wait for plans in flight alone are called when one of these ends: called here, they would come again and again.
        if self.has_log_room()
            && self.ledger.as_mut().is_some_and(|it| std::mem::take(&mut it.room_is_awaited))
        {
            for id in std::mem::take(&mut self.crowded) {
                self.claim(id);
            }
        }
        for at in 0..self.volumes.len() {
            if !self.volumes[at].waiters.is_empty() {
                self.answer_waiters(at, None);
            }
        }
    }

    /// The log is broken: whoever waits for it is told so.
    fn log_failed(&mut self) {
        let Some(ledger) = &mut self.ledger else { return };
        let why = ledger.journal.failed().unwrap_or_default().to_owned();
        for id in std::mem::take(&mut ledger.waiting) {
            if let Some(mut op) = self.ops[id as usize].take() {
                if op.kind == Kind::Copy {
                    self.keep_dirty(id, op, &why);
                    continue;
                }
                op.failure = Some((crate::nbd::Errno::Io, why.clone()));
                self.undo(&op);
                self.reply(&mut op, Vec::new());
                self.end(id, op);
            }
        }
        // What they wait for never comes.
        for id in std::mem::take(&mut self.crowded) {
            self.claim(id);
        }
        self.unpark();
        for at in 0..self.volumes.len() {
            for waiter in std::mem::take(&mut self.volumes[at].waiters) {
                self.tell(waiter.asker, Err((crate::nbd::Errno::Io, why.clone())));
            }
        }
    }

    /// The checksums of what is about to be stored.
    pub(super) fn sum(&mut self, op: &mut Op, fill: usize, buffer: &[u8]) {
        if self.ledger.is_none() {
            return;
        }
        let number = self.volumes[op.volume].number.0;
        let offset = op.plan.fill[fill].offset;
        let units = buffer.chunks_exact(UNIT_BYTES as usize).enumerate();
        op.sums.extend(units.map(|(at, unit)| checksum(number, offset + at as u64 * UNIT_BYTES, unit)));
    }

    /// The operation's plan is stored: what it made dirty, and what was fetched beside that.
    pub(super) fn note_units(&mut self, op: &Op) {
        let mut sums = &op.sums[..];
        for part in &op.plan.fill {
            let units = units_at(part);
            if self.extents.units().has_lost(units.clone()) {
                for (place, unit) in units.clone().enumerate() {
                    // Nobody else would say that it is clean: it never was on its way to the store.
                    if self.extents.units_mut().mend(unit) && op.plan.dirtied.is_empty() {
                        let offset = part.offset + place as u64 * UNIT_BYTES;
                        let mended = Part { offset, at: unit * UNIT_BYTES, bytes: UNIT_BYTES };
                        self.extents.units_mut().cleaned(&[mended]);
                    }
                }
            }
            if let Some(ledger) = &mut self.ledger {
                let (own, rest) = sums.split_at(((units.end - units.start) as usize).min(sums.len()));
                sums = rest;
                for_each_run(part, &op.plan.dirtied, |from, to, dirty| {
                    let sums = &own[from as usize..to as usize];
                    ledger.journal.append(Record::Units { first: units.start + from, dirty, sums });
                });
                ledger.journal.note_data(part.bytes);
            }
        }
    }

    /// The operation does not write over blocks any more.
    pub(super) fn leave_blocks(&mut self, op: &mut Op) {
        if let Some(ledger) = &mut self.ledger {
            for slot in op.opened.drain(..) {
                let journal = &mut ledger.journal;
                ledger.open.leave(slot, |slot| {
                    journal.append(Record::Close { slot });
                });
            }
            if let Some(generation) = op.owed.take()
                && ledger.owed.leave(generation, op.bytes)
            {
                let lsn = ledger.journal.appended();
                let waiters = self.volumes.iter_mut().flat_map(|volume| &mut volume.waiters);
                for waiter in waiters {
                    if waiter.owed.take_if(|owed| ledger.owed.is_over(*owed)).is_some() {
                        waiter.log = Some(lsn);
                        ledger.journal.promise(lsn);
                        ledger.journal.want_synced(lsn);
                    }
                }
            }
        }
    }

    /// Whether a client may be told that its write is done though it is not stored yet: nothing more is promised of it than before, for
    /// what was not flushed may be lost with the process either way. Where there is no log, a cache in memory is written at once.
    pub(super) fn may_be_early(&self, op: &Op) -> bool {
        let is_plain = op.plan.through.is_empty() && !op.plan.dirtied.is_empty();
        let is_durable = op.job.is_none_or(|job| self.jobs[job as usize].durable);
        let has_room = |ledger: &Ledger| ledger.owed.bytes() + op.bytes <= EARLY_BYTES_MAX;
        is_plain && !is_durable && self.ledger.as_ref().is_some_and(has_room)
    }

    /// These parts of a volume are not cached any more.
    pub(super) fn note_dropped(&mut self, volume: usize, parts: &[Part]) {
        if let Some(ledger) = &mut self.ledger {
            let number = self.volumes[volume].number.0;
            for part in parts {
                let lsn = ledger.journal.append(Record::Drop(units_at(part)));
                let units = units_of(&(part.offset..part.offset + part.bytes));
                ledger.unmapped.note(number, &units, lsn, ledger.journal.synced());
            }
        }
    }

    /// These units of a volume are in the store, for good.
    pub(super) fn note_clean(&mut self, volume: usize, ranges: Vec<Range<u64>>) {
        let parts = self.dirty_parts(volume, &ranges);
        let Some(ledger) = &mut self.ledger else {
            self.extents.units_mut().cleaned(&parts);
            return self.unpark();
        };
        let mut lsn = ledger.journal.appended();
        for part in &parts {
            lsn = ledger.journal.append(Record::Clean(units_at(part)));
        }
        // Until the log says so durably, no other data may come to their places.
        ledger.journal.want_synced(lsn);
        ledger.cleaned.push((lsn, volume, ranges));
        self.settle_cleaned();
    }

    /// What the log says durably is clean may go, as far as it is not dirty again.
    fn settle_cleaned(&mut self) {
        let Some(ledger) = &mut self.ledger else { return };
        let synced = ledger.journal.synced();
        let mut settled = Vec::new();
        ledger.cleaned.retain_mut(|(lsn, volume, ranges)| {
            let is_settled = *lsn <= synced;
            if is_settled {
                settled.push((*volume, std::mem::take(ranges)));
            }
            !is_settled
        });
        if settled.is_empty() {
            return;
        }
        for (volume, ranges) in settled {
            let mut clean = Vec::new();
            for range in ranges {
                self.cleaner.lacks_nothing_of(self.volumes[volume].number, range, &mut clean);
            }
            let parts = self.dirty_parts(volume, &clean);
            self.extents.units_mut().cleaned(&parts);
        }
        self.unpark();
    }

    /// What the cache has of these units as dirty, and is not lost.
    fn dirty_parts(&mut self, volume: usize, ranges: &[Range<u64>]) -> Vec<Part> {
        let mut parts = Vec::new();
        for units in ranges {
            let range = units.start * UNIT_BYTES..units.end * UNIT_BYTES;
            self.extents.visit(self.volumes[volume].number, range, |part, is_dirty| {
                if is_dirty {
                    parts.push(part);
                }
            });
        }
        self.extents.units().without_lost(&parts)
    }

    /// The operation failed to store its plan: what the cache had of it is lost.
    pub(super) fn poison(&mut self, op: &Op) {
        let mut parts = op.plan.fill.clone();
        for fresh in &op.plan.fresh {
            parts = parts.into_iter().flat_map(|part| without(part, fresh)).collect();
        }
        self.poison_parts(op.volume, &parts);
        self.note_dropped(op.volume, &op.plan.fresh);
    }

    /// These units read as an error from now on.
    pub(super) fn poison_parts(&mut self, volume: usize, parts: &[Part]) {
        for part in parts {
            let units = units_at(part);
            self.volumes[volume].counts.poisoned_units += units.end - units.start;
            self.extents.units_mut().lose(units.clone());
            if let Some(ledger) = &mut self.ledger {
                ledger.journal.append(Record::Poison(units));
            }
        }
    }

    /// Whether the cache has lost something of these bytes of its space.
    pub(super) fn is_poisoned(&self, at: u64, bytes: u64) -> bool {
        self.extents.units().has_lost(at / UNIT_BYTES..(at + bytes) / UNIT_BYTES)
    }

    /// Whether the log knows the checksums of these units now; it reads those that it does not.
    pub(super) fn has_sums(&mut self, units: Range<u64>) -> bool {
        self.ledger.as_mut().is_none_or(|ledger| ledger.journal.has_sums(units))
    }

    /// Whether nobody can tell what lies in these units, since their checksums are lost.
    pub(super) fn has_lost_sums(&self, units: Range<u64>) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.journal.has_lost_sums(units))
    }

    /// More checksums may be there: what was read is compared with them.
    pub(super) fn prove(&mut self) {
        let Some(ledger) = &mut self.ledger else { return };
        if ledger.unproven.is_empty() {
            return;
        }
        for (op, held, buffer) in std::mem::take(&mut ledger.unproven) {
            self.gather_done(op, held, buffer, Ok(()));
        }
    }

    /// The runs of a volume's units, read from byte `at` of the cache on, that are not what was stored there.
    pub(super) fn misfits(
        &self,
        volume: usize,
        range: &Range<u64>,
        at: u64,
        bytes: &[u8],
        out: &mut Vec<Range<u64>>,
    ) {
        let Some(ledger) = &self.ledger else { return };
        let number = self.volumes[volume].number.0;
        for (place, unit) in bytes.chunks_exact(UNIT_BYTES as usize).enumerate() {
            let offset = range.start + place as u64 * UNIT_BYTES;
            if ledger.journal.sum(at / UNIT_BYTES + place as u64) != Some(checksum(number, offset, unit)) {
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

/// What is left of a part without another.
fn without(part: Part, gone: &Part) -> impl Iterator<Item = Part> {
    let end = part.at + part.bytes;
    let cut = |from: u64, to: u64| {
        let (from, to) = (from.clamp(part.at, end), to.clamp(part.at, end));
        (from < to).then(|| Part { offset: part.offset + (from - part.at), at: from, bytes: to - from })
    };
    let (before, behind) = if gone.at < end && part.at < gone.at + gone.bytes {
        (cut(part.at, gone.at), cut(gone.at + gone.bytes, end))
    } else {
        (Some(part), None)
    };
    before.into_iter().chain(behind)
}
