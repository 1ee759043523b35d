//! A volume: its store, and what is going on with it.

use tiermem_policy::extents::epochs::Epochs;
use tiermem_policy::extents::{Mode, Share, UNIT_BYTES, Volume};

use super::claims::Claims;
use super::config::VolumeConfig;
use super::counts::Counts;
use super::op::Failure;
use super::owed::Generation;
use crate::backing::Backing;
use crate::disks::Asker;
use crate::journal::Lsn;

/// Epochs that a volume may have before its writers wait for the oldest to be written back.
const EPOCHS_MAX: usize = 16;
/// What is written back between two flushes of the store at most, so that its blocks become clean now and then.
const FLUSH_EVERY_BYTES: u64 = 64 << 20;
/// However little memory the log has for its table.
const FLUSH_EVERY_BYTES_MIN: u64 = 1 << 20;

/// Flushes of a store: one at a time, so that who comes while one runs waits for the next.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// How many were begun.
    pub begun: u64,
    /// How many have ended.
    pub ended: u64,
    /// Somebody needs this one.
    pub wanted: u64,
}

/// A client's flush, or a write that must be durable, and what it waits for.
#[derive(Debug)]
pub(super) struct Waiter {
    pub asker: Asker,
    /// It is about its own bytes alone.
    pub is_write: bool,
    /// All epochs up to this one must be in the store.
    pub epoch: Option<u64>,
    /// This flush of the store must have ended.
    pub flush: Option<u64>,
    /// These writes must be over; only then is known up to where the log must be durable.
    pub owed: Option<Generation>,
    /// The log must be durable up to here.
    pub log: Option<Lsn>,
}

/// A volume.
pub(super) struct VolumeState {
    /// Under which the cache knows it.
    pub number: Volume,
    pub backing: Box<dyn Backing>,
    pub mode: Mode,
    /// Whose space it takes, and how much of it that may be.
    pub share: Share,
    pub quota_bytes: Option<u64>,
    pub epochs: Epochs,
    pub claims: Claims,
    pub counts: Counts,
    /// The store's session, as it was told last.
    pub session: u64,
    /// The oldest session in which the store was written to by clients' requests since its last flush began.
    pub direct_writes: Option<u64>,
    /// The same, as it was when the flush that runs began.
    pub direct_flushing: Option<u64>,
    pub flushes: Flushes,
    pub waiters: Vec<Waiter>,
    /// Why a write was lost whose client was told that it is done: the next flush must say so.
    pub lost: Option<Failure>,
    /// Somebody outside wants all epochs up to this one in the store.
    pub wanted: Option<u64>,
    /// What is left to be written back of what was due.
    pub due_bytes: u64,
    /// Bytes that are being copied or written back.
    pub leaving_bytes: u64,
    /// The store failed a write or flush of write-back: when to try again, and after how many failures in a row.
    pub retry_at_ns: u64,
    pub failures: u32,
    /// Until when nothing more is said of requests that the store fails.
    quiet_until_ns: u64,
}

/// How often something is said of requests that a store fails.
const COMPLAIN_EVERY_NS: u64 = 1_000_000_000;

impl VolumeState {
    /// Whether it is time to say that the store fails requests.
    pub(super) fn may_complain(&mut self, now_ns: u64) -> bool {
        let may = now_ns >= self.quiet_until_ns;
        if may {
            self.quiet_until_ns = now_ns + COMPLAIN_EVERY_NS;
        }
        may
    }

    /// Whether what is dirty should go to the store without delay.
    pub(super) fn is_waited_for(&self) -> bool {
        // In the other modes writes wait until nothing is dirty.
        self.mode != Mode::WriteBack
            || self.waiters.iter().any(|waiter| waiter.epoch.is_some())
            || self.wanted.is_some_and(|epoch| !self.epochs.is_flushed(epoch))
    }

    /// With a log that can take note of so many clean units at once.
    pub(super) fn new(
        number: Volume,
        config: &VolumeConfig,
        backing: Box<dyn Backing>,
        units_at_once: u64,
    ) -> Self {
        let session = backing.session();
        let flush_every_bytes = units_at_once.saturating_mul(UNIT_BYTES).max(FLUSH_EVERY_BYTES_MIN);
        VolumeState {
            number,
            backing,
            mode: config.mode,
            share: Share(config.share),
            quota_bytes: config.quota_bytes,
            wanted: None,
            epochs: Epochs::new(EPOCHS_MAX, flush_every_bytes.min(FLUSH_EVERY_BYTES)),
            claims: Claims::default(),
            counts: Counts::default(),
            session,
            direct_writes: None,
            direct_flushing: None,
            flushes: Flushes::default(),
            waiters: Vec::new(),
            lost: None,
            due_bytes: 0,
            leaving_bytes: 0,
            retry_at_ns: 0,
            failures: 0,
            quiet_until_ns: 0,
        }
    }
}
