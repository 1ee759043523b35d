//! What a simulation keeps of the log below memory in place of its bytes, and a device that has done everything by the time that
//! it is asked.
//!
//! Left out is what only a restart needs: the journal, and checkpoints, which borrow segments of the log for a while. A live tier
//! writes those in addition; `docs/store.md` says how much.

use std::collections::HashMap;

use tiermem_policy::log::{Appended, LogConfig, LogCounters, SEGMENT_HEADER_BYTES};
use tiermem_policy::shard::{LogWork, Lying, Shard};

/// Bits of a hash that the index does not know.
const UNKNOWN_BITS: u32 = 24;

/// The item that the log has for some 40 bits of a hash.
#[derive(Clone, Copy, Debug)]
struct Held {
    key: u64,
    bytes: u32,
    segment: u32,
    offset: u32,
    expires_at_ms: Option<u64>,
}

/// What is stored with an item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Its key.
    pub key: u64,
    /// Bytes of header, key and value, as they lie in the log.
    pub bytes: u32,
    /// When it expires, in Unix milliseconds.
    pub expires_at_ms: Option<u64>,
}

impl Kept {
    /// Whether its time is over.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }
}

/// What was appended to a segment, dead or alive.
#[derive(Clone, Copy, Debug)]
struct Written {
    offset: u32,
    bytes: u32,
    hash: u64,
}

/// What the device was asked to do.
#[derive(Debug, Default)]
struct Asked {
    sealed: Vec<u32>,
    reading: Option<u32>,
}

/// The log below memory, to be read.
#[derive(Clone, Copy, Debug)]
pub struct Tail<'a> {
    pub(super) work: &'a LogWork,
    pub(super) flash: &'a FlashLog,
}

impl Tail<'_> {
    /// What the log has seen.
    pub fn counters(&self) -> LogCounters {
        self.work.log().counters()
    }

    /// Live items.
    pub fn items(&self) -> u64 {
        self.work.log().items()
    }

    /// Bytes of all segments.
    pub fn capacity_bytes(&self) -> u64 {
        let config = self.work.log().config();
        u64::from(config.segments) * u64::from(config.segment_bytes)
    }

    /// Items that did not come for lack of memory for their index entries.
    pub fn unindexed(&self) -> u64 {
        self.work.unindexed()
    }

    /// Bytes of segments written.
    pub fn written_bytes(&self) -> u64 {
        self.flash.written_bytes
    }

    /// Look-ups that had to read the device.
    pub fn reads(&self) -> u64 {
        self.flash.reads
    }
}

/// Whose items lie in the log.
#[derive(Debug)]
pub(super) struct FlashLog {
    /// By the bits of the hash that the index knows; only looked up.
    held: HashMap<u64, Held>,
    written: Vec<Vec<Written>>,
    /// What the shard has asked for, and what of it was handed to the device.
    asked: Asked,
    handed_over: Asked,
    freeing: Vec<u32>,
    /// Unix time, as it was told last.
    now_ms: u64,
    /// Bytes of segments written.
    pub written_bytes: u64,
    /// Look-ups that had to read the device.
    pub reads: u64,
}

impl FlashLog {
    pub fn new(config: &LogConfig) -> Self {
        FlashLog {
            held: HashMap::new(),
            written: vec![Vec::new(); config.segments as usize],
            asked: Asked::default(),
            handed_over: Asked::default(),
            freeing: Vec::new(),
            now_ms: 0,
            written_bytes: 0,
            reads: 0,
        }
    }

    /// An item is written to its place.
    pub fn append(&mut self, to: &Appended, hash: u64, item: Kept) {
        let Kept { key, bytes, expires_at_ms } = item;
        let Appended { segment, offset, .. } = *to;
        let written = &mut self.written[segment as usize];
        if offset == SEGMENT_HEADER_BYTES {
            written.clear();
        }
        let end = written.last().map_or(SEGMENT_HEADER_BYTES, |last| last.offset + last.bytes);
        assert!(offset >= end, "items are appended one behind the other");
        written.push(Written { offset, bytes, hash });
        self.held.insert(hash >> UNKNOWN_BITS, Held { key, bytes, segment, offset, expires_at_ms });
    }

    /// The item that the index names for this hash.
    pub fn item(&self, hash: u64) -> Option<Kept> {
        let &Held { key, bytes, expires_at_ms, .. } = self.held.get(&(hash >> UNKNOWN_BITS))?;
        Some(Kept { key, bytes, expires_at_ms })
    }

    /// The log has nothing for this hash any more.
    pub fn forget(&mut self, hash: u64) {
        self.held.remove(&(hash >> UNKNOWN_BITS));
    }

    /// What stands at byte `at` of a segment. Nothing is damaged here, so where no item begins the rest of the page is empty.
    pub fn lying_at(&self, segment: u32, at: u32) -> Option<Lying> {
        let written = &self.written[segment as usize];
        let found = written.binary_search_by_key(&at, |item| item.offset).ok()?;
        let Written { bytes, hash, .. } = written[found];
        let held = self.held.get(&(hash >> UNKNOWN_BITS));
        let held = held.filter(|held| (held.segment, held.offset) == (segment, at));
        let is_over = held.and_then(|held| held.expires_at_ms).is_some_and(|at_ms| at_ms <= self.now_ms);
        Some(Lying { at, hash, bytes, is_latest: held.is_some(), is_over })
    }

    pub fn seal(&mut self, segment: u32) {
        self.asked.sealed.push(segment);
    }

    pub fn read(&mut self, segment: u32) {
        self.asked.reading = Some(segment);
    }

    pub fn free(&mut self, segment: u32) {
        self.freeing.push(segment);
    }

    /// The device is handed everything that was decided.
    pub fn hand_over(&mut self) {
        self.handed_over.sealed.append(&mut self.asked.sealed);
        self.handed_over.reading = self.asked.reading.take().or(self.handed_over.reading);
    }

    /// Tells the shard what the device has done.
    pub fn tell(&mut self, shard: &mut Shard) {
        self.now_ms = shard.now().unix_ms;
        self.handed_over.sealed.drain(..).for_each(|segment| shard.device().written(segment));
        self.handed_over.reading.take().into_iter().for_each(|segment| shard.device().arrived(segment, true));
        self.freeing.drain(..).for_each(|segment| shard.device().freed(segment));
    }
}
