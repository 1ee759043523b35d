//! Parts shared by operations, each with fields of its own, and the methods that use several of them at once.

use std::collections::VecDeque;
use std::ops::Range;

use tiermem_policy::evict::Order;
use tiermem_policy::extents::cleaner::{Act, Outcome, Token};
use tiermem_policy::extents::{Extents, Mode, Part, Service, UNIT_BYTES};
use tiermem_tier::block::AlignedBuffer;

use super::client_jobs::{Answers, Concluded};
use super::descriptions::Descriptions;
use super::device::{Device, Io};
use super::flushing::Waiter;
use super::memory::Memory;
use super::op::{Failure, Op, Stored, common, units_from, units_of};
use super::op_table::Ready;
use super::pairing_state::CacheIdentity;
use super::unstored::Unstored;
use super::volume::Volumes;
use super::write_back::WriteBack;
use super::write_order::{Log, WriteOrder, units_at};
use crate::disks::{Answer, Asker, BufferPool, Piece};
use crate::journal::{Journal, UnitState};
use crate::nbd::Errno;
use tiermem_tier::backing::{self, BackingError};

/// The parts.
pub(super) struct Shared {
    pub cache: CacheIdentity,
    /// Dirty bytes that this start has taken as they were, since they were being overwritten when the process before ended.
    pub unchecked_bytes: u64,
    pub extents: Extents<Order>,
    pub write_back: WriteBack,
    pub log: Log,
    pub write_order: WriteOrder,
    pub device: Device,
    pub memory: Memory,
    pub unstored: Unstored,
    pub descriptions: Descriptions,
    pub volumes: Volumes,
    pub answers: Answers,
    pub pool: BufferPool,
    /// Operations that may continue.
    pub ready: VecDeque<Ready>,
    /// Parts of operations that were read and cannot be verified until their checksums are in memory.
    pub unproven: Vec<(u32, u32, AlignedBuffer)>,
    pub now_ns: u64,
}

/// A store's error as sent to a client.
pub(super) fn failure(error: &BackingError) -> Failure {
    let errno = match error {
        BackingError::OutOfRange { .. } => Errno::Inval,
        BackingError::ReadOnly => Errno::Perm,
        BackingError::Full => Errno::NoSpc,
        BackingError::Failed(_) => Errno::Io,
    };
    (errno, format!("the backing store: {error}"))
}

impl Shared {
    /// An operation has its part of the answer. What it read comes in `pieces`.
    pub fn reply(&mut self, op: &mut Op, pieces: Vec<Piece>) {
        let Some(concluded) = self.answers.reply(op, pieces, &mut self.pool) else { return };
        let Concluded { volume, kind, bytes, missed, waits } = concluded;
        self.volumes[volume].counts.note_request(kind, bytes, missed);
        if let Some(asker) = waits {
            self.begin_flush(asker, volume, true);
        }
    }

    /// Begins a flush: makes durable all writes that the client saw as
    /// done; or, with `is_write`, only the data of one completed write.
    pub fn begin_flush(&mut self, asker: Asker, at: usize, is_write: bool) {
        let volume = &mut self.volumes[at];
        // What was lost of others is for flushes to tell: a write answers for its own bytes.
        if !is_write && let Some(failure) = volume.flushing.take_lost() {
            return self.answers.tell(asker, Err(failure));
        }
        if let Some(why) = self.log.failure() {
            let failure = (Errno::Io, why.to_owned());
            return self.answers.tell(asker, Err(failure));
        }
        let promise = self.write_order.flush(&mut self.log);
        let mut epoch = None;
        if !self.log.is_kept() || self.unstored.has_of(at) {
            // Nothing of the cache outlives the process, or not all: so all that is dirty goes to the store.
            epoch = self.write_back.cleaner_mut().close_epoch(volume.number);
            if let Some(epoch) = epoch {
                if self.write_back.cleaner().standing(volume.number).refuses {
                    return self.refuse_flush(asker, at);
                }
                self.write_back.cleaner_mut().want(volume.number, epoch);
            }
        }
        let flush = volume.flushing.needed();
        if epoch.is_none() && flush.is_none() && promise == Default::default() {
            self.write_back.cleaner_mut().close_epoch(volume.number);
            return self.answers.tell(asker, Ok(Answer::Done));
        }
        volume.flushing.wait(Waiter { asker, is_write, epoch, flush, promise });
        self.flush_store(at);
    }

    /// An operation would have to wait for a store that has no room.
    pub fn refuse_for_room(&mut self, op: &mut Op) {
        self.volumes[op.volume].counts.full_refusals += 1;
        op.failure = Some(failure(&BackingError::Full));
    }

