//! Client jobs, from their arrival until their outcomes are delivered.

use slab::Slab;
use tiermem_policy::extents::{Part, UNIT_BYTES};
use tiermem_tier::block::AlignedBuffer;

use super::op::{Failure, Kind, Op};
use crate::disks::{Answer, Asker, BufferPool, Outcome, Piece};

/// A client's job until its outcome is delivered.
#[derive(Debug)]
pub(super) struct Job {
    pub asker: Asker,
    pub volume: usize,
    pub kind: Kind,
    pub bytes: u64,
    /// Its effect must be durable before the outcome.
    pub durable: bool,
    /// Payload of a write; it begins with the unit in which `offset` lies.
    pub buffer: AlignedBuffer,
    pub offset: u64,
}

#[derive(Debug)]
struct State {
    job: Job,
    /// Something of it was not in the cache.
    missed: bool,
    /// Operations that have not replied.
    left: u32,
    /// What operations have read, by their places.
    pieces: Vec<Vec<Piece>>,
    failure: Option<Failure>,
}

/// A job with replies from all of its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Concluded {
    pub volume: usize,
    pub kind: Kind,
    pub bytes: u64,
    pub missed: bool,
    /// It was not told yet: this client waits until it is durable.
    pub waits: Option<Asker>,
}

/// The jobs under way, and the outcomes that the server has not taken yet.
#[derive(Default)]
pub(super) struct Answers {
    jobs: Slab<State>,
    done: Vec<Outcome>,
}

impl Answers {
    /// Adds a job of this number of operations and returns the job's number.
    pub fn begin(&mut self, job: Job, operations: u32) -> u32 {
        let mut pieces = Vec::new();
        if job.kind == Kind::Read {
            pieces.resize_with(operations as usize, Vec::new);
        }
        self.jobs.insert(State { job, missed: false, left: operations, pieces, failure: None }) as u32
    }

    /// Whether no job is under way.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Something of a job was not in the cache.
    pub fn missed(&mut self, job: u32) {
        self.jobs[job as usize].missed = true;
    }

    /// Whether a job's effect must be durable before its outcome is delivered.
    pub fn is_durable(&self, job: u32) -> bool {
        self.jobs[job as usize].job.durable
    }

    /// The client's own buffer, where it is just what a part of an operation's plan stores.
    pub fn take_own(&mut self, op: &Op, part: &Part) -> Option<AlignedBuffer> {
        let job = &mut self.jobs[op.job? as usize].job;
        let is_all = op.kind == Kind::Write
            && op.is_aligned()
            && part.offset == op.offset
            && part.bytes == op.bytes
            && job.buffer.len() as u64 == op.bytes
            && job.offset == op.offset;
        is_all.then(|| std::mem::take(&mut job.buffer))
    }

    /// Copies what the client of an operation writes from byte `offset` of the volume on.
    pub fn copy_own(&self, op: &Op, offset: u64, into: &mut [u8]) {
        match (op.kind, op.job) {
            (Kind::Write, Some(job)) => {
                let job = &self.jobs[job as usize].job;
                let from = (offset - job.offset / UNIT_BYTES * UNIT_BYTES) as usize;
                into.copy_from_slice(&job.buffer[from..from + into.len()]);
            }
            _ => into.fill(0),
        }
    }

    /// An operation has its part of the answer, once. What it read comes in `pieces`. The job, where that was the last one.
    pub fn reply(&mut self, op: &mut Op, pieces: Vec<Piece>, pool: &mut BufferPool) -> Option<Concluded> {
        let id = op.job.take()?;
        let state = &mut self.jobs[id as usize];
        if let Some(place) = state.pieces.get_mut(op.index as usize) {
            *place = pieces;
        }
        if let Some(failure) = op.failure.take() {
            state.failure.get_or_insert(failure);
        }
        state.left -= 1;
        (state.left == 0).then(|| self.conclude(id, pool))
    }

