//! A volume: its store, and what is going on with it.

use tiermem_policy::extents::{Mode, Share, Volume};

use super::claims::Claims;
use super::config::VolumeConfig;
use super::counts::Counts;
use super::op::Failure;
use super::owed::Generation;
use crate::backing::Backing;
use crate::disks::Asker;
use crate::journal::Lsn;

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
    pub claims: Claims,
    pub counts: Counts,
    /// The oldest session in which the store was written to by clients' requests since its last flush began.
    pub direct_writes: Option<u64>,
    /// The same, as it was when the flush that runs began.
    pub direct_flushing: Option<u64>,
    pub flushes: Flushes,
    pub waiters: Vec<Waiter>,
    /// Why a write was lost whose client was told that it is done: the next flush must say so.
    pub lost: Option<Failure>,
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

    pub(super) fn new(number: Volume, config: &VolumeConfig, backing: Box<dyn Backing>) -> Self {
        VolumeState {
            number,
            backing,
            mode: config.mode,
            share: Share(config.share),
            quota_bytes: config.quota_bytes,
            claims: Claims::default(),
            counts: Counts::default(),
            direct_writes: None,
            direct_flushing: None,
            flushes: Flushes::default(),
            waiters: Vec::new(),
            lost: None,
            quiet_until_ns: 0,
        }
    }
}
