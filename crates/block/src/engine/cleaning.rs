//! Writing back: dirty units are copied, sent, flushed, and then clean.

use std::ops::Range;

use tiermem_policy::extents::cleaning::{Dirty, Due, reserve_bytes};
use tiermem_policy::extents::{Part, Share, UNIT_BYTES};
use tiermem_tier::block::AlignedBuffer;

use super::Engine;
use super::op::{Held, Kind, Op, Source, Stage, common, units_of};
use crate::backing::BackingError;
use crate::journal::Wait;

/// Bytes of one volume that are copied or written back at a time.
const LEAVING_BYTES_MAX: u64 = 8 << 20;
/// How often one looks at the blocks that go next, even if nothing is allocated: what could not go before may go now.
const COLD_EVERY_NS: u64 = 20_000_000;
/// And how soon again at the earliest: looking costs what it may find, and where a store hangs nothing that is found can go.
const COLD_PAUSE_NS: u64 = 500_000;
/// How much of the cache may be dirty before writers wait.
const DIRTY_PERCENT_MAX: u64 = 90;
/// Bytes taken from the order of write-back at a time.
const BATCH_BYTES: u64 = 1 << 20;
/// How long a store that failed is left alone at first, and at most.
const RETRY_NS: u64 = 100_000_000;
const RETRY_NS_MAX: u64 = 30_000_000_000;

impl Engine {
    /// Somebody waits for room, or for older bytes to be in the store.
    pub(super) fn hurry(&mut self) {
        self.hurried = true;
    }

    /// Whether so much is dirty that writers wait.
    pub(super) fn is_over_limit(&self) -> bool {
        self.extents.dirty_bytes() > self.extents.geometry().capacity_bytes() / 100 * DIRTY_PERCENT_MAX
    }

    /// Begins to write back what it is time for.
    pub(super) fn clean(&mut self) {
        if self.parked.is_empty() && !self.is_closing {
            self.hurried = false;
        }
        if !self.has_log_room() {
            // What is clean must be said in the log.
            return;
        }
        let mut ranges = Vec::new();
        let pause_ns = if self.cold_watch.is_due() { COLD_PAUSE_NS } else { COLD_EVERY_NS };
        if self.now_ns >= self.looked_at_cold_ns + pause_ns {
            self.cold_watch.looked();
            self.looked_at_cold_ns = self.now_ns;
            self.clean_cold();
        }
        for at in 0..self.volumes.len() {
            loop {
                let due_bytes = self.due_bytes(at);
                let volume = &mut self.volumes[at];
                if volume.epochs.is_empty() || volume.retry_at_ns > self.now_ns {
                    break;
                }
                let mut taken_bytes = 0;
                if due_bytes > 0 && volume.leaving_bytes < LEAVING_BYTES_MAX {
                    taken_bytes = volume.epochs.next(due_bytes.min(BATCH_BYTES), &mut ranges);
                    volume.due_bytes = due_bytes.saturating_sub(taken_bytes);
                }
                if taken_bytes == 0 {
                    if volume.epochs.must_flush() {
                        self.flush_store(at, true);
                    }
                    break;
                }
                self.send_back(at, &mut ranges);
                self.run_ready();
            }
        }
    }

    /// Copies these units, to write them back.
    fn send_back(&mut self, at: usize, ranges: &mut Vec<Range<u64>>) {
        for units in ranges.drain(..) {
            let bytes = (units.end - units.start) * UNIT_BYTES;
            self.volumes[at].leaving_bytes += bytes;
            let offset = units.start * UNIT_BYTES;
            let mut op = self.spare_op();
            (op.volume, op.kind, op.offset, op.bytes) = (at, Kind::Copy, offset, bytes);
            self.start(op);
        }
    }

