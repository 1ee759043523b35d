//! The block cache, live: carries out the plans of [`tiermem_policy::extents`] on a cache device and backing stores.
//!
//! The protocol is in docs/block-design.md. One thread owns all of it and never waits: clients' jobs come through the seam
//! [`crate::disks::Disks`] and are cut into operations of at most 1 MiB. An operation claims its range ([`claims`]), is planned, reads
//! what it needs, stores what it has, and lets go. Devices and stores complete in any order; what waits for them lies in tables here.

mod claims;
mod cleaning;
mod config;
mod control;
mod counts;
mod flush;
mod io;
mod jobs;
mod ledger;
mod memory;
mod op;
mod opening;
mod owed;
mod read;
mod status;
mod ticker;
mod trim;
mod unmapped;
mod volume;
mod write;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use tiermem_policy::evict::Order;
use tiermem_policy::extents::cleaner::{Act, Cleaner};
use tiermem_policy::extents::{Event, Extents};
use tiermem_tier::block::{self as device, BlockIo};

use crate::backing::Completion;
use crate::disks::{BufferPool, Disks, Job as Asked, Outcome, Waker};
use crate::nbd::Export;

pub use config::{EngineConfig, EngineError, VolumeConfig};
pub use control::{ControlError, Drops, WriteBack};
pub use counts::Counts;
use io::Io;
use ledger::Ledger;
use memory::Memory;
use op::{Job, Op};
pub use status::{BlockSize, CacheStatus, ExportStatus, LogStatus, Status};
use ticker::Ticker;
use volume::VolumeState;

/// Requests that are observed one after the other, at most, before others have their turn.
const OBSERVED_AT_ONCE: usize = 16;

/// What may go on.
#[derive(Clone, Copy, Debug)]
enum Ready {
    /// This operation may get what it claims.
    Claim(u32),
    /// It has read all that it needs.
    Gathered(u32),
    /// It has written all that it has.
    Stored(u32),
}

/// The cache and the volumes in front of which it stands.
pub struct Engine {
    extents: Extents<Order>,
    /// What is written back when, and who waits for it.
    cleaner: Cleaner,
    /// What it wants done, until that is carried out.
    acts: Vec<Act>,
    /// An act has ended since it decided last: it is to decide again.
    cleaner_was_told: bool,
    /// When time alone changes something for it.
    wake_ns: Option<u64>,
    /// The log of what is cached; a cache without one does not outlive the process.
    ledger: Option<Ledger>,
    events: Vec<Event>,
    cache: Box<dyn BlockIo>,
    memory: Memory,
    /// Where on the cache's device its space begins.
    data_at: u64,
    /// Requests to the cache's device that are yet to be submitted.
    outgoing: Vec<device::Request>,
    volumes: Vec<VolumeState>,
    /// The place of each in `volumes`, by the number under which the cache knows it.
    places: Vec<usize>,
    /// How many owners of space there may be.
    shares: u16,
    exports: Vec<Export>,
    jobs: Slab<Job>,
    /// `None` while one is worked on.
    ops: Slab<Option<Box<Op>>>,
    ios: Slab<Io>,
    /// Operations to be used again, with what their vectors hold.
    #[expect(clippy::vec_box, reason = "they move between here and `ops`, and no bytes with them")]
    spare: Vec<Box<Op>>,
    ready: VecDeque<Ready>,
    /// Operations that wait for blocks to be written back.
    parked: VecDeque<u32>,
    /// Operations that wait for plans in flight to end.
    crowded: VecDeque<u32>,
    done: Vec<Outcome>,
    pool: BufferPool,
    waker: Option<Waker>,
    ticker: Ticker,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    pause: Arc<dyn Fn(Duration) + Send + Sync>,
    now_ns: u64,
    // Vectors that are used again.
    woken: Vec<u32>,
    arrived: Vec<device::Completion>,
    answered: Vec<Completion>,
}

impl Engine {
    /// What the cache did for a volume.
    pub fn counts(&self, volume: usize) -> &Counts {
        &self.volumes[volume].counts
    }

    /// Whether nothing is under way: no client's job, no request to a device or store, and nothing left dirty that it is time to
    /// write back.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.ops.is_empty() && self.ios.is_empty()
    }

    /// Bytes of DRAM that hold copies of cached bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.held_bytes()
    }

    /// Bytes that the backing stores do not have.
    pub fn dirty_bytes(&self) -> u64 {
        self.extents.units().dirty_bytes()
    }

    /// Takes what devices and stores have done and goes on with it, until there is nothing that can be done now.
    fn pump(&mut self) {
        self.now_ns = (self.clock)();
        // All that is done by now is known before anything is decided.
        self.take_completions();
        loop {
            self.run_ready();
            self.clean();
            if let Some(ledger) = &mut self.ledger {
                ledger.journal.poll(self.now_ns, &mut self.outgoing);
            }
            self.submit_outgoing();
            let any = self.take_completions();
            // What is copied out of DRAM ends as soon as it begins.
            if !any && self.ready.is_empty() && !self.cleaner_was_told {
                break;
            }
        }
        self.arm();
    }

    /// Takes what devices, stores and the log have done; whether there was anything.
    fn take_completions(&mut self) -> bool {
        let any = self.collect();
        self.log_progressed();
        self.prove();
        any
    }

    /// When it wants to be called again though no device or store has done anything: for who drives it by a clock of his own.
    pub fn wakes_at_ns(&self) -> Option<u64> {
        let log_ns = self.ledger.as_ref().and_then(|ledger| ledger.journal.deadline_ns());
        self.wake_ns.into_iter().chain(log_ns).min()
    }

    fn run_ready(&mut self) {
        while let Some(ready) = self.ready.pop_front() {
            match ready {
                Ready::Claim(id) => self.try_claims(id),
                Ready::Gathered(id) => self.gathered(id),
                Ready::Stored(id) => self.stored(id),
            }
        }
    }
}

impl Disks for Engine {
    fn exports(&self) -> &[Export] {
        &self.exports
    }

    fn submit(&mut self, job: Asked) {
        self.now_ns = (self.clock)();
        self.begin(job);
        self.run_ready();
    }

    fn take(&mut self, done: &mut Vec<Outcome>) {
        self.pump();
        done.append(&mut self.done);
    }

    fn rest(&mut self) {
        self.extents.sizer_mut().observe(OBSERVED_AT_ONCE);
    }

    fn notify(&mut self, waker: Waker) {
        self.cache.notify(Arc::clone(&waker));
        for volume in &mut self.volumes {
            volume.backing.notify(Arc::clone(&waker));
        }
        self.ticker = Ticker::start(Arc::clone(&waker));
        self.waker = Some(waker);
    }

    fn lend(&mut self, bytes: usize) -> device::AlignedBuffer {
        self.pool.lend(bytes)
    }

    fn give_back(&mut self, buffer: device::AlignedBuffer) {
        self.pool.give_back(buffer);
    }
}