    /// All operations of a job have replied.
    fn conclude(&mut self, id: u32, pool: &mut BufferPool) -> Concluded {
        let State { job, missed, mut pieces, failure, .. } = self.jobs.remove(id as usize);
        let Job { asker, volume, kind, bytes, durable, buffer, .. } = job;
        pool.give_back(buffer);
        let waits = (durable && failure.is_none()).then_some(asker);
        let concluded = Concluded { volume, kind, bytes, missed, waits };
        if waits.is_some() {
            return concluded;
        }
        let result = match failure {
            Some(failure) => {
                for piece in pieces.into_iter().flatten() {
                    pool.give_back(piece.buffer);
                }
                Err(failure)
            }
            None if kind != Kind::Read => Ok(Answer::Done),
            None if pieces.len() == 1 => Ok(Answer::Data(pieces.swap_remove(0))),
            None => Ok(Answer::Data(pieces.into_iter().flatten().collect())),
        };
        self.tell(asker, result);
        concluded
    }

    /// Tells an outcome.
    pub fn tell(&mut self, asker: Asker, result: Result<Answer, Failure>) {
        self.done.push(Outcome { asker, result });
    }

    /// Appends the outcomes since the last call.
    pub fn take(&mut self, out: &mut Vec<Outcome>) {
        out.append(&mut self.done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::Errno;

    fn job(kind: Kind, durable: bool) -> Job {
        let asker = Asker { connection: 1, cookie: 2 };
        let buffer = AlignedBuffer::zeroed(if kind == Kind::Write { 8192 } else { 0 });
        Job { asker, volume: 3, kind, bytes: 8192, durable, buffer, offset: 4096 }
    }

    fn piece(byte: u8) -> Piece {
        let mut buffer = AlignedBuffer::zeroed(4096);
        buffer.fill(byte);
        Piece { buffer, from: 0, bytes: 4096 }
    }

    #[test]
    fn a_read_is_answered_when_its_last_operation_has_replied_in_the_order_of_addresses() {
        let (mut answers, mut pool) = (Answers::default(), BufferPool::default());
        let id = answers.begin(job(Kind::Read, false), 2);
        let mut ops = [0, 1].map(|index| Op { job: Some(id), index, ..Op::default() });
        assert_eq!(answers.reply(&mut ops[1], vec![piece(1)], &mut pool), None);
        answers.missed(id);
        let concluded = answers.reply(&mut ops[0], vec![piece(0)], &mut pool).unwrap();
        assert!(concluded.missed && concluded.waits.is_none() && answers.is_idle());
        assert_eq!(answers.reply(&mut ops[0], Vec::new(), &mut pool), None, "it has replied");
        let mut done = Vec::new();
        answers.take(&mut done);
        let Ok(Answer::Data(pieces)) = &done[0].result else { panic!("{:?}", done[0].result) };
        assert_eq!(pieces.iter().map(|piece| piece.buffer[0]).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_durable_write_is_not_told_yet_unless_it_has_failed() {
        let (mut answers, mut pool) = (Answers::default(), BufferPool::default());
        let mut done = Vec::new();
        for fails in [false, true] {
            let id = answers.begin(job(Kind::Write, true), 1);
            assert!(answers.is_durable(id));
            let failure = fails.then(|| (Errno::Io, "the cache".to_owned()));
            let mut op = Op { job: Some(id), failure, ..Op::default() };
            let concluded = answers.reply(&mut op, Vec::new(), &mut pool).unwrap();
            assert_eq!(concluded.waits.is_some(), !fails);
            answers.take(&mut done);
            assert_eq!(done.len(), usize::from(fails));
        }
    }

    #[test]
    fn a_write_gives_its_buffer_away_only_where_it_is_just_what_is_stored() {
        let mut answers = Answers::default();
        let id = answers.begin(job(Kind::Write, false), 1);
        let op = Op { job: Some(id), kind: Kind::Write, offset: 4096, bytes: 8192, ..Op::default() };
        let part = Part { offset: 4096, at: 0, bytes: 4096 };
        assert!(answers.take_own(&op, &part).is_none());
        let mut bytes = [7; 100];
        answers.copy_own(&op, 4096, &mut bytes);
        assert_eq!(bytes, [0; 100]);
        assert_eq!(answers.take_own(&op, &Part { bytes: 8192, ..part }).unwrap().len(), 8192);
    }
}
