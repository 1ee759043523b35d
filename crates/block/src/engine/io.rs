//! Requests to the cache's device and to the stores, and what comes of them.

use std::ops::Range;

use tiermem_policy::extents::UNIT_BYTES;
use tiermem_policy::extents::cleaner::Token;
use tiermem_tier::block::{self as device, AlignedBuffer};

use super::op::{Failure, Held, Kind, Op, Source, Stage};
use super::{Engine, Ready};
use crate::backing::{self, BackingError};
use crate::journal::Journal;
use crate::nbd::Errno;

/// What is said of bytes that may be right, and that nobody can prove.
const UNKNOWN: &str = "the checksums of these bytes of the cache cannot be read";

/// For whom a request is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Io {
    /// Reads what `held` at this place of an operation is to hold.
    Gather { op: u32, held: u32 },
    /// Stores a part of an operation's plan in the cache.
    Store { op: u32, fill: u32 },
    /// Writes what an operation brings to the store.
    Through { op: u32 },
    /// Writes back.
    WriteBack { volume: u16, act: Token },
    /// Flushes a volume's store.
    Flush { volume: u16, act: Token },
}

impl Engine {
    /// Reads a part of what the operation needs.
    pub(super) fn submit_gather(&mut self, id: u32, op: &mut Op, range: Range<u64>, source: Source) {
        let held = op.held.len() as u32;
        let buffer = self.pool.lend((range.end - range.start) as usize);
        op.held.push(Held { range, source, buffer, is_good: false, patches: None });
        self.submit_held(id, op, held);
    }

    /// Reads what `held` says from where it says.
    pub(super) fn submit_held(&mut self, id: u32, op: &mut Op, held: u32) {
        let Held { range, source, buffer, .. } = &mut op.held[held as usize];
        let size_bytes = self.volumes[op.volume].backing.size_bytes();
        if *source == Source::Backing && range.start >= size_bytes {
            // What lies behind the end of a volume reads as zeroes.
            buffer.fill(0);
            return self.gathered_one(op, held);
        }
        if let Source::Cache(at) = *source
            && self.memory.read(units_from(at, range), buffer)
        {
            return self.gathered_one(op, held);
        }
        let buffer = std::mem::take(buffer);
        let token = self.ios.insert(Io::Gather { op: id, held }) as u64;
        let bytes = range.end - range.start;
        op.ios += 1;
        let counts = &mut self.volumes[op.volume].counts;
        match *source {
            Source::Cache(at) => {
                let units = units_from(at, range);
                counts.cache_reads += 1;
                counts.cache_read_bytes += bytes;
                self.outgoing.push(device::Request::read(token, self.data_at + at, buffer));
                // What they are compared with may have to be read as well.
                self.has_sums(units);
            }
            Source::Backing => {
                counts.core_reads += 1;
                counts.core_read_bytes += bytes;
                let volume = &mut self.volumes[op.volume];
                let there = size_bytes.clamp(range.start, range.end) - range.start;
                volume.backing.submit(backing::Request::read(token, range.start, there, buffer));
            }
        }
    }

    /// Stores a part of the operation's plan.
    pub(super) fn submit_store(&mut self, id: u32, op: &mut Op, fill: u32, buffer: AlignedBuffer) {
        let token = self.ios.insert(Io::Store { op: id, fill }) as u64;
        self.sum(op, fill as usize, &buffer);
        let counts = &mut self.volumes[op.volume].counts;
        counts.cache_writes += 1;
        counts.cache_written_bytes += buffer.len() as u64;
        op.ios += 1;
        let at = self.data_at + op.plan.fill[fill as usize].at;
        self.outgoing.push(device::Request::write(token, at, buffer));
    }

    /// Writes bytes of a volume to its store for an operation.
    pub(super) fn submit_through(&mut self, id: u32, op: &mut Op, range: Range<u64>, buffer: AlignedBuffer) {
        let token = self.ios.insert(Io::Through { op: id }) as u64;
        let bytes = range.end - range.start;
        op.ios += 1;
        let volume = &mut self.volumes[op.volume];
        volume.counts.core_writes += 1;
        volume.counts.core_written_bytes += bytes;
        volume.backing.submit(backing::Request::write(token, range.start, bytes, buffer));
    }

    /// Passes a trim on to the store.
    pub(super) fn submit_trim(&mut self, id: u32, op: &mut Op) {
        let token = self.ios.insert(Io::Through { op: id }) as u64;
        op.ios += 1;
        self.volumes[op.volume].backing.submit(backing::Request::trim(token, op.offset, op.bytes));
    }

