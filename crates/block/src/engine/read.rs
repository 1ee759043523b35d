//! Reads, and what is fetched for them.

use std::ops::Range;

use tiermem_policy::extents::{Part, Request, UNIT_BYTES, Verdict};

use super::op::{Failure, Held, Kind, Op, Source, Stage, common};
use super::{Engine, Ready};
use crate::disks::Piece;
use crate::nbd::Errno;

impl Engine {
    /// The operation has its range: what does it need?
    pub(super) fn plan_read(&mut self, id: u32, mut op: Box<Op>) {
        if !self.await_log_room() {
            return self.park(id, op, true);
        }
        let mut request = Request {
            volume: self.volumes[op.volume].number,
            offset: op.offset,
            bytes: op.bytes,
            write: None,
            bypass: op.bypass,
        };
        let verdict =
            self.cleaner.plan(self.now_ns, &mut self.extents, &mut request, &mut op.plan, &mut self.acts);
        debug_assert_eq!(verdict, Verdict::Ready, "a read never waits");
        self.note_map();
        self.note_plan(&op);
        if self.claim_fills(&mut op) {
            self.proceed(id, op);
        } else {
            self.ops[id as usize] = Some(op);
        }
    }

    /// The operation has all its claims: it reads, as soon as the log allows what comes afterwards.
    pub(super) fn proceed(&mut self, id: u32, mut op: Box<Op>) {
        if self.open_blocks(id, &mut op) {
            self.ops[id as usize] = Some(op);
        } else {
            self.gather(id, op);
        }
    }

    /// The log has what the operation waited for.
    pub(super) fn resume(&mut self, id: u32, op: Box<Op>) {
        match op.kind {
            Kind::Trim => self.trim_store(id, op),
            Kind::Copy => self.copy(id, op),
            _ => self.gather(id, op),
        }
    }

    /// Reads all that the operation's plan names.
    pub(super) fn gather(&mut self, id: u32, mut op: Box<Op>) {
        op.stage = Stage::Gathering;
        for at in 0..op.plan.cached.len() {
            let Part { offset, at, bytes } = op.plan.cached[at];
            if self.is_poisoned(at, bytes) {
                let words = format!(
                    "bytes {offset} to {} were lost by the cache's device; write them anew",
                    offset + bytes
                );
                op.failure.get_or_insert((Errno::Io, words));
                continue;
            }
            self.submit_gather(id, &mut op, offset..offset + bytes, Source::Cache(at));
        }
        for at in 0..op.plan.fetch.len() {
            let range = op.plan.fetch[at].clone();
            self.submit_gather(id, &mut op, range, Source::Backing);
        }
        if op.ios == 0 {
            self.ready.push_back(Ready::Gathered(id));
        }
        self.ops[id as usize] = Some(op);
    }

    /// All that the operation needs is here, or failed.
    pub(super) fn gathered(&mut self, id: u32) {
        let Some(op) = self.ops[id as usize].take() else { return };
        match op.kind {
            Kind::Read | Kind::Prefetch | Kind::Trim => self.read_gathered(id, op),
            Kind::Write | Kind::Zero => self.write_gathered(id, op),
            Kind::Copy => self.copied(id, op),
        }
    }