    /// Writes back ahead of need what is dirty among the blocks that go next, as far as the order of write-back allows; otherwise what must
    /// go before it.
    fn clean_cold(&mut self) {
        if self.extents.dirty_bytes() == 0 {
            return;
        }
        let reserve_bytes = reserve_bytes(self.extents.geometry().capacity_bytes());
        let (mut parts, mut owners) = (Vec::new(), Vec::new());
        for share in 0..self.shares {
            self.extents.name_cold(Share(share), reserve_bytes, &mut parts, &mut owners);
        }
        let mut ranges = Vec::new();
        for (part, owner) in parts.iter().zip(&owners) {
            let Some(at) = self.volumes.iter().position(|volume| volume.number == *owner) else { continue };
            let volume = &mut self.volumes[at];
            if volume.retry_at_ns > self.now_ns || volume.leaving_bytes >= LEAVING_BYTES_MAX {
                continue;
            }
            let units = units_of(&(part.offset..part.offset + part.bytes));
            if volume.epochs.next_of(units, &mut ranges) == 0 && volume.epochs.epochs() > 1 {
                volume.due_bytes = volume.due_bytes.max(BATCH_BYTES);
            }
            self.send_back(at, &mut ranges);
        }
    }

    /// How much of a volume is to be written back: the rest of what was due, or what is due now.
    fn due_bytes(&mut self, at: usize) -> u64 {
        let volume = &self.volumes[at];
        let dirty_bytes = volume.epochs.dirty_bytes();
        if volume.due_bytes == 0 && dirty_bytes > 0 {
            let dirty = Dirty {
                bytes: self.extents.dirty_bytes(),
                first_ns: volume.epochs.first_dirty_ns(),
                room_bytes: self.extents.geometry().capacity_bytes(),
                is_waited_for: self.hurried || volume.is_waited_for(),
            };
            self.volumes[at].due_bytes = match self.cleaning.due(self.now_ns, &dirty) {
                Due::Nothing => 0,
                Due::WriteBack { bytes, .. } => bytes,
            };
        }
        self.volumes[at].due_bytes.min(dirty_bytes)
    }

    /// Nobody changes the range now: read it, once nothing older of it can come back in the cache when the store has it.
    pub(super) fn copy(&mut self, id: u32, mut op: Box<Op>) {
        if let Some(ledger) = &mut self.ledger {
            let number = self.volumes[op.volume].number.0;
            op.wait = Wait { synced: ledger.unmapped.last_of(number, &op.units()), ..Wait::default() };
            if !ledger.has(op.wait) {
                ledger.journal.want_synced(op.wait.synced);
                op.stage = Stage::Opening;
                ledger.waiting.push(id);
                self.ops[id as usize] = Some(op);
                return;
            }
        }
        op.stage = Stage::Gathering;
        let mut parts = Vec::new();
        self.extents.visit(self.volumes[op.volume].number, op.aligned(), |part, is_dirty| {
            if is_dirty {
                parts.push(part);
            }
        });
        for Part { offset, at, bytes } in parts {
            self.submit_gather(id, &mut op, offset..offset + bytes, Source::Cache(at));
        }
        if op.ios == 0 {
            self.ready.push_back(super::Ready::Gathered(id));
        }
        self.ops[id as usize] = Some(op);
    }

    /// The range cannot be written back, for the log is broken or what lies there cannot be proven: it stays dirty.
    pub(super) fn keep_dirty(&mut self, id: u32, op: Box<Op>, why: &str) {
        let volume = &mut self.volumes[op.volume];
        volume.leaving_bytes -= op.bytes;
        volume.epochs.failed(op.units());
        self.write_back_failed(op.volume, &BackingError::Failed(why.to_owned()));
        self.end(id, op);
    }

