//! Writes: into the cache, into both, or past it.

use tiermem_policy::extents::{Mode, Part, Request, UNIT_BYTES, Verdict};
use tiermem_tier::block::AlignedBuffer;

use super::Engine;
use super::ledger::units_at;
use super::op::{Failure, Held, Kind, Op, Stage, common, units_of};
use crate::nbd::Errno;

impl Engine {
    /// The operation has its range: where does it go?
    pub(super) fn plan_write(&mut self, id: u32, mut op: Box<Op>) {
        if let Some(why) = self.log_failure() {
            op.failure = Some((Errno::Io, why.to_owned()));
            self.reply(&mut op, Vec::new());
            return self.end(id, op);
        }
        if !self.await_log_room() {
            return self.park(id, op, true);
        }
        let mode = self.mode_for(&op);
        let mut request = Request {
            volume: self.volumes[op.volume].number,
            offset: op.offset,
            bytes: op.bytes,
            write: Some(mode),
            bypass: false,
        };
        if !self.cleaner.may_write(self.now_ns, &self.extents, &request) {
            return self.park(id, op, false);
        }
        let verdict =
            self.cleaner.plan(self.now_ns, &mut self.extents, &mut request, &mut op.plan, &mut self.acts);
        self.note_map();
        if verdict != Verdict::Ready {
            return self.park(id, op, verdict == Verdict::Busy);
        }
        // An operation is small beside the cache: nothing else can stand in the way of all of them.
        debug_assert!(
            mode != Mode::WriteBack
                || op.plan.through.is_empty()
                || self.extents.units().has_lost(0..u64::MAX),
            "a write in write-back mode finds a place, unless lost units hold all there are"
        );
        self.note_plan(&op);
        if self.claim_fills(&mut op) {
            self.proceed(id, op);
        } else {
            self.ops[id as usize] = Some(op);
        }
    }

    /// Where the operation's bytes go. What the cache's device has lost is mended by writing it anew, which a write past the cache
    /// would not do: it goes into both.
    fn mode_for(&mut self, op: &Op) -> Mode {
        let volume = &self.volumes[op.volume];
        if volume.mode != Mode::WriteAround {
            return volume.mode;
        }
        let mut parts = Vec::new();
        self.extents.visit(volume.number, op.aligned(), |part, _| parts.push(part));
        if parts.iter().any(|part| self.extents.units().has_lost(units_at(part))) {
            Mode::WriteThrough
        } else {
            Mode::WriteAround
        }
    }

    /// What is to be stored is complete, or cannot be.
    pub(super) fn write_gathered(&mut self, id: u32, mut op: Box<Op>) {
        if op.failure.is_some() {
            self.undo(&op);
            self.reply(&mut op, Vec::new());
            return self.end(id, op);
        }
        op.stage = Stage::Storing;
        for at in 0..op.plan.through.len() {
            let range = op.plan.through[at].clone();
            let mut buffer = self.pool.lend((range.end - range.start) as usize);
            self.copy_own(&op, range.start, &mut buffer[..(range.end - range.start) as usize]);
            self.submit_through(id, &mut op, range, buffer);
        }
        for fill in 0..op.plan.fill.len() {
            let buffer = self.take_own(&op, fill).unwrap_or_else(|| self.assemble(&op, fill));
            self.submit_store(id, &mut op, fill as u32, buffer);
        }
        if self.may_be_early(&op) {
            self.tell_early(&mut op);
        }
        self.ops[id as usize] = Some(op);
    }

    /// Tells the client that its write is done before it is stored. Who reads it or writes over it waits until it is, for the operation keeps
    /// its claim.
    fn tell_early(&mut self, op: &mut Op) {
        let Some(ledger) = &mut self.ledger else { return };
        if op.owed.is_none() {
            op.owed = Some(ledger.owed.enter(op.bytes));
        }
        op.is_early = true;
        self.reply(op, Vec::new());
    }

    /// The operation has failed, and nothing was stored yet.
    pub(super) fn undo(&mut self, op: &Op) {
        self.forget_parts(op.volume, &op.plan.fresh);
    }

    /// Nothing was stored of these parts. A write that failed with the log may have marked some as dirty all the same.
    pub(super) fn forget_parts(&mut self, volume: usize, parts: &[Part]) {
        self.extents.units_mut().invalidate(parts);
        let number = self.volumes[volume].number;
        for part in parts {
            self.cleaner.lost(number, units_of(&(part.offset..part.offset + part.bytes)));
        }
    }

