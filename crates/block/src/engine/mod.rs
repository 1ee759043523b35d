//! Block cache engine: carries out the plans of [`tiermem_policy::extents`] on a cache device and backing stores.
//!
//! docs/block-design.md has the protocol. One thread owns all of it and never waits: clients' jobs arrive
//! through the seam [`crate::disks::Disks`] and are split into operations of at most 1 MiB. An operation
//! claims its range ([`claims`]), is planned, reads what it needs, stores its data, and releases its claims
//! ([`op_steps`]). Devices and stores complete in any order; operations that wait for them are in tables.
//!
//! The engine drives the operations and the parts that they share ([`shared`]). Each part has its own state:
//!
//! | part | what it owns |
//! | --- | --- |
//! | [`op_table`] | operations under way, and those that wait for a write-back or for another operation to end |
//! | [`client_jobs`] | clients' jobs, their answers, and the payloads of writes |
//! | [`write_order`] | what must be durable before what; the log, and the operations that wait for it |
//! | [`write_back`] | the cleaner, and its pending work |
//! | [`descriptions`] | descriptions that wait for what stores say |
//! | [`device`] | requests to the cache's device, and the owner of each request in flight |
//! | [`memory`] | bytes of units that are in DRAM as well |
//! | [`unstored`] | bytes of units that the cache's device did not take, until the stores have them |
//! | [`volume`] | stores and exports; of each volume its [`claims`] and its flushes ([`flushing`]) |
//! | [`tiermem_policy::extents`] | what is cached where, and in which state |

mod assembly;
mod claims;
mod client_jobs;
mod config;
mod control;
mod copying;
mod counts;
mod describe;
mod descriptions;
mod device;
mod early_answers;
mod flushing;
mod memory;
mod op;
mod op_steps;
mod op_table;
mod opening;
mod pairing;
mod pairing_state;
mod read;
mod read_parts;
mod shared;
mod status;
#[cfg(test)]
mod test_engine;
mod ticker;
mod trim;
mod unflushed_writes;
mod unmapped;
mod unstored;
mod volume;
mod warm_start;
mod write;
mod write_back;
mod write_order;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use tiermem_policy::extents::UNIT_BYTES;
use tiermem_policy::extents::cleaner::{Act, TrimsLeft};
use tiermem_tier::block::{self as device_requests, AlignedBuffer};

use crate::disks::{Answer, Disks, Job as Asked, Outcome, Task, Waker};
use crate::journal::Journal;
use crate::nbd::{Errno, Export};
use tiermem_tier::backing;

use client_jobs::Job;
pub use config::{EngineConfig, EngineError, VolumeConfig};
pub use control::{ControlError, Drops, WriteBack};
pub use counts::Counts;
use device::Io;
use op::{Kind, Op, op_bytes_max};
use op_steps::Work;
use op_table::{After, Operations, Ready};
use shared::{Shared, failure};
pub use status::{BlockSize, CacheStatus, ExportStatus, LogStatus, Status};
use ticker::Ticker;

/// Most requests observed one after another before other work has its turn: some 20 us each, with four block sizes.
const OBSERVED_AT_ONCE: usize = 4;

/// The cache and the volumes in front of which it stands.
pub struct Engine {
    ops: Operations,
    shared: Shared,
    waker: Option<Waker>,
    ticker: Ticker,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    pause: Arc<dyn Fn(Duration) + Send + Sync>,
}

impl Engine {
    /// Counters of a volume.
    pub fn counts(&self, volume: usize) -> &Counts {
        &self.shared.volumes[volume].counts
    }

    /// Whether nothing is under way: no client's job, no request to a device or store, and nothing left dirty that it is time to
    /// write back.
    pub fn is_idle(&self) -> bool {
        self.shared.answers.is_idle() && self.ops.is_empty() && self.shared.device.is_idle()
    }