    /// Writes dirty units back.
    pub(super) fn submit_write_back(
        &mut self,
        volume: usize,
        act: Token,
        units: Range<u64>,
        buffer: AlignedBuffer,
    ) {
        debug_assert_eq!(buffer.len() as u64, (units.end - units.start) * UNIT_BYTES, "all of it is copied");
        let size_bytes = self.volumes[volume].backing.size_bytes();
        if units.start * UNIT_BYTES >= size_bytes {
            // Of the last block, what lies behind the volume's end.
            self.pool.give_back(buffer);
            let session = self.cleaner.standing(self.volumes[volume].number).session;
            return self.written_back(volume, act, Ok(()), session);
        }
        let io = Io::WriteBack { volume: volume as u16, act };
        let token = self.ios.insert(io) as u64;
        let volume = &mut self.volumes[volume];
        let start = units.start * UNIT_BYTES;
        let bytes = (units.end * UNIT_BYTES).min(size_bytes) - start;
        volume.counts.core_writes += 1;
        volume.counts.core_written_bytes += bytes;
        volume.backing.submit(backing::Request::write(token, start, bytes, buffer));
    }

    /// Flushes a volume's store.
    pub(super) fn submit_flush(&mut self, volume: usize, act: Token) {
        let token = self.ios.insert(Io::Flush { volume: volume as u16, act }) as u64;
        self.volumes[volume].backing.submit(backing::Request::flush(token));
    }

    /// Hands the cache's device all requests at once.
    pub(super) fn submit_outgoing(&mut self) {
        if !self.outgoing.is_empty() {
            self.cache.submit_all(&mut self.outgoing);
        }
    }

    /// Takes what devices and stores have done. Whether there was anything.
    pub(super) fn collect(&mut self) -> bool {
        let mut arrived = std::mem::take(&mut self.arrived);
        self.cache.completed(&mut arrived);
        let mut any = !arrived.is_empty();
        for completion in arrived.drain(..) {
            self.cache_done(completion);
        }
        self.arrived = arrived;
        let mut answered = std::mem::take(&mut self.answered);
        for at in 0..self.volumes.len() {
            self.volumes[at].backing.completed(&mut answered);
            any |= !answered.is_empty();
            for completion in answered.drain(..) {
                self.backing_done(completion);
            }
        }
        self.answered = answered;
        any
    }

    fn cache_done(&mut self, completion: device::Completion) {
        if Journal::owns(completion.token) {
            if let Some(ledger) = &mut self.ledger {
                ledger.journal.complete(completion);
            }
            return;
        }
        let Some(io) = self.ios.try_remove(completion.token as usize) else { return };
        let result = completion.result.map_err(|error| (Errno::Io, format!("the cache: {error}")));
        match io {
            Io::Gather { op, held } => self.gather_done(op, held, completion.buffer, result),
            Io::Store { op, fill } => {
                self.stored_part(op, fill, completion.buffer, result);
            }
            Io::Through { .. } | Io::WriteBack { .. } | Io::Flush { .. } => {}
        }
    }

    fn backing_done(&mut self, completion: backing::Completion) {
        let Some(io) = self.ios.try_remove(completion.token as usize) else { return };
        let backing::Completion { mut buffer, result, bytes, session, .. } = completion;
        match io {
            Io::Gather { op, held } => {
                if let Some(rest) = buffer.get_mut(bytes as usize..) {
                    rest.fill(0);
                }
                self.gather_done(op, held, buffer, result.map_err(|error| failure(&error)));
            }
            Io::Through { op } => {
                self.pool.give_back(buffer);
                self.through_done(op, result.map_err(|error| failure(&error)), session);
            }
            Io::WriteBack { volume, act } => {
                self.pool.give_back(buffer);
                self.written_back(usize::from(volume), act, result, session);
            }
            Io::Flush { volume, act } => self.store_flushed(usize::from(volume), act, result, session),
            Io::Store { .. } => {}
        }
    }