    /// All is stored, or some of it failed.
    pub(super) fn stored(&mut self, id: u32) {
        let Some(mut op) = self.ops[id as usize].take() else { return };
        match op.kind {
            Kind::Write | Kind::Zero => {}
            Kind::Trim => return self.trimmed(id, op),
            _ => return self.filled(id, op),
        }
        let is_dirty = !op.plan.dirtied.is_empty();
        if is_dirty && let Some(why) = self.log_failure() {
            // The log takes no record of it: by what it says these bytes are older ones, and clean, and would be read from the store.
            let why = why.to_owned();
            op.failure.get_or_insert((Errno::Io, why));
        }
        if op.failure.is_none() {
            self.note_units(&op);
        } else if op.is_early {
            // The client takes it to be there: nothing older may be read in its place. What was fetched beside it the store has.
            let lost = self.extents.units().those_dirty(&op.plan.fill, true);
            let fetched = self.extents.units().those_dirty(&op.plan.fill, false);
            self.poison_parts(op.volume, &lost);
            self.extents.units_mut().invalidate(&fetched);
            self.note_dropped(op.volume, &fetched);
            if let Some(failure) = op.failure.take() {
                self.lost(op.volume, failure);
            }
        } else if is_dirty {
            self.undo(&op);
            self.poison(&op);
        } else {
            // The store has what it has; what the cache has may be older or newer.
            let parts = self.extents.units().without_lost(&op.plan.fill);
            self.extents.units_mut().invalidate(&parts);
            self.note_dropped(op.volume, &parts);
        }
        self.reply(&mut op, Vec::new());
        self.end(id, op);
    }

    /// The client's own buffer, where it is just what a part of the plan stores.
    fn take_own(&mut self, op: &Op, fill: usize) -> Option<AlignedBuffer> {
        let part = op.plan.fill[fill];
        let job = &mut self.jobs[op.job? as usize];
        let is_all = op.kind == Kind::Write
            && op.is_aligned()
            && part.offset == op.offset
            && part.bytes == op.bytes
            && job.buffer.len() as u64 == op.bytes
            && job.offset == op.offset;
        is_all.then(|| std::mem::take(&mut job.buffer))
    }

    /// The bytes of a part of the plan: what was read, and over that what the client writes.
    pub(super) fn assemble(&mut self, op: &Op, fill: usize) -> AlignedBuffer {
        let part = op.plan.fill[fill];
        let range = part.offset..part.offset + part.bytes;
        let mut buffer = self.pool.lend(part.bytes as usize);
        for Held { range: held, buffer: bytes, .. } in &op.held {
            let shared = common(&range, held);
            if !shared.is_empty() {
                let from = (shared.start - held.start) as usize;
                let to = (shared.start - range.start) as usize;
                let len = (shared.end - shared.start) as usize;
                buffer[to..to + len].copy_from_slice(&bytes[from..from + len]);
            }
        }
        let own = common(&range, &op.range());
        if op.kind.is_write() && !own.is_empty() {
            let to = (own.start - range.start) as usize;
            self.copy_own(op, own.start, &mut buffer[to..to + (own.end - own.start) as usize]);
        }
        buffer
    }

    /// Copies what the client writes from byte `offset` of the volume on.
    fn copy_own(&self, op: &Op, offset: u64, into: &mut [u8]) {
        match (op.kind, op.job) {
            (Kind::Write, Some(job)) => {
                let job = &self.jobs[job as usize];
                let from = (offset - job.offset / UNIT_BYTES * UNIT_BYTES) as usize;
                into.copy_from_slice(&job.buffer[from..from + into.len()]);
            }
            _ => into.fill(0),
        }
    }

    /// A request that stores is done; its buffer is free.
    pub(super) fn stored_part(
        &mut self,
        id: u32,
        fill: u32,
        buffer: AlignedBuffer,
        result: Result<(), Failure>,
    ) {
        if let Some(op) = &self.ops[id as usize] {
            let units = units_at(&op.plan.fill[fill as usize]);
            match result {
                Ok(()) => self.memory.update(units, &buffer),
                Err(_) => self.memory.forget(units),
            }
        }
        self.pool.give_back(buffer);
        self.stored_one(id, result.err());
    }

    /// A write to the store is done.
    pub(super) fn through_done(&mut self, id: u32, result: Result<(), Failure>, session: u64) {
        if let Some(op) = &self.ops[id as usize] {
            let volume = &mut self.volumes[op.volume];
            volume.direct_writes = Some(volume.direct_writes.map_or(session, |oldest| oldest.min(session)));
            if let Err(failure) = &result {
                let (volume, offset) = (op.volume, op.offset);
                self.complain(volume, offset, failure);
            }
        }
        self.stored_one(id, result.err());
    }
}
