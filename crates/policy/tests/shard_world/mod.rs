//! The items in memory and in a log, as a map knows them.
#![allow(dead_code)] // Not every test needs all of it.

use std::collections::BTreeMap;

use tiermem_policy::Id;
use tiermem_policy::ladder::Loc;
use tiermem_policy::log::{ITEM_HEADER_BYTES, LOG_PAGE_BYTES};
use tiermem_policy::shard::{Items, Lying, Sizes};

pub const PAGE: u64 = 64 << 10;
pub const SEGMENT_BYTES: u32 = 192 << 10;
/// Of an item's bytes in memory those of its header.
pub const HEADER_BYTES: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    pub key: u64,
    pub bytes: u64,
    pub version: u64,
    pub is_unchanged: bool,
    pub expires_at_ms: Option<u64>,
}

/// A segment as memory or the device has it.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    pub sequence: u32,
    pub items: BTreeMap<u32, Cell>,
    pub used: u32,
    pub submitted: u32,
    /// Everything before this is on the device.
    pub safe: u32,
    pub is_sealed: bool,
    /// Its bytes are not all on the device.
    pub is_filling: bool,
}

/// What lies where. Facts are read from it when they are asked for, so that an act that comes too early is told nonsense.
#[derive(Debug, Default)]
pub struct Bytes {
    pub here: BTreeMap<Loc, Cell>,
    pub below: Vec<Segment>,
    pub now_ms: u64,
}

pub fn hash_of(key: u64) -> u64 {
    (key + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

pub fn is_over(expires_at_ms: Option<u64>, now_ms: u64) -> bool {
    expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
}

impl Bytes {
    /// The last item of a hash in a page of the log: a reader finds that one.
    pub fn read(&self, page: u32, hash: u64) -> Option<(u32, Cell)> {
        let pages = SEGMENT_BYTES / LOG_PAGE_BYTES;
        let start = page % pages * LOG_PAGE_BYTES;
        let within = self.below[(page / pages) as usize].items.range(start..start + LOG_PAGE_BYTES);
        let same = within.rev().find(|(_, cell)| hash_of(cell.key) >> 24 == hash >> 24);
        same.map(|(&at, &cell)| (at, cell))
    }
}

impl Bytes {
    /// An item's bytes in the log.
    pub fn below_bytes(&self, cell: &Cell) -> u64 {
        cell.bytes - HEADER_BYTES + u64::from(ITEM_HEADER_BYTES)
    }
}

impl Items for Bytes {
    type Key<'a> = u64;

    fn has_key(&self, _: Id, loc: Loc, key: u64) -> bool {
        self.here[&loc].key == key
    }

    fn hash(&self, _: Id, loc: Loc) -> Option<u64> {
        Some(hash_of(self.here[&loc].key))
    }

    fn bytes(&self, _: Id, loc: Loc) -> Sizes {
        let cell = self.here[&loc];
        Sizes { here: cell.bytes, below: self.below_bytes(&cell) }
    }

    fn is_unchanged(&self, _: Id, loc: Loc) -> bool {
        self.here[&loc].is_unchanged
    }

    fn note_changed(&mut self, _: Id, loc: Loc) {
        self.here.get_mut(&loc).expect("an item has bytes").is_unchanged = false;
    }

    fn lying_at(&self, segment: u32, sequence: u32, at: u32) -> Option<Lying> {
        let lies = &self.below[segment as usize];
        let cell = *lies.items.get(&at).filter(|_| lies.sequence == sequence)?;
        let hash = hash_of(cell.key);
        let page = segment * (SEGMENT_BYTES / LOG_PAGE_BYTES) + at / LOG_PAGE_BYTES;
        let is_latest = self.read(page, hash).is_some_and(|(latest, _)| latest == at);
        let bytes = (cell.bytes - HEADER_BYTES) as u32 + ITEM_HEADER_BYTES;
        Some(Lying { at, hash, bytes, is_latest, is_over: is_over(cell.expires_at_ms, self.now_ms) })
    }

    fn bring_near(&self, _: Id, _: Loc) {}
}