    /// A flush would have to wait for a store that has no room.
    fn refuse_flush(&mut self, asker: Asker, at: usize) {
        self.volumes[at].counts.full_refusals += 1;
        self.answers.tell(asker, Err(failure(&BackingError::Full)));
    }

    /// Those who wait for a store may wait no longer, as it has no room. Writes learn that when they try again; flushes here.
    pub fn refuse_waiters(&mut self, at: usize) {
        let standing = self.write_back.cleaner().standing(self.volumes[at].number);
        if standing.refuses {
            for waiter in self.volumes[at].flushing.take_for_epoch() {
                self.refuse_flush(waiter.asker, at);
            }
        }
        self.volumes.tell_of_room(at, standing, self.now_ns);
    }

    /// Begins a flush of the store if a client needs one and none runs.
    pub fn flush_store(&mut self, at: usize) {
        let volume = &self.volumes[at];
        if volume.flushing.is_wanted()
            && let Some(token) = self.write_back.cleaner_mut().begin_flush(volume.number)
        {
            self.begin_store_flush(at, token);
        }
    }

    /// Begins a flush of the store, for clients or the cleaner: one is for both.
    pub fn begin_store_flush(&mut self, at: usize, act: Token) {
        self.volumes[at].flushing.begin();
        let token = self.device.name(Io::Flush { volume: at as u16, act });
        self.volumes[at].backing.submit(backing::Request::flush(token));
    }

    /// A flush of a volume's store has ended: what follows for the cleaner at once.
    pub fn store_flushed(
        &mut self,
        at: usize,
        token: Token,
        result: Result<(), BackingError>,
        session: u64,
    ) -> Vec<Act> {
        let broke = || "the connection broke, and what was written before may be lost".to_owned();
        let is_lost = self.volumes[at].flushing.end(result.is_err(), session);
        let result = if is_lost { Err(BackingError::Failed(broke())) } else { result };
        let acts = match &result {
            Ok(()) => self.write_back.tell(self.now_ns, token, Outcome::Flushed { session }),
            Err(error) => {
                self.write_back_failed(at, token, error);
                Vec::new()
            }
        };
        self.answer_waiters(at, result.err().as_ref().map(failure));
        acts
    }

    /// Answers the flushes that are complete, and those that waited for the store's flush that has just failed.
    pub fn answer_waiters(&mut self, at: usize, failed: Option<Failure>) {
        let volume = &mut self.volumes[at];
        let (number, cleaner) = (volume.number, self.write_back.cleaner_mut());
        let is_flushed = |epoch| cleaner.is_flushed(number, epoch);
        let synced = self.log.journal().map(Journal::synced);
        let (done, lost) = volume.flushing.take_done(failed.is_some(), synced, is_flushed);
        for (waiter, failure) in lost.iter().zip(failed.iter().cycle()) {
            self.answers.tell(waiter.asker, Err(failure.clone()));
        }
        for waiter in done {
            // What comes from now on may not reach the store before what was promised.
            cleaner.close_epoch(number);
            self.answers.tell(waiter.asker, Ok(Answer::Done));
        }
    }

    /// The store has taken a part of what is written back, or not.
    pub fn written_back(&mut self, at: usize, act: Token, result: Result<(), BackingError>, session: u64) {
        match result {
            Ok(()) => {
                let acts = self.write_back.tell(self.now_ns, act, Outcome::Sent { session });
                debug_assert!(acts.is_empty(), "nothing follows before the next step");
            }
            Err(error) => self.write_back_failed(at, act, &error),
        }
    }

    /// An act has failed: the store is left alone for a while.
    pub fn write_back_failed(&mut self, at: usize, act: Token, error: &BackingError) {
        let number = self.volumes[at].number;
        let before_ns = self.write_back.cleaner().standing(number).retry_at_ns;
        let is_full = *error == BackingError::Full;
        let outcome = if is_full { Outcome::Full } else { Outcome::Failed };
        let acts = self.write_back.tell(self.now_ns, act, outcome);
        debug_assert!(acts.is_empty(), "nothing follows from a failure");
        self.volumes[at].counts.write_back_failures += 1;
        let standing = self.write_back.cleaner().standing(number);
        let retry_at_ns = standing.retry_at_ns;
        self.volumes.tell_of_room(at, standing, self.now_ns);
        if retry_at_ns > before_ns {
            let retry_after_ms = retry_at_ns.saturating_sub(self.now_ns) / 1_000_000;
            tracing::warn!(volume = self.volumes.name(at), %error, retry_after_ms,
                "the store took nothing of what is written back");
        }
    }

    /// An operation's plan is over. Blocks may go with it.
    pub fn finish_plan(&mut self, op: &mut Op) {
        let Shared { extents, write_order, log, .. } = self;
        extents.finish(&mut op.plan);
        write_order.note_map(log, extents);
    }