    /// Bytes of DRAM that hold copies of cached bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.shared.memory.held_bytes()
    }

    /// Bytes that the backing stores do not have.
    pub fn dirty_bytes(&self) -> u64 {
        self.shared.extents.units().dirty_bytes()
    }

    /// When the engine must be called again even if no device or store
    /// has completed anything: for a driver with a clock of its own.
    pub fn wakes_at_ns(&self) -> Option<u64> {
        let deadline_ns = self.shared.log.journal().and_then(Journal::deadline_ns);
        let closes_at_ns = self.shared.write_order.closes_at_ns(&self.shared.log);
        self.shared.write_back.wake_ns().into_iter().chain(deadline_ns).chain(closes_at_ns).min()
    }

    /// Begins a client's job.
    fn begin(&mut self, asked: Asked) {
        let Asked { asker, disk: volume, task, offset, bytes, durable } = asked;
        let counts = &mut self.shared.volumes[volume].counts;
        let (kind, buffer) = match task {
            Task::Read => (Kind::Read, AlignedBuffer::empty()),
            Task::Write(buffer) => (Kind::Write, buffer),
            Task::Zero => (Kind::Zero, AlignedBuffer::empty()),
            Task::Trim => (Kind::Trim, AlignedBuffer::empty()),
            Task::Prefetch => (Kind::Prefetch, AlignedBuffer::empty()),
            Task::Flush => {
                counts.flushes += 1;
                return self.shared.begin_flush(asker, volume, false);
            }
            Task::Describe(contexts) => {
                counts.describes += 1;
                return self.shared.describe(asker, volume, offset..offset + bytes, contexts);
            }
        };
        if bytes == 0 {
            return self.shared.answers.tell(asker, Ok(Answer::Done));
        }
        let op_bytes = op_bytes_max(self.shared.extents.geometry());
        // Cut at multiples, so that a long job touches no block twice more than it must.
        let count = ((offset + bytes).div_ceil(op_bytes) - offset / op_bytes) as u32;
        let durable = durable && kind != Kind::Read
            || kind.is_write() && self.shared.volumes[volume].acknowledges_durably;
        let job = Job { asker, volume, kind, bytes, durable, buffer, offset };
        let id = self.shared.answers.begin(job, count);
        let mut at = offset;
        for index in 0..count {
            let end = ((at / op_bytes + 1) * op_bytes).min(offset + bytes);
            self.start(|op| {
                (op.job, op.index, op.volume, op.kind) = (Some(id), index, volume, kind);
                (op.offset, op.bytes) = (at, end - at);
            });
            at = end;
        }
    }

    /// Begins an operation: it claims its range.
    fn start(&mut self, set: impl FnOnce(&mut Op)) {
        let (id, op) = self.ops.begin();
        set(op);
        self.work(id, |work| work.claim());
    }

    /// Runs an operation, if it is under way.
    fn work(&mut self, id: u32, work: impl FnOnce(Work<'_>) -> After) {
        let Some(op) = self.ops.get_mut(id) else { return };
        match work(Work { id, op, shared: &mut self.shared }) {
            After::Waits => {}
            After::Parks => self.ops.park(id),
            After::Crowds => self.ops.crowd(id),
            After::Ends => {
                self.ops.end(id);
                // Its plan may have blocked other operations.
                self.call_crowded();
            }
        }
    }

    /// Blocks were written back: retries the operations that waited for that.
    fn call_parked(&mut self) {
        for id in self.ops.take_parked() {
            self.work(id, |work| work.claim());
        }
    }

    /// A plan in flight has ended, or the log has room: retries the operations that waited for that.
    fn call_crowded(&mut self) {
        for id in self.ops.take_crowded() {
            self.work(id, |work| work.claim());
        }
    }

    /// Runs the operations that are ready.
    fn run_ready(&mut self) {
        while let Some(ready) = self.shared.ready.pop_front() {
            match ready {
                Ready::Claim(id) => self.work(id, |work| work.try_claims()),
                Ready::Gathered(id) => self.work(id, |work| work.gathered()),
                Ready::Stored(id) => self.work(id, |work| work.stored()),
            }
        }
    }

    /// Processes completions of devices and stores, until nothing more can be done now.
    fn pump(&mut self) {
        self.shared.now_ns = (self.clock)();
        // All that is done by now is known before anything is decided.
        self.take_completions();
        loop {
            self.run_ready();
            self.clean();
            let Shared { log, device, write_order, now_ns, .. } = &mut self.shared;
            write_order.close_idle(log, *now_ns);
            log.poll(*now_ns, device.outgoing());
            device.submit();
            let any = self.take_completions();
            let Shared { write_back, log, ready, .. } = &self.shared;
            // What is copied out of DRAM ends as soon as it begins. And room in the log may have come with this very poll.
            let is_new = write_back.was_told() || write_back.is_stopped() && log.has_room();
            if !any && ready.is_empty() && !is_new {
                break;
            }
        }
        let Shared { log, volumes, write_back, write_order, .. } = &self.shared;
        debug_assert!(!write_back.was_told(), "the cleaner has decided about all that it was told");
        let is_at_rest = volumes.iter().all(|volume| {
            let cleaner = write_back.cleaner();
            cleaner.is_settled(volume.number) && cleaner.standing(volume.number).trims_left == TrimsLeft::None
        });
        // Asks to be called again where time alone changes something.
        let is_due = log.journal().and_then(Journal::deadline_ns).or(write_order.closes_at_ns(log)).is_some();
        if is_due || !is_at_rest {
            self.ticker.arm();
        }
    }

    /// Takes what devices, stores and the log have done; whether there was anything.
    fn take_completions(&mut self) -> bool {
        let mut any = self.shared.device.collect();
        while let Some(completion) = self.shared.device.arrived() {
            self.cache_done(completion);
        }
        any |= self.shared.volumes.collect();
        while let Some(completion) = self.shared.volumes.answered() {
            self.backing_done(completion);
        }
        self.log_progressed();
        // More checksums may be there: what was read is compared with them.
        for (op, held, buffer) in std::mem::take(&mut self.shared.unproven) {
            self.gathered_part(op, held, buffer, Ok(()));
        }
        any
    }

    /// The cache's device has done a request.
    fn cache_done(&mut self, completion: device_requests::Completion) {
        if Journal::owns(completion.token) {
            return self.shared.log.complete(completion);
        }
        let Some(io) = self.shared.device.owner(completion.token) else { return };
        let result = completion.result.map_err(|error| (Errno::Io, format!("the cache: {error}")));
        match io {
            Io::Gather { op, held } => self.gathered_part(op, held, completion.buffer, result),
            Io::Store { op, fill } => self.work(op, |mut work| {
                work.stored_part(fill, completion.buffer, result);
                After::Waits
            }),
            Io::Through { .. }
            | Io::WriteBack { .. }
            | Io::Flush { .. }
            | Io::Describe { .. }
            | Io::Trim { .. } => {
                debug_assert!(false, "{io:?} is a store's");
            }
        }
    }

    /// A store has done a request.
    fn backing_done(&mut self, completion: backing::Completion) {
        let Some(io) = self.shared.device.owner(completion.token) else { return };
        let backing::Completion { mut buffer, result, bytes, session, extents, .. } = completion;
        match io {
            Io::Gather { op, held } => {
                if let Some(rest) = buffer.get_mut(bytes as usize..) {
                    rest.fill(0);
                }
                self.gathered_part(op, held, buffer, result.map_err(|error| failure(&error)));
            }
            Io::Through { op } => {
                self.shared.pool.give_back(buffer);
                self.work(op, |mut work| {
                    work.through_done(result.map_err(|error| failure(&error)), session);
                    After::Waits
                });
            }
            Io::Trim { op } => self.work(op, |work| {
                work.shared.trimmed(work.op, result.map_err(|error| failure(&error)));
                work.end()
            }),
            Io::WriteBack { volume, act } => {
                self.shared.pool.give_back(buffer);
                self.shared.written_back(usize::from(volume), act, result, session);
            }
            Io::Flush { volume, act } => {
                let at = usize::from(volume);
                for act in self.shared.store_flushed(at, act, result, session) {
                    self.carry_out(act);
                }
                self.shared.flush_store(at);
            }
            Io::Describe { number } => {
                let extents = if result.is_ok() { extents } else { Vec::new() };
                self.shared.described(number, &extents);
            }
            Io::Store { .. } => debug_assert!(false, "{io:?} is the cache's"),
        }
    }

    /// A part of what an operation needs is here, or cannot be had.
    fn gathered_part(
        &mut self,
        id: u32,
        held: u32,
        buffer: AlignedBuffer,
        result: Result<(), (Errno, String)>,
    ) {
        self.work(id, |mut work| {
            work.gathered_part(held, buffer, result);
            After::Waits
        });
    }

    /// The log has progressed or failed: resumes the operations that waited for that.
    fn log_progressed(&mut self) {
        let why = self.shared.log.failure().map(str::to_owned);
        for id in self.shared.log.take_woken() {
            match &why {
                None => self.work(id, |work| work.resume()),
                Some(why) => self.work(id, |work| work.log_failed(why)),
            }
        }
        let Some(why) = why else {
            if self.shared.settle_cleaned() {
                self.call_parked();
            }
            // Operations that wait only for plans in flight are retried
            // when one of these ends: retried here, they would loop.
            if self.shared.log.take_awaited_room() {
                self.call_crowded();
            }
            for at in 0..self.shared.volumes.len() {
                if self.shared.volumes[at].flushing.has_waiters() {
                    self.shared.answer_waiters(at, None);
                }
            }
            return;
        };
        self.shared.settle_cleaned();
        // What they wait for never comes.
        self.call_crowded();
        self.call_parked();
        for volume in self.shared.volumes.iter_mut() {
            for waiter in volume.flushing.take_all() {
                self.shared.answers.tell(waiter.asker, Err((Errno::Io, why.clone())));
            }
        }
    }

    /// Lets the cleaner decide, and starts its acts.
    fn clean(&mut self) {
        let Shared { write_back, extents, log, now_ns, .. } = &mut self.shared;
        write_back.step(*now_ns, extents, log.has_room(), self.ops.parked() > 0);
        while let Some(act) = self.shared.write_back.next_act() {
            self.carry_out(act);
        }
        self.run_ready();
    }

    /// Begins an act of the cleaner's.
    fn carry_out(&mut self, act: Act) {
        match act {
            Act::Copy { token, volume, units } => {
                let at = self.shared.volumes.place_of(volume);
                self.start(|op| {
                    (op.volume, op.kind, op.act) = (at, Kind::Copy, Some(token));
                    (op.offset, op.bytes) =
                        (units.start * UNIT_BYTES, (units.end - units.start) * UNIT_BYTES);
                });
            }
            Act::Flush { token, volume } => {
                let at = self.shared.volumes.place_of(volume);
                self.shared.begin_store_flush(at, token);
            }
            Act::Clean { volume, runs } => {
                let at = self.shared.volumes.place_of(volume);
                if self.shared.note_clean(at, runs) {
                    self.call_parked();
                }
                self.shared.refuse_waiters(at);
            }
            Act::Trim { token, volume, units } => {
                let at = self.shared.volumes.place_of(volume);
                self.start(|op| {
                    (op.volume, op.kind, op.act) = (at, Kind::TrimStore, Some(token));
                    (op.offset, op.bytes) =
                        (units.start * UNIT_BYTES, (units.end - units.start) * UNIT_BYTES);
                });
            }
            Act::Wait { until_ns } => self.shared.write_back.wake_at(until_ns),
            Act::Send { .. } => debug_assert!(false, "what was copied is sent where it is: see `copied`"),
        }
    }
}

impl Disks for Engine {
    fn exports(&self) -> &[Export] {
        self.shared.volumes.exports()
    }

    fn submit(&mut self, job: Asked) {
        self.shared.now_ns = (self.clock)();
        self.begin(job);
        self.run_ready();
    }

    fn take(&mut self, done: &mut Vec<Outcome>) {
        self.pump();
        self.shared.answers.take(done);
    }

    fn rest(&mut self) {
        self.shared.extents.sizer_mut().observe(OBSERVED_AT_ONCE);
    }

    fn notify(&mut self, waker: Waker) {
        self.shared.device.notify(Arc::clone(&waker));
        self.shared.volumes.notify(&waker);
        self.ticker = Ticker::start(Arc::clone(&waker));
        self.waker = Some(waker);
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.shared.device.pollable()
    }

    fn lend(&mut self, bytes: usize) -> AlignedBuffer {
        self.shared.pool.lend(bytes)
    }

    fn give_back(&mut self, buffer: AlignedBuffer) {
        self.shared.pool.give_back(buffer);
    }
}
