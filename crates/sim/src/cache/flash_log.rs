//! Flash log of a simulation: what it keeps of the log below memory instead of bytes, and a device that completes every request
//! at once.
//!
//! There is no restart, so nothing is written for one. But how full the journal is, when a checkpoint is made and which segments
//! it borrows is decided here as it is over a live tier, because it leaves less room for items. A live tier writes journal and
//! checkpoints in addition; `docs/store.md` says how much.

use std::collections::HashMap;

use tiermem_policy::log::{Appended, Filled, LogConfig, LogCounters, LogPlace, SEGMENT_HEADER_BYTES};
use tiermem_policy::shard::{CheckpointCounters, Duty, LogWork, Lying, Parts, Shard};

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

/// The record of an item.
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

/// An item that was appended to a segment, dead or alive.
#[derive(Clone, Copy, Debug)]
struct Written {
    offset: u32,
    bytes: u32,
    hash: u64,
}

/// The requests to the device.
#[derive(Debug, Default)]
struct Asked {
    /// Segments, and the bytes before which they were written.
    writes: Vec<(u32, u32)>,
    reading: Option<u32>,
    /// Parts of checkpoints.
    parts: usize,
}

/// The log below memory, to be read.
#[derive(Clone, Copy, Debug)]
pub struct Tail<'a> {
    pub(super) work: &'a LogWork,
    pub(super) flash: &'a FlashLog,
}

impl Tail<'_> {
    /// The counters of the log.
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

    /// Checkpoints since the start.
    pub fn checkpoints(&self) -> CheckpointCounters {
        self.work.checkpoints().counters()
    }
}

/// A checkpoint that is not written: it is never read.
struct Unwritten;

impl Parts for Unwritten {
    fn begin(&mut self, _: bool) {}
    fn add_segment(&mut self, _: Filled) {}
    fn add_item(&mut self, _: u64, _: LogPlace) {}
}

/// The items that lie in the log.
#[derive(Debug)]
pub(super) struct FlashLog {
    /// By the bits of the hash that the index knows; only looked up.
    held: HashMap<u64, Held>,
    written: Vec<Vec<Written>>,
    /// What the shard has asked for, and what of it was handed to the device.
    asked: Asked,
    handed_over: Asked,
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
            now_ms: 0,
            written_bytes: 0,
            reads: 0,
        }
    }

    /// There are so many more segments.
    pub fn grow(&mut self, segments: u32) {
        self.written.resize(self.written.len() + segments as usize, Vec::new());
    }

    /// An item is written to its place. The first one of a filling is noted in the journal.
    pub fn append(&mut self, shard: &mut Shard, to: &Appended, hash: u64, item: Kept) {
        let Kept { key, bytes, expires_at_ms } = item;
        let Appended { segment, offset, .. } = *to;
        let written = &mut self.written[segment as usize];
        if offset == SEGMENT_HEADER_BYTES {
            written.clear();
            shard.device().note_record();
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

    /// The log has nothing for this hash any more, which is noted in the journal; it was there.
    pub fn forget(&mut self, shard: &mut Shard, hash: u64, place: LogPlace) {
        self.held.remove(&(hash >> UNKNOWN_BITS));
        self.retire(shard, hash, place);
    }

    /// An item of the log is dead.
    pub fn retire(&mut self, shard: &mut Shard, hash: u64, place: LogPlace) {
        shard.device().withdraw(hash, place);
        shard.device().note_record();
    }

    /// The item at byte `at` of a segment. Nothing is damaged here, so where no item begins the rest of the page is empty.
    pub fn lying_at(&self, segment: u32, at: u32) -> Option<Lying> {
        let written = &self.written[segment as usize];
        let found = written.binary_search_by_key(&at, |item| item.offset).ok()?;
        let Written { bytes, hash, .. } = written[found];
        let held = self.held.get(&(hash >> UNKNOWN_BITS));
        let held = held.filter(|held| (held.segment, held.offset) == (segment, at));
        let is_over = held.and_then(|held| held.expires_at_ms).is_some_and(|at_ms| at_ms <= self.now_ms);
        Some(Lying { at, hash, bytes, is_latest: held.is_some(), is_over })
    }

    /// Bytes of a segment are to be written, up to this one.
    pub fn write(&mut self, segment: u32, start: u32, end: u32) {
        self.written_bytes += u64::from(end - start);
        self.asked.writes.push((segment, end));
    }

    /// A segment is to be read.
    pub fn read(&mut self, segment: u32) {
        self.asked.reading = Some(segment);
    }

    /// The device is handed everything that was decided.
    pub fn hand_over(&mut self) {
        self.handed_over.writes.append(&mut self.asked.writes);
        self.handed_over.reading = self.asked.reading.take().or(self.handed_over.reading);
        self.handed_over.parts += std::mem::take(&mut self.asked.parts);
    }

    /// Tells the shard what the device has done.
    pub fn tell(&mut self, shard: &mut Shard) {
        self.now_ms = shard.now().unix_ms;
        self.handed_over.writes.drain(..).for_each(|(segment, end)| shard.device().note_safe(segment, end));
        self.handed_over.reading.take().into_iter().for_each(|segment| shard.device().arrived(segment, true));
        (0..std::mem::take(&mut self.handed_over.parts)).for_each(|_| shard.device().part_written(true));
        shard.device().announce();
        self.carry_out(shard);
    }

    /// A piece of the checkpoint under way.
    pub fn step_checkpoint(&mut self, shard: &mut Shard) {
        shard.device().step_checkpoint(&mut Unwritten);
        self.carry_out(shard);
    }

    /// Does what is to be done for restarts: what is written is safe at once.
    fn carry_out(&mut self, shard: &mut Shard) {
        while let Some(duty) = shard.device().next_duty() {
            match duty {
                Duty::Announce { .. } => _ = shard.device().note_record(),
                Duty::Release { .. } => {}
                Duty::Settle(what) => shard.device().settled(what),
                Duty::WritePart { .. } => self.asked.parts += 1,
                Duty::Name { .. } => shard.device().named(true),
            }
        }
    }
}
