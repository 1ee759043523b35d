//! Operations: the pieces of clients' jobs, and the cleaner's copies.

use std::ops::Range;

use tiermem_policy::extents::cleaner::Token;
use tiermem_policy::extents::store_speed::Measured;
use tiermem_policy::extents::{Geometry, Plan, UNIT_BYTES, Volume};
use tiermem_tier::block::AlignedBuffer;

use super::claims::ClaimId;
use super::unflushed_writes::Generation;
use crate::disks::{BufferPool, Piece};
use crate::journal::checksum;
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

/// An error, as sent to the client and as a message.
pub(super) type Failure = (Errno, String);

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
    /// Passes a trim on to the store.
    TrimStore,
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

/// A part of an operation's plan that was to be stored.
#[derive(Debug)]
pub(super) struct Stored {
    /// Its number among the parts that the plan fills.
    pub fill: u32,
    pub buffer: AlignedBuffer,
    /// The cache's device has taken it.
    pub is_there: bool,
}

/// One operation: a range of a volume of at most [`OP_BYTES_MAX`].
#[derive(Debug)]
pub(super) struct Op {
    /// The job that it belongs to; the cleaner's has none.
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
    /// The cleaner's name for it, of a copy and of a trim of the store.
    pub act: Option<Token>,
    pub plan: Plan,
    /// How often unstored units had been forgotten when it was planned.
    pub unstored_forgotten: u64,
    /// Requests to devices that are under way.
    pub ios: u32,
    pub held: Vec<Held>,
    /// When what it needs was asked for.
    pub asked_ns: u64,
    /// When the store gave the last of that.
    pub fetched_ns: Option<u64>,
    /// What is to be stored of a write whose client was answered before that could begin, in the order of the plan's parts.
    pub brought: Vec<AlignedBuffer>,
    /// What was stored so far, or could not be.
    pub stored: Vec<Stored>,
    /// Which parts that the plan fills are not in the cache.
    pub unstored: Vec<u32>,
    /// Ranges with lost dirty bytes.
    pub lost: Vec<Range<u64>>,
    /// Ranges that the store has and the cache's device does not give: a copy does without them.
    pub omitted: Vec<Range<u64>>,
    /// Blocks that it writes over, by their slots.
    pub opened: Vec<u32>,
    /// A flush that comes must wait until it is over.
    pub owed: Option<Generation>,
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
            act: None,
            plan: Plan::default(),
            unstored_forgotten: 0,
            ios: 0,
            held: Vec::new(),
            asked_ns: 0,
            fetched_ns: None,
            brought: Vec::new(),
            stored: Vec::new(),
            unstored: Vec::new(),
            lost: Vec::new(),
            omitted: Vec::new(),
            opened: Vec::new(),
            owed: None,
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

    /// Resets it for its next use: a trim in its place makes no plan, and must not undo this one.
    pub(super) fn clear(&mut self) {
        debug_assert!(
            self.claims.is_empty()
                && self.opened.is_empty()
                && self.owed.is_none()
                && self.brought.is_empty(),
            "it has let go of all"
        );
        self.held.clear();
        self.stored.clear();
        self.unstored.clear();
        self.lost.clear();
        self.omitted.clear();
        self.sums.clear();
        self.plan.clear();
        self.plan.again = false;
        (self.job, self.act, self.failure) = (None, None, None);
        self.fetched_ns = None;
        self.ios = 0;
    }

    /// Takes a buffer for bytes of a volume to be read; returns its index among the operation's buffers.
    pub(super) fn hold(
        &mut self,
        range: Range<u64>,
        source: Source,
        buffer: AlignedBuffer,
        patches: Option<u32>,
    ) -> u32 {
        self.held.push(Held { range, source, buffer, is_good: false, patches });
        self.held.len() as u32 - 1
    }

    /// These bytes are here. What replaces others goes to their place.
    pub(super) fn gathered(&mut self, held: u32, pool: &mut BufferPool) {
        self.held[held as usize].is_good = true;
        let Some(root) = self.held[held as usize].patches else { return };
        let Held { range, buffer, .. } = &mut self.held[held as usize];
        let (range, bytes) = (std::mem::replace(range, 0..0), std::mem::take(buffer));
        let root = &mut self.held[root as usize];
        let (from, len) = ((range.start - root.range.start) as usize, (range.end - range.start) as usize);
        root.buffer[from..from + len].copy_from_slice(&bytes[..len]);
        pool.give_back(bytes);
    }

