//! From clients' jobs to operations and back to outcomes.

use std::ops::Range;

use tiermem_policy::extents::UNIT_BYTES;
use tiermem_tier::block::AlignedBuffer;

use super::op::{Failure, Job, Kind, Op, Stage, op_bytes_max};
use super::{Engine, Ready};
use crate::disks::{Answer, Asker, Job as Asked, Outcome, Piece, Task};
use crate::journal::Wait;
use crate::nbd::{Context, Extent};

/// Extents in one description: a reply may be shorter than its request.
const EXTENTS_MAX: usize = 8192;

impl Engine {
    /// Begins a client's job.
    pub(super) fn begin(&mut self, asked: Asked) {
        let Asked { asker, disk, task, offset, bytes, durable } = asked;
        let (kind, buffer) = match task {
            Task::Read => (Kind::Read, AlignedBuffer::empty()),
            Task::Write(buffer) => (Kind::Write, buffer),
            Task::Zero => (Kind::Zero, AlignedBuffer::empty()),
            Task::Trim => (Kind::Trim, AlignedBuffer::empty()),
            Task::Prefetch => (Kind::Prefetch, AlignedBuffer::empty()),
            Task::Flush => {
                self.volumes[disk].counts.flushes += 1;
                return self.begin_flush(asker, disk, false);
            }
            Task::Describe => {
                self.volumes[disk].counts.describes += 1;
                let answer = self.describe(disk, offset..offset + bytes);
                return self.done.push(Outcome { asker, result: Ok(answer) });
            }
        };
        if bytes == 0 {
            return self.done.push(Outcome { asker, result: Ok(Answer::Done) });
        }
        let is_read = kind == Kind::Read;
        let op_bytes = op_bytes_max(self.extents.geometry());
        // Cut at multiples, so that a long job touches no block twice more than it must.
        let pieces = (offset + bytes).div_ceil(op_bytes) - offset / op_bytes;
        let job = Job {
            asker,
            volume: disk,
            kind,
            bytes,
            missed: false,
            durable: durable && !is_read,
            buffer,
            offset,
            left: pieces as u32,
            pieces: Vec::new(),
            failure: None,
        };
        let id = self.jobs.insert(job) as u32;
        if is_read {
            self.jobs[id as usize].pieces.resize_with(pieces as usize, Vec::new);
        }
        let mut at = offset;
        for index in 0..pieces as u32 {
            let end = ((at / op_bytes + 1) * op_bytes).min(offset + bytes);
            let mut op = self.spare_op();
            (op.job, op.index, op.volume, op.kind) = (Some(id), index, disk, kind);
            (op.offset, op.bytes) = (at, end - at);
            self.start(op);
            at = end;
        }
    }

    /// An operation with nothing in it.
    pub(super) fn spare_op(&mut self) -> Box<Op> {
        self.spare.pop().unwrap_or_default()
    }

    /// Begins an operation: it claims its range.
    pub(super) fn start(&mut self, op: Box<Op>) {
        let id = self.ops.insert(Some(op)) as u32;
        self.claim(id);
    }

    /// Claims the operation's range.
    pub(super) fn claim(&mut self, id: u32) {
        let Some(mut op) = self.ops[id as usize].take() else { return };
        let exclusive = op.kind.is_write() || op.kind == Kind::Trim;
        op.claims.push(self.volumes[op.volume].claims.claim(id, op.units(), exclusive));
        op.stage = Stage::Claiming;
        self.ops[id as usize] = Some(op);
        self.ready.push_back(Ready::Claim(id));
    }

    /// Claims what the operation's plan fills beside its own range. Whether all is granted.
    pub(super) fn claim_fills(&mut self, op: &mut Op) -> bool {
        let own = op.units();
        let owned_exclusively = op.kind.is_write();
        for part in &op.plan.fill {
            let units = part.offset / UNIT_BYTES..(part.offset + part.bytes) / UNIT_BYTES;
            if owned_exclusively && own.start <= units.start && units.end <= own.end {
                continue;
            }
            op.claims.push(self.volumes[op.volume].claims.extend(op.claims[0], units));
        }
        self.are_granted(op)
    }

    /// Whether the operation has all its claims.
    fn are_granted(&mut self, op: &Op) -> bool {
        let claims = &mut self.volumes[op.volume].claims;
        op.claims.iter().all(|claim| claims.grant(*claim))
    }

    /// The operation may get what it claims now.
    pub(super) fn try_claims(&mut self, id: u32) {
        // It may have been woken twice, and may be gone, or another's.
        let Some(op) = self.ops.get_mut(id as usize).and_then(Option::take) else { return };
        if op.stage != Stage::Claiming || !self.are_granted(&op) {
            self.ops[id as usize] = Some(op);
            return;
        }
        let is_first = op.claims.len() == 1;
        match (op.kind, is_first) {
            (Kind::Read | Kind::Prefetch, true) => self.plan_read(id, op),
            (Kind::Write | Kind::Zero, true) => self.plan_write(id, op),
            (Kind::Trim, _) => self.trim(id, op),
            (Kind::Copy, _) => self.copy(id, op),
            (_, false) => self.proceed(id, op),
        }
    }