    /// Answers, and stores what was fetched.
    fn read_gathered(&mut self, id: u32, mut op: Box<Op>) {
        if op.held.iter().any(|held| !held.is_good && held.source == Source::Backing) {
            // Nothing of it was there before.
            self.forget_parts(op.volume, &op.plan.fill);
            op.plan.fill.clear();
            let own = op.range();
            let is_needed = |range: &Range<u64>| !common(range, &own).is_empty();
            let is_whole = op.held.iter().all(|held| held.is_good || !is_needed(&held.range))
                && !op.plan.cached.iter().any(|part| self.is_poisoned(part.at, part.bytes));
            if is_whole {
                // What failed was read for later.
                op.failure = None;
            }
        }
        op.stage = Stage::Storing;
        for fill in 0..op.plan.fill.len() {
            let buffer = self.assemble(&op, fill);
            self.submit_store(id, &mut op, fill as u32, buffer);
        }
        let mut pieces = Vec::new();
        if op.kind == Kind::Read && op.failure.is_none() {
            op.held.sort_unstable_by_key(|held| held.range.start);
            let own = op.range();
            for held in &mut op.held {
                let part = common(&held.range, &own);
                if !part.is_empty() {
                    let buffer = std::mem::take(&mut held.buffer);
                    let (from, bytes) = (part.start - held.range.start, part.end - part.start);
                    pieces.push(Piece { buffer, from: from as usize, bytes: bytes as usize });
                }
            }
        }
        self.reply(&mut op, pieces);
        if op.ios == 0 { self.end(id, op) } else { self.ops[id as usize] = Some(op) }
    }

    /// What was fetched is stored.
    pub(super) fn filled(&mut self, id: u32, mut op: Box<Op>) {
        if op.failure.take().is_some() {
            // The client has its bytes; the cache just does not.
            self.forget_parts(op.volume, &op.plan.fill);
            self.volumes[op.volume].counts.cache_failures += 1;
        } else {
            self.note_units(&op);
        }
        self.end(id, op);
    }

    /// The cache's device did not give these bytes of what is held, which lie at `at` there, or not those that were stored. What is clean is
    /// read from the store instead.
    pub(super) fn cache_failed(
        &mut self,
        id: u32,
        op: &mut Op,
        held: u32,
        range: Range<u64>,
        at: u64,
        failure: Failure,
    ) {
        self.volumes[op.volume].counts.cache_failures += 1;
        let Held { range: whole, buffer, patches, .. } = &mut op.held[held as usize];
        if patches.is_some() {
            // It was to replace bytes of another and does not: what stands in its buffer is nobody's, and must not be taken for a part of
            // the answer beside what comes in its stead.
            *whole = 0..0;
            self.pool.give_back(std::mem::take(buffer));
        }
        if self.was_dirty(op, &range, at) {
            op.held[held as usize].is_good = true;
            if op.kind == Kind::Copy {
                op.lost.push(range);
            } else {
                op.failure.get_or_insert(failure);
            }
            return;
        }
        // After a crash it is no fault: another block's data may have come to its place, and the log did not get to say so.
        tracing::debug!(
            volume = self.exports[op.volume].name,
            offset = range.start,
            error = failure.1,
            "read from the store instead"
        );
        op.held[held as usize].is_good = true;
        // A write is about to store these units anew, and a copy brings the store what it has. What a write that failed with the log has marked
        // as dirty, and not stored, stays so until the cleaner has come by.
        let mut is_marked = false;
        self.extents
            .visit(self.volumes[op.volume].number, range.clone(), |_, is_dirty| is_marked |= is_dirty);
        if matches!(op.kind, Kind::Read | Kind::Prefetch | Kind::Trim) && !is_marked {
            let part = Part { offset: range.start, at, bytes: range.end - range.start };
            self.extents.units_mut().invalidate(&[part]);
            self.note_dropped(op.volume, &[part]);
        }
        self.submit_patch(id, op, held, range, Source::Backing);
    }

    /// Whether the store lacked something of a range of the cache before this operation came.
    fn was_dirty(&mut self, op: &Op, range: &Range<u64>, at: u64) -> bool {
        let mut units = at / UNIT_BYTES..(at + range.end - range.start) / UNIT_BYTES;
        if let Some(ledger) = &self.ledger {
            // A log that has failed takes no record of what is lost.
            return self.extents.units().has_lost(units.clone())
                || units.any(|unit| ledger.is_recorded_dirty(unit));
        }
        if op.kind.is_write() {
            // Its own plan has made the units dirty, and nobody knows what they were.
            return true;
        }
        let mut any = false;
        self.extents.visit(self.volumes[op.volume].number, range.clone(), |_, is_dirty| any |= is_dirty);
        any
    }
}