    /// How the store gave what the plan was to fetch, if it did that and nothing besides; once.
    pub(super) fn take_fetch(&mut self) -> Option<Measured> {
        let fetched_ns = self.fetched_ns.take()?;
        let is_plain = self.failure.is_none() && self.held.iter().all(|held| held.patches.is_none());
        let bytes: u64 = self.plan.fetch.iter().map(|range| range.end - range.start).sum();
        let took_ns = fetched_ns.saturating_sub(self.asked_ns);
        (is_plain && bytes > 0).then_some(Measured::Read { bytes, took_ns })
    }

    /// Copies what it holds of a range of the volume to where that lies in `into`, which begins where the range does.
    pub(super) fn copy_held(&self, range: &Range<u64>, into: &mut [u8]) {
        for part in &self.held {
            let shared = common(&part.range, range);
            if !shared.is_empty() {
                let from = (shared.start - part.range.start) as usize;
                let to = (shared.start - range.start) as usize;
                let len = (shared.end - shared.start) as usize;
                into[to..to + len].copy_from_slice(&part.buffer[from..from + len]);
            }
        }
    }

    /// What it holds of its own bytes, for the client, in the order of addresses.
    pub(super) fn take_pieces(&mut self) -> Vec<Piece> {
        self.held.sort_unstable_by_key(|held| held.range.start);
        let own = self.range();
        let mut pieces = Vec::new();
        for held in &mut self.held {
            let part = common(&held.range, &own);
            if !part.is_empty() {
                let buffer = std::mem::take(&mut held.buffer);
                let (from, bytes) = (part.start - held.range.start, part.end - part.start);
                pieces.push(Piece { buffer, from: from as usize, bytes: bytes as usize });
            }
        }
        pieces
    }

    /// The runs of units that a copy holds: what is lost or omitted need not go.
    pub(super) fn copied_runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for part in &self.held {
            let mut start = part.range.start;
            let mut lost: Vec<_> = self.lost.iter().chain(&self.omitted).cloned().collect();
            lost.retain(|lost| part.range.contains(&lost.start));
            lost.sort_unstable_by_key(|lost| lost.start);
            for lost in lost.into_iter().chain(std::iter::once(part.range.end..part.range.end)) {
                if start < lost.start {
                    runs.push(units_of(&(start..lost.start)));
                }
                start = lost.end;
            }
        }
        runs
    }

    /// Notes the checksums of a part of its plan that is about to be stored.
    pub(super) fn note_sums(&mut self, volume: Volume, fill: usize, bytes: &[u8]) {
        let offset = self.plan.fill[fill].offset;
        let units = bytes.chunks_exact(UNIT_BYTES as usize).enumerate();
        let sum = |(at, unit): (usize, &[u8])| checksum(volume.0, offset + at as u64 * UNIT_BYTES, unit);
        self.sums.extend(units.map(sum));
    }

    /// Whether it is about whole units.
    pub(super) fn is_aligned(&self) -> bool {
        self.aligned() == self.range()
    }
}

/// The units of the cache that hold a range of a volume, from byte `at` of the cache on.
pub(super) fn units_from(at: u64, range: &Range<u64>) -> Range<u64> {
    at / UNIT_BYTES..(at + range.end - range.start) / UNIT_BYTES
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_replaces_a_part_of_what_is_held_goes_to_its_place() {
        let mut pool = BufferPool::default();
        let mut op = Op::default();
        let buffer = |units: usize, byte: u8| {
            let mut buffer = AlignedBuffer::zeroed(units * 4096);
            buffer.fill(byte);
            buffer
        };
        let whole = op.hold(8192..8192 + 3 * 4096, Source::Cache(0), buffer(3, 1), None);
        let patch = op.hold(12288..16384, Source::Backing, buffer(1, 2), Some(whole));
        op.gathered(whole, &mut pool);
        assert!(op.held[whole as usize].is_good && !op.held[patch as usize].is_good);
        op.gathered(patch, &mut pool);
        let mut bytes = vec![0; 2 * 4096];
        op.copy_held(&(12288..12288 + 2 * 4096), &mut bytes);
        assert!(bytes[..4096].iter().all(|byte| *byte == 2) && bytes[4096..].iter().all(|byte| *byte == 1));
        assert_eq!(pool.kept_bytes(), 4096, "the patch's buffer is given back");
    }
}
