//! What is under way: clients' jobs, and the operations that they are cut into.

use std::ops::Range;

use tiermem_policy::extents::cleaner::Token;
use tiermem_policy::extents::{Geometry, Plan, UNIT_BYTES};
use tiermem_tier::block::AlignedBuffer;

use super::claims::ClaimId;
use super::owed::Generation;
use crate::disks::{Asker, Piece};
use crate::journal::Wait;
use crate::nbd::Errno;

/// No operation is about more bytes; a longer job is several, which NBD allows.
const OP_BYTES_MAX: u64 = 1 << 20;
/// Nor about more than this part of the cache: an operation holds on to all groups that it has blocks in, and must find room beside them.
const OP_SHARE: u64 = 16;

/// The bytes of an operation at most, a power of two.
pub(super) fn op_bytes_max(geometry: &Geometry) -> u64 {
    let share = (geometry.capacity_bytes() / OP_SHARE).max(geometry.piece_bytes());
    OP_BYTES_MAX.min(1 << share.ilog2())
}

/// An error, as the client and people are told.
pub(super) type Failure = (Errno, String);

/// A client's job until its outcome is told.
#[derive(Debug)]
pub(super) struct Job {
    pub asker: Asker,
    pub volume: usize,
    pub kind: Kind,
    pub bytes: u64,
    /// Something of it was not in the cache.
    pub missed: bool,
    /// Its effect must be durable before the outcome.
    pub durable: bool,
    /// What a write brings; it begins with the unit in which `offset` lies.
    pub buffer: AlignedBuffer,
    pub offset: u64,
    /// Operations that have not replied.
    pub left: u32,
    /// What operations have read, by their places.
    pub pieces: Vec<Vec<Piece>>,
    pub failure: Option<Failure>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Zero,
    Trim,
    Prefetch,
    /// Copies what is dirty, to be written back.
    Copy,
}

impl Kind {
    /// Whether it changes what a client would read.
    pub(super) fn is_write(self) -> bool {
        matches!(self, Kind::Write | Kind::Zero)
    }
}

/// Where an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for claims.
    Claiming,
    /// It waits, holding nothing, for others to leave room.
    Parked,
    /// It waits for the log to say that its blocks are about to be written in place.
    Opening,
    /// It reads.
    Gathering,
    /// It writes.
    Storing,
}

/// From where bytes come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The cache, from this byte of its space on.
    Cache(u64),
    Backing,
}

/// Bytes that an operation has read or is reading; whole units.
#[derive(Debug)]
pub(super) struct Held {
    /// Where in the volume.
    pub range: Range<u64>,
    pub source: Source,
    pub buffer: AlignedBuffer,
    pub is_good: bool,
    /// It replaces these bytes of another, which the cache's device did not give.
    pub patches: Option<u32>,
}

/// One operation: a range of a volume of at most [`OP_BYTES_MAX`].
#[derive(Debug)]
pub(super) struct Op {
    /// Whose it is; the cleaner's has none.
    pub job: Option<u32>,
    /// Its place among the job's.
    pub index: u32,
    pub volume: usize,
    pub kind: Kind,
    pub offset: u64,
    pub bytes: u64,
    pub stage: Stage,
    /// The first is on its own range.
    pub claims: Vec<ClaimId>,
    /// What is read past the cache.
    pub bypass: bool,
    /// The cleaner's name for it.
    pub copy: Option<Token>,
    pub plan: Plan,
    /// Requests to devices that are under way.
    pub ios: u32,
    pub held: Vec<Held>,
    /// Ranges whose dirty bytes are lost.
    pub lost: Vec<Range<u64>>,
    /// Blocks that it writes over, by their slots.
    pub opened: Vec<u32>,
    /// A flush that comes must wait until it is over.
    pub owed: Option<Generation>,
    /// Its client was told that it is done.
    pub is_early: bool,
    /// What the log must have before it stores.
    pub wait: Wait,
    /// The checksums of what it stores, unit by unit.
    pub sums: Vec<u32>,
    pub failure: Option<Failure>,
}

impl Default for Op {
    fn default() -> Self {
        Op {
            job: None,
            index: 0,
            volume: 0,
            kind: Kind::Read,
            offset: 0,
            bytes: 0,
            stage: Stage::Claiming,
            claims: Vec::new(),
            bypass: false,
            copy: None,
            plan: Plan::default(),
            ios: 0,
            held: Vec::new(),
            lost: Vec::new(),
            opened: Vec::new(),
            owed: None,
            is_early: false,
            wait: Wait::default(),
            sums: Vec::new(),
            failure: None,
        }
    }
}

impl Op {
    /// Its bytes.
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }

    /// The units that it touches.
    pub(super) fn units(&self) -> Range<u64> {
        units_of(&self.range())
    }

    /// The units that it touches, in bytes.
    pub(super) fn aligned(&self) -> Range<u64> {
        let units = self.units();
        units.start * UNIT_BYTES..units.end * UNIT_BYTES
    }

    /// Whether it is about whole units.
    pub(super) fn is_aligned(&self) -> bool {
        self.aligned() == self.range()
    }
}

/// The units that a range of bytes touches.
pub(super) fn units_of(range: &Range<u64>) -> Range<u64> {
    range.start / UNIT_BYTES..range.end.div_ceil(UNIT_BYTES)
}

/// What two ranges share; empty where they share nothing.
pub(super) fn common(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}
