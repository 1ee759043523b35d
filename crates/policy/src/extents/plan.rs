//! Plan of one request: which bytes are read from the cache, which from the backing store, and where they go.

use std::ops::Range;

use super::geometry::UNIT_BYTES;
use super::{Mode, Volume};

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of which volume.
    pub volume: Volume,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How much, in bytes; not 0.
    pub bytes: u64,
    /// `None` for a read; the mode of a write.
    pub write: Option<Mode>,
    /// Missing bytes are not worth a place: they are read or written past the cache.
    pub bypass: bool,
}

impl Request {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// The units of the volume that it touches.
    pub fn units(&self) -> Range<u64> {
        self.offset / UNIT_BYTES..self.end().div_ceil(UNIT_BYTES)
    }
}

/// A range of a volume, and where in the cache it lies. Whole units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins in the volume, in bytes.
    pub offset: u64,
    /// Where it begins in the cache.
    pub at: u64,
    /// How much, in bytes.
    pub bytes: u64,
}

/// Whether a plan can be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It can; say [`super::Extents::finish`] afterwards.
    Ready,
    /// [`Plan::clean`] must be written back first and be [`super::Units::cleaned`]; then plan again with [`Plan::again`] set.
    /// Nothing is pinned meanwhile. A caller that will not wait calls [`Plan::settle_for_less`] and plans again at once.
    Clean,
    /// Write-back, and no place could be had: all candidates are in use by other plans in flight. Plan again with [`Plan::again`]
    /// set when one of them is finished. Where no other plan is in flight the request is larger than the cache, and the rest of
    /// it goes past the cache.
    Busy,
    /// A write that fails: it would wait for its volume's store, which has no room. Only a cleaner says so.
    Full,
}

/// The plan of a request: the ranges that it reads and writes, in whole units and in the order of addresses, neighbours merged.
///
/// A read is answered from `cached` and `fetch`. A write stores its bytes over its parts of `fetch` and `cached`: the units at
/// its ends that it covers in part only.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Set by the driver when it asks again for the same request.
    pub again: bool,
    /// Everything was there: for a read all bytes, for a write the blocks that they go into.
    pub hit: bool,
    /// Missing bytes got no place, as the request wished or by [`super::admission`].
    pub bypassed: bool,
    /// Read from the cache.
    pub cached: Vec<Part>,
    /// Read from the backing store.
    pub fetch: Vec<Range<u64>>,
    /// Written to the cache, from the fetched bytes and those of the request.
    pub fill: Vec<Part>,
    /// The bytes of the request (to the byte) that are written to the backing store at once.
    pub through: Vec<Range<u64>>,
    /// Parts that a write past the cache made invalid there.
    pub dropped: Vec<Part>,
    /// Of what a write reads from the cache, the parts that were dirty before it.
    pub unclean: Vec<Part>,
    /// Parts that the plan made valid and that were not valid before: the argument of [`super::Units::invalidate`] when the plan
    /// fails before anything was stored.
    pub fresh: Vec<Part>,
    /// Ranges that the plan made dirty or left so.
    pub dirtied: Vec<Range<u64>>,
    /// Parts that must be written back before the plan can be made.
    pub clean: Vec<Part>,
    /// The volume that `clean` belongs to, part by part.
    pub clean_volumes: Vec<Volume>,
    /// Blocks that were allocated for this request.
    pub allocated_blocks: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// A clean block is evicted, though a dirty one would come before it.
    pub(super) spares_dirty: bool,
    /// The blocks that the plan speaks of.
    pub(super) pins: Vec<u32>,
    /// Pieces that were missing when the request was first looked at: the blocks that it and its neighbourhood are to get,
    /// however often it is planned again.
    pub(super) missing: Vec<Range<u64>>,
}

impl Plan {
    /// Has the request planned again without waiting for dirty bytes: clean blocks are evicted in their place. Where that was
    /// tried and no block is clean, bytes without a place get none.
    pub fn settle_for_less(&mut self, request: &mut Request) {
        self.again = true;
        request.bypass = self.spares_dirty;
        self.spares_dirty = true;
    }

    /// Names nothing any more: it is used again for another request, or for something that has no plan.
    pub fn clear(&mut self) {
        self.cached.clear();
        self.fetch.clear();
        self.fill.clear();
        self.through.clear();
        self.dropped.clear();
        self.unclean.clear();
        self.fresh.clear();
        self.dirtied.clear();
        self.clean.clear();
        self.clean_volumes.clear();
    }
}