    /// Records that these units of a volume are durable in the store. Returns whether operations that wait for
    /// that may be retried now: until the log says so durably, no other data may be written to these places.
    pub fn note_clean(&mut self, at: usize, ranges: Vec<Range<u64>>) -> bool {
        let mut parts = self.dirty_parts(at, &ranges);
        // A log that has failed says nothing more, and nothing else is written to these places.
        if self.log.is_kept() && self.log.failure().is_none() {
            let unstored = self.take_unstored(&mut parts);
            let number = self.volumes[at].number;
            self.write_order.note_dropped(&mut self.log, number, &unstored);
            self.write_order.note_clean(&mut self.log, &parts, at, ranges);
            return self.settle_cleaned();
        }
        self.made_clean(parts);
        true
    }

    /// Takes those of these parts out that are [unstored](Unstored).
    fn take_unstored(&self, parts: &mut Vec<Part>) -> Vec<Part> {
        let mut unstored = Vec::new();
        if !parts.iter().any(|part| self.unstored.has(&units_at(part))) {
            return unstored;
        }
        for part in std::mem::take(parts) {
            for units in self.unstored.runs(units_at(&part)) {
                let at = units.start * UNIT_BYTES;
                let run = Part {
                    offset: part.offset + (at - part.at),
                    at,
                    bytes: (units.end - units.start) * UNIT_BYTES,
                };
                if self.unstored.has(&units) { unstored.push(run) } else { parts.push(run) }
            }
        }
        unstored
    }

    /// The store has these parts for good. What of them the cache's device has not is not cached any more.
    fn made_clean(&mut self, mut parts: Vec<Part>) {
        let unstored = self.take_unstored(&mut parts);
        self.extents.units_mut().cleaned(&parts);
        self.extents.units_mut().invalidate(&unstored);
        unstored.iter().for_each(|part| self.unstored.forget(units_at(part)));
    }

    /// Frees the units that the log durably says are clean, or will never say anything of any more, as far
    /// as they are not dirty again. Returns whether there were any.
    pub fn settle_cleaned(&mut self) -> bool {
        let settled = self.write_order.take_cleaned(&self.log);
        for (at, ranges) in &settled {
            let mut clean = Vec::new();
            for range in ranges {
                let number = self.volumes[*at].number;
                self.write_back.cleaner().lacks_nothing_of(number, range.clone(), &mut clean);
            }
            let parts = self.dirty_parts(*at, &clean);
            self.made_clean(parts);
        }
        !settled.is_empty()
    }

    /// The dirty parts of these units in the cache, without lost ones.
    pub fn dirty_parts(&mut self, at: usize, ranges: &[Range<u64>]) -> Vec<Part> {
        let mut parts = Vec::new();
        for units in ranges {
            let range = units.start * UNIT_BYTES..units.end * UNIT_BYTES;
            self.extents.visit(self.volumes[at].number, range, |part, is_dirty| {
                if is_dirty {
                    parts.push(part);
                }
            });
        }
        self.extents.units().without_lost(&parts)
    }

    /// Nothing was stored of these parts. A write that failed with the log may have marked some as dirty all the same.
    pub fn forget_parts(&mut self, at: usize, parts: &[Part]) {
        self.extents.units_mut().invalidate(parts);
        let number = self.volumes[at].number;
        for part in parts {
            self.write_back.cleaner_mut().lost(number, units_of(&(part.offset..part.offset + part.bytes)));
        }
    }

    /// These parts of a volume are not cached any more.
    pub fn drop_parts(&mut self, at: usize, parts: &[Part]) {
        self.extents.units_mut().invalidate(parts);
        self.write_order.note_dropped(&mut self.log, self.volumes[at].number, parts);
    }

    /// These units read as an error from now on.
    pub fn lose_parts(&mut self, at: usize, parts: &[Part]) {
        for part in parts {
            let units = units_at(part);
            self.volumes[at].counts.poisoned_units += units.end - units.start;
            self.extents.units_mut().lose(units.clone());
            self.log.note_lost(units);
        }
    }

    /// An operation's plan is stored: what it made dirty, and what was fetched beside that.
    pub fn note_stored(&mut self, op: &Op) {
        for (fill, part) in op.plan.fill.iter().enumerate() {
            let units = units_at(part);
            if op.unstored.contains(&(fill as u32)) || !self.extents.units().has_lost(units.clone()) {
                continue;
            }
            units.for_each(|unit| _ = self.extents.units_mut().mend(unit));
        }
        self.log.note_stored(op);
    }

    /// Where an operation's bytes go.
    pub fn mode_for(&mut self, op: &Op) -> Mode {
        let volume = &self.volumes[op.volume];
        self.extents.write_mode(volume.number, op.aligned(), volume.mode)
    }