    /// The range is in memory: send it.
    pub(super) fn copied(&mut self, id: u32, mut op: Box<Op>) {
        if let Some((_, why)) = op.failure.take() {
            return self.keep_dirty(id, op, &why);
        }
        let mut held = std::mem::take(&mut op.held);
        held.retain(|held| !held.range.is_empty());
        held.sort_unstable_by_key(|held| held.range.start);
        op.lost.sort_unstable_by_key(|lost| lost.start);
        for lost in &op.lost {
            self.lose(op.volume, lost);
        }
        // Neighbours go as one, and what is not dirty any more or lost need not go.
        let mut runs: Vec<Range<u64>> = Vec::new();
        for part in &held {
            let mut start = part.range.start;
            let lost = op.lost.iter().filter(|lost| part.range.contains(&lost.start)).cloned();
            for lost in lost.chain(std::iter::once(part.range.end..part.range.end)) {
                match runs.last_mut() {
                    Some(last) if last.end == start && start < lost.start => last.end = lost.start,
                    _ if start < lost.start => runs.push(start..lost.start),
                    _ => {}
                }
                start = lost.end;
            }
        }
        let mut gaps = op.aligned();
        for run in &runs {
            self.volumes[op.volume].epochs.lost(units_of(&(gaps.start..run.start)));
            gaps.start = run.end;
        }
        self.volumes[op.volume].epochs.lost(units_of(&gaps));
        let sent: u64 = runs.iter().map(|run| run.end - run.start).sum();
        self.volumes[op.volume].leaving_bytes -= op.bytes - sent;
        for run in runs {
            let whole = held.iter_mut().find(|part| part.range == run);
            let buffer = match whole {
                Some(part) => std::mem::take(&mut part.buffer),
                None => self.gather_run(&held, &run),
            };
            self.volumes[op.volume].epochs.copied(units_of(&run));
            self.submit_write_back(op.volume, units_of(&run), buffer);
        }
        for part in held.drain(..) {
            self.pool.give_back(part.buffer);
        }
        op.held = held;
        self.end(id, op);
    }

    /// A run of bytes out of several parts.
    fn gather_run(&mut self, held: &[Held], run: &Range<u64>) -> AlignedBuffer {
        let mut buffer = self.pool.lend((run.end - run.start) as usize);
        for part in held {
            let shared = common(&part.range, run);
            if !shared.is_empty() {
                let (from, to) =
                    ((shared.start - part.range.start) as usize, (shared.start - run.start) as usize);
                let len = (shared.end - shared.start) as usize;
                buffer[to..to + len].copy_from_slice(&part.buffer[from..from + len]);
            }
        }
        buffer
    }

    /// The cache's device has lost dirty bytes.
    fn lose(&mut self, at: usize, range: &Range<u64>) {
        let mut parts = Vec::new();
        self.extents.visit(self.volumes[at].number, range.clone(), |part, is_dirty| {
            if is_dirty {
                parts.push(part);
            }
        });
        tracing::error!(
            volume = self.exports[at].name,
            offset = range.start,
            bytes = range.end - range.start,
            "the cache's device has lost bytes that the store does not have: reads fail until they are written anew"
        );
        self.poison_parts(at, &parts);
        self.volumes[at].epochs.lost(units_of(range));
    }

    /// The store has taken a part of what is written back, or not.
    pub(super) fn written_back(
        &mut self,
        at: usize,
        units: Range<u64>,
        result: Result<(), BackingError>,
        session: u64,
    ) {
        let volume = &mut self.volumes[at];
        volume.leaving_bytes -= (units.end - units.start) * UNIT_BYTES;
        match result {
            Ok(()) => {
                if session != volume.session {
                    // What it took before may be gone.
                    volume.session = session;
                    volume.epochs.lost_session();
                }
                volume.epochs.written(units);
            }
            Err(error) => {
                volume.epochs.failed(units);
                self.write_back_failed(at, &error);
            }
        }
    }

    /// The store failed: it is left alone for a while.
    pub(super) fn write_back_failed(&mut self, at: usize, error: &BackingError) {
        let volume = &mut self.volumes[at];
        volume.counts.write_back_failures += 1;
        if volume.retry_at_ns <= self.now_ns {
            let wait_ns = (RETRY_NS << volume.failures.min(20)).min(RETRY_NS_MAX);
            volume.failures += 1;
            volume.retry_at_ns = self.now_ns + wait_ns;
            tracing::warn!(volume = self.exports[at].name, %error, retry_after_ms = wait_ns / 1_000_000,
                "the store took nothing of what is written back");
        }
    }

    /// What was written back has been flushed.
    pub(super) fn cleaned(&mut self, at: usize) {
        let mut ranges = Vec::new();
        self.volumes[at].epochs.flushed(&mut ranges);
        self.note_clean(at, ranges);
    }

    /// Asks to be called again where time alone changes something.
    pub(super) fn arm(&self) {
        let log = self.ledger.as_ref().is_some_and(|ledger| ledger.journal.deadline_ns().is_some());
        if log || self.volumes.iter().any(|volume| !volume.epochs.is_empty()) {
            self.ticker.arm();
        }
    }
}