    /// A part of what an operation needs is here, or cannot be had.
    pub(super) fn gather_done(
        &mut self,
        id: u32,
        held: u32,
        buffer: AlignedBuffer,
        result: Result<(), Failure>,
    ) {
        let Some(mut op) = self.ops[id as usize].take() else { return };
        let part = &op.held[held as usize];
        if let (Ok(()), Source::Cache(at)) = (&result, part.source)
            && !self.has_sums(units_from(at, &part.range))
        {
            if let Some(ledger) = &mut self.ledger {
                ledger.unproven.push((id, held, buffer));
            }
            self.ops[id as usize] = Some(op);
            return;
        }
        op.ios -= 1;
        let part = &mut op.held[held as usize];
        part.buffer = buffer;
        match (result, part.source) {
            (Ok(()), Source::Backing) => self.gathered_one(&mut op, held),
            (Ok(()), Source::Cache(at)) => {
                let units = units_from(at, &part.range);
                let is_known = !self.has_lost_sums(units);
                if !is_known && op.kind == Kind::Copy {
                    op.failure.get_or_insert((Errno::Io, UNKNOWN.to_owned()));
                }
                let (mut misfits, first) = (Vec::new(), part.range.start);
                self.misfits(op.volume, &part.range, at, &part.buffer, &mut misfits);
                if misfits.is_empty() && op.kind != Kind::Copy {
                    self.memory.insert(units_from(at, &part.range), &part.buffer);
                }
                self.gathered_one(&mut op, held);
                for range in misfits {
                    let why = match is_known {
                        true => format!(
                            "the cache's device gives other bytes than were stored, at {}",
                            range.start
                        ),
                        false => UNKNOWN.to_owned(),
                    };
                    let at = at + (range.start - first);
                    self.cache_failed(id, &mut op, held, range, at, (Errno::Io, why));
                }
            }
            (Err(failure), Source::Backing) => {
                self.complain(op.volume, op.held[held as usize].range.start, &failure);
                op.failure.get_or_insert(failure);
            }
            (Err(failure), Source::Cache(at)) => self.read_singly(id, &mut op, held, at, failure),
        }
        if op.ios == 0 && op.stage == Stage::Gathering {
            self.ready.push_back(Ready::Gathered(id));
        }
        self.ops[id as usize] = Some(op);
    }

    /// Says, now and then, that a store fails what a client waits for.
    pub(super) fn complain(&mut self, at: usize, offset: u64, failure: &Failure) {
        if self.volumes[at].may_complain(self.now_ns) {
            tracing::warn!(volume = self.exports[at].name, offset, error = failure.1, "a request fails");
        }
    }

    /// These bytes are here. What replaces others goes to their place.
    fn gathered_one(&mut self, op: &mut Op, held: u32) {
        op.held[held as usize].is_good = true;
        let Some(root) = op.held[held as usize].patches else { return };
        let Held { range, buffer, .. } = &mut op.held[held as usize];
        let (range, bytes) = (std::mem::replace(range, 0..0), std::mem::take(buffer));
        let root = &mut op.held[root as usize];
        let (from, len) = ((range.start - root.range.start) as usize, (range.end - range.start) as usize);
        root.buffer[from..from + len].copy_from_slice(&bytes[..len]);
        self.pool.give_back(bytes);
    }

    /// The cache's device failed to read: unit by unit it may give some of it.
    fn read_singly(&mut self, id: u32, op: &mut Op, held: u32, at: u64, failure: Failure) {
        let range = op.held[held as usize].range.clone();
        if range.end - range.start == UNIT_BYTES {
            return self.cache_failed(id, op, held, range, at, failure);
        }
        op.held[held as usize].is_good = true;
        for start in (range.start..range.end).step_by(UNIT_BYTES as usize) {
            let source = Source::Cache(at + (start - range.start));
            self.submit_patch(id, op, held, start..start + UNIT_BYTES, source);
        }
    }

    /// Reads what replaces a part of what was read before.
    pub(super) fn submit_patch(
        &mut self,
        id: u32,
        op: &mut Op,
        held: u32,
        range: Range<u64>,
        source: Source,
    ) {
        let patches = op.held[held as usize].patches.unwrap_or(held);
        let held = op.held.len() as u32;
        let buffer = self.pool.lend((range.end - range.start) as usize);
        op.held.push(Held { range, source, buffer, is_good: false, patches: Some(patches) });
        self.submit_held(id, op, held);
    }

    /// One of the operation's requests that store is done.
    pub(super) fn stored_one(&mut self, id: u32, failed: Option<Failure>) {
        let Some(op) = self.ops[id as usize].as_mut() else { return };
        op.ios -= 1;
        if let Some(failed) = failed {
            op.failure.get_or_insert(failed);
        }
        if op.ios == 0 {
            self.ready.push_back(Ready::Stored(id));
        }
    }
}

/// The units of the cache that hold a range of a volume, from byte `at` of the cache on.
fn units_from(at: u64, range: &Range<u64>) -> Range<u64> {
    at / UNIT_BYTES..(at + range.end - range.start) / UNIT_BYTES
}

/// What a client is told of a store's error.
pub(super) fn failure(error: &BackingError) -> Failure {
    let errno = match error {
        BackingError::OutOfRange { .. } => Errno::Inval,
        BackingError::ReadOnly => Errno::Perm,
        BackingError::Full => Errno::NoSpc,
        BackingError::Failed(_) => Errno::Io,
    };
    (errno, format!("the backing store: {error}"))
}