    /// Whether something of a range of a volume is marked as dirty.
    pub fn is_marked(&mut self, at: usize, range: &Range<u64>) -> bool {
        let mut any = false;
        self.extents.visit(self.volumes[at].number, range.clone(), |_, is_dirty| any |= is_dirty);
        any
    }

    /// Whether the store lacked something of a range, which lies at a byte of the cache, before an operation came.
    pub fn was_dirty(&mut self, op: &Op, range: &Range<u64>, at: u64) -> bool {
        let units = units_from(at, range);
        if let Some(journal) = self.log.journal() {
            let mut states = units.clone().map(|unit| journal.state(unit));
            let is_dirty = states.any(|state| matches!(state, UnitState::Dirty | UnitState::Poisoned));
            // A log that has failed takes no record of what is lost, nor of what the store got since.
            let has_failed = journal.failed().is_some();
            return self.extents.units().has_lost(units)
                || is_dirty && (!has_failed || self.is_marked(op.volume, range));
        }
        if op.kind.is_write() {
            // Its own plan has made the units dirty; how they were before it says.
            return op.plan.unclean.iter().any(|part| !common(&units_at(part), &units).is_empty());
        }
        self.is_marked(op.volume, range)
    }

    /// The cache's device failed a read or a write of these units, which are not used again. After many of them none is.
    pub fn place_failed(&mut self, at: usize, units: Range<u64>, failure: &Failure) {
        tracing::warn!(
            volume = self.volumes.name(at),
            from = units.start * UNIT_BYTES,
            to = units.end * UNIT_BYTES,
            error = failure.1,
            "the cache's device fails: this place of the cache is not used again before a restart"
        );
        let was_used = self.extents.service() != Service::OutOfUse;
        self.extents.fail(units);
        if was_used && self.extents.service() == Service::OutOfUse {
            tracing::error!(
                retired_bytes = self.extents.map().retired_bytes(),
                "the cache's device fails in many places: the cache is out of use until a restart, and the stores serve alone"
            );
            for volume in self.volumes.iter() {
                self.write_back.cleaner_mut().drain(volume.number, true);
            }
        }
    }

    /// The cache has not taken a part of a write, or cannot write down that it has. What only the cache was to have stays in DRAM, as
    /// dirty as before, and so does what was lost; the store has the rest.
    pub fn not_stored(&mut self, op: &Op, stored: &Stored) {
        let part = op.plan.fill[stored.fill as usize];
        let number = self.volumes[op.volume].number;
        let units = self.extents.units();
        let clean = units.those_dirty(&[part], false);
        let dirty = units.those_dirty(&[part], true);
        self.drop_parts(op.volume, &clean);
        if dirty.is_empty() {
            return;
        }
        if stored.buffer.len() as u64 != part.bytes {
            // The system has kept it.
            return self.lose_early(op, &dirty);
        }
        for lacking in &dirty {
            for unit in units_at(lacking) {
                let from = (unit * UNIT_BYTES - part.at) as usize;
                self.unstored.keep(unit, op.volume, &stored.buffer[from..from + UNIT_BYTES as usize]);
                self.extents.units_mut().mend(unit);
                self.write_order.note_unstored(
                    &mut self.log,
                    number,
                    lacking.offset + unit * UNIT_BYTES - lacking.at,
                    unit,
                );
            }
            // Of what went through the cache the store is not known to have it flushed: it is written back once more.
            if op.plan.dirtied.is_empty() {
                let units = units_of(&(lacking.offset..lacking.offset + lacking.bytes));
                self.write_back.cleaner_mut().restore(number, units);
            }
        }
        // Flushes that wait for this write wait until the store has it.
        if self.volumes[op.volume].flushing.has_owing() {
            let cleaner = self.write_back.cleaner_mut();
            let epoch = cleaner.close_epoch(number);
            if let Some(epoch) = epoch {
                cleaner.want(number, epoch);
                self.volumes[op.volume].flushing.wait_for_epoch(epoch);
            }
        }
    }

    /// Dirty bytes are gone: they read as an error. Of a write that its client takes to be done, the flushes that wait for it report the
    /// failure, or the next flush does.
    fn lose_early(&mut self, op: &Op, dirty: &[Part]) {
        self.lose_parts(op.volume, dirty);
        let failure = (
            Errno::Io,
            "the system did not give back bytes that the cache's device has not taken".to_owned(),
        );
        for waiter in self.volumes[op.volume].flushing.lose(&failure) {
            self.answers.tell(waiter.asker, Err(failure.clone()));
        }
    }
}

#[cfg(test)]
#[path = "shared/tests.rs"]
mod tests;