    /// Gives the operation's claims back.
    pub(super) fn release_claims(&mut self, op: &mut Op) {
        let mut woken = std::mem::take(&mut self.woken);
        for claim in op.claims.drain(..) {
            self.volumes[op.volume].claims.release(claim, &mut woken);
        }
        self.ready.extend(woken.drain(..).map(Ready::Claim));
        self.woken = woken;
    }

    /// The operation is over.
    pub(super) fn end(&mut self, id: u32, mut op: Box<Op>) {
        self.extents.finish(&mut op.plan);
        self.release_claims(&mut op);
        self.leave_blocks(&mut op);
        for held in op.held.drain(..) {
            self.pool.give_back(held.buffer);
        }
        op.lost.clear();
        op.sums.clear();
        op.wait = Wait::default();
        self.ops.remove(id as usize);
        op.failure = None;
        op.is_early = false;
        // A trim that takes its place makes no plan, and must not undo this one.
        op.plan.clear();
        op.plan.again = false;
        op.bypass = false;
        op.copy = None;
        op.ios = 0;
        self.spare.push(op);
        // Its plan was in somebody's way, perhaps.
        for id in std::mem::take(&mut self.crowded) {
            self.claim(id);
        }
    }

    /// The operation can do nothing now: it lets go of all and begins anew later.
    pub(super) fn park(&mut self, id: u32, mut op: Box<Op>, is_crowded: bool) {
        self.release_claims(&mut op);
        op.stage = Stage::Parked;
        if !is_crowded {
            self.volumes[op.volume].counts.parked += 1;
        }
        self.ops[id as usize] = Some(op);
        if is_crowded { self.crowded.push_back(id) } else { self.parked.push_back(id) }
    }

    /// Blocks were written back: those who waited for that try again.
    pub(super) fn unpark(&mut self) {
        for id in std::mem::take(&mut self.parked) {
            self.claim(id);
        }
    }

    /// An operation has its part of the answer. What it read comes in `pieces`.
    pub(super) fn reply(&mut self, op: &mut Op, pieces: Vec<Piece>) {
        let Some(id) = op.job.take() else { return };
        let job = &mut self.jobs[id as usize];
        if let Some(place) = job.pieces.get_mut(op.index as usize) {
            *place = pieces;
        }
        if let Some(failure) = op.failure.take() {
            job.failure.get_or_insert(failure);
        }
        job.left -= 1;
        if job.left == 0 {
            self.conclude(id);
        }
    }

    /// What an operation's plan brings, for whoever counts.
    pub(super) fn note_plan(&mut self, op: &Op) {
        self.volumes[op.volume].counts.note_plan(op.kind, &op.plan);
        if let Some(id) = op.job
            && !op.plan.hit
        {
            self.jobs[id as usize].missed = true;
        }
    }

    /// All operations of a job have replied.
    fn conclude(&mut self, id: u32) {
        let job = &mut self.jobs[id as usize];
        self.volumes[job.volume].counts.note_request(job.kind, job.bytes, job.missed);
        if job.durable && job.failure.is_none() {
            let (asker, volume) = (job.asker, job.volume);
            let job = self.jobs.remove(id as usize);
            self.pool.give_back(job.buffer);
            return self.begin_flush(asker, volume, true);
        }
        let Job { asker, kind, buffer, mut pieces, failure, .. } = self.jobs.remove(id as usize);
        self.pool.give_back(buffer);
        let result = match failure {
            Some(failure) => {
                for piece in pieces.into_iter().flatten() {
                    self.pool.give_back(piece.buffer);
                }
                Err(failure)
            }
            None if kind != Kind::Read => Ok(Answer::Done),
            None if pieces.len() == 1 => Ok(Answer::Data(pieces.swap_remove(0))),
            None => Ok(Answer::Data(pieces.into_iter().flatten().collect())),
        };
        self.tell(asker, result);
    }

    /// Tells an outcome.
    pub(super) fn tell(&mut self, asker: Asker, result: Result<Answer, Failure>) {
        self.done.push(Outcome { asker, result });
    }

    /// What is cached of a range. The stores are not asked, so all of it counts as allocated.
    fn describe(&mut self, disk: usize, range: Range<u64>) -> Answer {
        let mut cache: Vec<Extent> = Vec::new();
        let mut at = range.start;
        let mut push = |from: &mut u64, to: u64, flags: u32| {
            if cache.len() < EXTENTS_MAX && *from < to {
                cache.push(Extent { len_bytes: (to - *from) as u32, flags });
            }
            *from = to.max(*from);
        };
        let units = super::op::units_of(&range);
        let aligned = units.start * UNIT_BYTES..units.end * UNIT_BYTES;
        self.extents.visit(self.volumes[disk].number, aligned, |part, is_dirty| {
            push(&mut at, part.offset.min(range.end), 0);
            let flags = Context::CACHED | if is_dirty { Context::DIRTY } else { 0 };
            push(&mut at, (part.offset + part.bytes).min(range.end), flags);
        });
        push(&mut at, range.end, 0);
        let allocation = vec![Extent { len_bytes: (range.end - range.start) as u32, flags: 0 }];
        Answer::Parts { allocation, cache }
    }
}
