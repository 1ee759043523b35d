//! The log: the last tier of a ladder, where items lie one behind the other in segments of a flash device.
//!
//! Flash wants large writes in order and cannot overwrite in place. So new items are appended to an open segment, an overwritten
//! item leaves a hole, and space comes back a whole segment at a time: the victim's live items are appended again or dropped, and
//! then the segment is free. This file decides all of that and owns no bytes: the driver holds buffers, index entries and the
//! device. An item here has no node; its index entry is its [`LogPlace`].
//!
//! What it promises:
//!
//! - *Nothing is evicted while there is room.* As long as live bytes stay below [`Log::room_bytes`], every live item of a victim
//!   is appended again, and the victim is a segment with few live bytes. Only beyond that are items evicted: segments in the
//!   order in which they were filled, and of their items those that were not hit since (CLOCK, with the two bits of heat in the
//!   place). memcached's extstore drops items while its file has room; its users ask for a store that does not.
//! - *It spares the device.* With room, everything that leaves memory comes in. Without, an item that was never seen before is
//!   turned away, and comes in when it leaves memory a second time ([`Admission::Seen`]): a one-hit wonder costs no write. An
//!   item that was read from here and leaves memory unchanged is still here and costs none either.
//! - *Two streams.* Items that survive a victim are appended to segments of their own, apart from fresh ones: an item that has
//!   lived long is likely to live on, and a segment whose items die together is cheap to empty.
//!
//! Promotion is the ladder's own rule: a hit here whose reuse time is below a tier's windowed mean belongs into that tier. The
//! time of the hit before is remembered in a small table ([`recent`]), because there is no node to keep it.

mod growth;
mod place;
mod recent;
mod region;
mod segments;
mod walk;
mod writing;

pub use growth::{CannotGrow, GROWTHS_MAX, Growths};
pub use place::{HEAT_MAX, LogPlace, PAGES_MAX};
pub use recent::Recent;
pub use region::{ITEM_ROW_BYTES, PART_HEADER_BYTES, RECORD_BYTES, Region, SEGMENT_ROW_BYTES};
pub use segments::{Appended, Filled, Stream};
pub use walk::Walk;
pub use writing::next_chunk;

use crate::ladder::Outlet;
use segments::Segments;
use tiermem_base::Rng;

/// The unit of reading.
pub const LOG_PAGE_BYTES: u32 = 4096;
/// Bytes that stand before an item's key and value here.
pub const ITEM_HEADER_BYTES: u32 = 32;
/// Bytes at a segment's start that hold no items.
pub const SEGMENT_HEADER_BYTES: u32 = 64;
/// Items begin at multiples of this.
pub const ITEM_ALIGN_BYTES: u32 = 8;
/// Free segments that only surviving items may open, so that emptying a segment can always go on.
const FREE_FOR_KEPT: u32 = 2;
/// At this number of free segments writers are asked to wait; work decided before they do still has one more segment.
const FREE_CHOKED: u32 = FREE_FOR_KEPT + 1;
/// Segments whose bytes may wait in memory for the device; with more of them writers are asked to wait.
const UNWRITTEN_MAX: usize = 8;
/// Below this number of free segments one is emptied.
const FREE_WANTED: u32 = 6;
/// Segments looked at for one with little alive.
const VICTIM_DRAWS: u32 = 32;
/// Bytes of the log that an item takes in addition to its own: its entry in two checkpoints, the last one and the one under way.
const CHECKPOINT_BYTES: u64 = 2 * ITEM_ROW_BYTES as u64;
/// The largest share of a full log's victim that survives, however warm its items are: otherwise emptying warm segments would
/// free nothing.
const KEPT_SHARE_MAX: f64 = 0.5;

/// Which items come in when the log is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Every item that leaves memory.
    All,
    /// Items that left memory before, lately.
    #[default]
    Seen,
}

impl std::str::FromStr for Admission {
    type Err = String;
    /// Reads the word that configuration and command line use.
    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "all" => Ok(Admission::All),
            "seen" => Ok(Admission::Seen),
            _ => Err(format!("{word:?} is none of all, seen")),
        }
    }
}

/// How a log is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// Segments.
    pub segments: u32,
    /// Bytes of one, a multiple of [`LOG_PAGE_BYTES`].
    pub segment_bytes: u32,
    /// Which items come in when there is no room.
    pub admission: Admission,
    /// Share of the segments that live items never fill: the more, the less is copied to make holes usable.
    pub reserve: f64,
    /// Records that one of the two halves of the journal holds: when one is full a checkpoint is due.
    pub journal_records: u64,
}

/// [`LogConfig::reserve`] where nothing else is said.
pub const RESERVE: f64 = 0.1;

impl LogConfig {
    /// The log in a region of `region_bytes`, with the defaults. `None` where the region is too small for it.
    pub fn in_region(region_bytes: u64, segment_bytes: u32) -> Option<Self> {
        let region = Region::divide(region_bytes, segment_bytes)?;
        Some(LogConfig {
            segments: region.segments,
            segment_bytes,
            admission: Admission::default(),
            reserve: RESERVE,
            journal_records: region.journal_records(),
        })
    }

    /// Pages of all segments.
    fn pages(&self) -> u64 {
        u64::from(self.segments) * u64::from(self.segment_bytes / LOG_PAGE_BYTES)
    }

    /// Live bytes that always find room.
    pub fn room_bytes(&self) -> u64 {
        // The reserve in segments, but at least the segments that are open, being emptied or kept free.
        let reserve = ((f64::from(self.segments) * self.reserve) as u32).max(FREE_WANTED + 3);
        u64::from(self.segments.saturating_sub(reserve)) * u64::from(self.segment_bytes)
    }
}

/// An item that leaves memory.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// The hash of its key.
    pub hash: u64,
    /// Its bytes in the log.
    pub bytes: u32,
    /// When it was last used, in requests.
    pub last_used: u64,
}

/// The fate of an item that leaves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It lies here still, unchanged.
    Stays,
    /// It comes in: the driver appends it.
    Enters,
    /// It is turned away, to spare the device.
    Rejected,
    /// It would come in, but there is no space for it now.
    Refused,
}

/// Counters of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Look-ups that found their item here.
    pub hits: u64,
    /// Items appended, and their bytes.
    pub admitted: u64,
    /// Bytes of those.
    pub admitted_bytes: u64,
    /// Items turned away to spare the device.
    pub rejected: u64,
    /// Items turned away because segments were not emptied or written in time.
    pub refused: u64,
    /// Items that left memory and were here still, unchanged.
    pub unchanged: u64,
    /// Items appended again because their segment was emptied.
    pub kept: u64,
    /// Bytes of those.
    pub kept_bytes: u64,
    /// Live items dropped for lack of room.
    pub evictions: u64,
    /// Items moved up into memory.
    pub promotions: u64,
    /// Segments emptied.
    pub segments_emptied: u64,
}

/// A cell for each page: about one for every few items, a thousandth of the device's bytes.
fn recent_cells(pages: u64) -> usize {
    (pages as usize).clamp(1 << 12, 1 << 22)
}

/// Free segments that a stream must leave.
fn spared(stream: Stream) -> u32 {
    if stream == Stream::Fresh { FREE_FOR_KEPT } else { 0 }
}

/// The log of one shard.
#[derive(Clone, Debug)]
pub struct Log {
    config: LogConfig,
    segments: Segments,
    recent: Recent,
    counters: LogCounters,
    /// Bytes kept since fresh items last opened a segment.
    kept_since_fresh: u64,
}

impl Log {
    /// An empty log.
    ///
    /// # Panics
    /// When the configuration has less than eight segments or more pages than [`PAGES_MAX`]; callers check.
    pub fn new(config: LogConfig) -> Self {
        let pages = config.pages();
        assert!(config.segments >= 8 && pages <= u64::from(PAGES_MAX), "8 segments to {PAGES_MAX} pages");
        let segments = Segments::new(config.segments, config.segment_bytes);
        let recent = Recent::new(recent_cells(pages));
        Log { config, segments, recent, counters: LogCounters::default(), kept_since_fresh: 0 }
    }

    /// Takes so many more segments behind the others; they are free.
    ///
    /// # Panics
    /// When that makes more pages than [`PAGES_MAX`]; [`Growths::segments_to`] says how many there may be.
    pub fn grow(&mut self, segments: u32) {
        self.config.segments += segments;
        let pages = self.config.pages();
        assert!(pages <= u64::from(PAGES_MAX), "{PAGES_MAX} pages at most");
        self.segments.grow(segments);
        self.recent.grow(recent_cells(pages));
    }

    /// The configuration it was made with, and the segments that it has now.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Live bytes that find room now: checkpoints take the more of it, the more items there are.
    pub fn room_bytes(&self) -> u64 {
        self.config.room_bytes().saturating_sub(self.segments.live_items() * CHECKPOINT_BYTES)
    }

    /// Whether live items leave room for `bytes` more.
    fn has_room(&self, bytes: u32) -> bool {
        self.segments.live_bytes() + u64::from(bytes) <= self.room_bytes()
    }

    /// Whether so many bytes were copied for a single segment of fresh items that more copying would wear the device for nothing:
    /// items of unlike sizes can leave ends that no account foresees. Then some are dropped, as if there were no room.
    fn is_futile(&self) -> bool {
        let segments_max = (2.0 / self.config.reserve.max(0.01)).max(16.0);
        self.kept_since_fresh as f64 > segments_max * f64::from(self.config.segment_bytes)
    }

    /// Decides about an item that leaves memory. `is_here`: it was read from here and was not changed since. `unwritten`: as
    /// for [`Self::is_choked`].
    pub fn receive(&mut self, leaving: &Leaving, is_here: bool, unwritten: usize) -> Fate {
        if is_here {
            self.left_unchanged(leaving.hash, leaving.last_used);
            Fate::Stays
        } else if !self.admits(leaving) {
            Fate::Rejected
        } else if unwritten > UNWRITTEN_MAX + 1 || !self.can_append(Stream::Fresh, leaving.bytes) {
            // However much the request under way would like it.
            self.counters.refused += 1;
            Fate::Refused
        } else {
            Fate::Enters
        }
    }

    /// Whether [`Self::append`] would find space.
    fn can_append(&self, stream: Stream, bytes: u32) -> bool {
        self.segments.can_append(stream, bytes, spared(stream))
    }

    /// Whether an item that leaves memory is to be appended. Notes that it was seen.
    pub fn admits(&mut self, leaving: &Leaving) -> bool {
        let fits = leaving.bytes <= self.config.segment_bytes - SEGMENT_HEADER_BYTES;
        let seen = self.recent.note(leaving.hash, leaving.last_used).is_some();
        let admitted =
            fits && (self.config.admission == Admission::All || seen || self.has_room(leaving.bytes));
        self.counters.rejected += u64::from(!admitted);
        admitted
    }

    /// Notes that an item left memory that is here still, unchanged.
    pub fn left_unchanged(&mut self, hash: u64, last_used: u64) {
        self.recent.note(hash, last_used);
        self.counters.unchanged += 1;
    }

    /// Space for `bytes`. `None` while too few segments are free: the driver has not caught up with emptying.
    pub fn append(&mut self, stream: Stream, bytes: u32) -> Option<Appended> {
        let appended = self.segments.append(stream, bytes, spared(stream))?;
        let counters = &mut self.counters;
        let (items, sum) = match stream {
            Stream::Fresh => (&mut counters.admitted, &mut counters.admitted_bytes),
            Stream::Kept => (&mut counters.kept, &mut counters.kept_bytes),
        };
        *items += 1;
        *sum += u64::from(bytes);
        match stream {
            Stream::Fresh if appended.offset == SEGMENT_HEADER_BYTES => self.kept_since_fresh = 0,
            Stream::Fresh => {}
            Stream::Kept => self.kept_since_fresh += u64::from(bytes),
        }
        Some(appended)
    }

    /// Whether fresh items should wait until segments have been emptied, or until the `unwritten` segments, whose bytes still
    /// wait for the device, are written.
    pub fn is_choked(&self, unwritten: usize) -> bool {
        unwritten > UNWRITTEN_MAX || self.segments.free() <= FREE_CHOKED
    }

    /// The state that the ladder above must know. `above_bytes`: the bytes that all of its items would take here.
    pub fn outlet(&self, unwritten: usize, above_bytes: u64) -> Outlet {
        let room_bytes = self.room_bytes().saturating_sub(self.live_bytes() + above_bytes);
        if !self.is_choked(unwritten) {
            return Outlet::Open { room_bytes };
        }
        // Half of the free space: ends of segments are lost to items that do not fit them.
        let segments = (UNWRITTEN_MAX + 2).saturating_sub(unwritten) as u64;
        let free = u64::from(self.segments.free().saturating_sub(FREE_FOR_KEPT)).min(segments).min(1);
        Outlet::Choked { room_bytes, spare_bytes: free * u64::from(self.config.segment_bytes) / 2 }
    }

    /// Notes that the item at `place` is dead: overwritten, deleted, expired, moved or found to be no longer there.
    pub fn forget(&mut self, place: LogPlace) {
        self.segments.forget(place);
    }

    /// Notes a look-up that found its item here at request `now`. Returns the place with its new heat, and how long
    /// ago the key was seen before, if that is known.
    pub fn hit(&mut self, hash: u64, place: LogPlace, now: u64) -> (LogPlace, Option<u64>) {
        self.counters.hits += 1;
        (place.with_heat(place.heat() + 1), self.recent.note(hash, now))
    }

    /// Notes that an item was copied into memory.
    pub fn promoted(&mut self) {
        self.counters.promotions += 1;
    }

    /// The segment to be emptied next, if one is wanted. It is the caller's until [`Self::emptied`].
    pub fn victim(&mut self, rng: &mut Rng) -> Option<u32> {
        if self.segments.free() + self.segments.emptying() >= FREE_WANTED {
            return None;
        }
        // A segment's worth of live items may come before the next one is free.
        if self.has_room(self.config.segment_bytes) && !self.is_futile() {
            self.segments.take_emptiest(VICTIM_DRAWS, rng)
        } else {
            self.segments.take_oldest()
        }
    }

    /// Whether a live item of a victim of which `kept_bytes` were kept before is appended again; if so its heat there.
    /// Else it is evicted. `stuck`: if it finds no space now it never does.
    pub fn keeps(&mut self, place: LogPlace, bytes: u32, kept_bytes: u32, stuck: bool) -> Option<u32> {
        let share_max = f64::from(self.config.segment_bytes) * KEPT_SHARE_MAX;
        let roomy = self.has_room(0) && !self.is_futile();
        let wanted = roomy || place.heat() > 0 && f64::from(kept_bytes + bytes) <= share_max;
        let kept = wanted && (!stuck || self.can_append(Stream::Kept, bytes));
        self.counters.evictions += u64::from(!kept);
        kept.then(|| place.heat().saturating_sub(1))
    }

    /// Frees an emptied segment. Its items that were kept must be safe in their new places.
    pub fn emptied(&mut self, segment: u32) {
        self.segments.release(segment);
        self.counters.segments_emptied += 1;
    }

    /// Takes a free segment for the driver's own use, such as a checkpoint; it holds no items.
    pub fn take_segment(&mut self) -> Option<u32> {
        let taken = self.segments.take_free(1)?;
        // Copying won this one, if not one for fresh items.
        self.kept_since_fresh = 0;
        Some(taken)
    }

    /// Gives a segment of [`Self::take_segment`] back.
    pub fn give_segment(&mut self, segment: u32) {
        self.segments.release(segment);
    }

    /// Items of a segment that are still counted as alive.
    pub fn live_in(&self, segment: u32) -> u32 {
        self.segments.live_in(segment)
    }

    /// Skips to the next page in a stream's open segment, so that the driver can write the bytes before it for good.
    pub fn pad(&mut self, stream: Stream) {
        self.segments.pad(stream);
    }

    /// Closes the open segment of a stream, so that the next item begins another.
    pub fn seal(&mut self, stream: Stream) {
        self.segments.seal(stream);
    }

    /// The number of the next filling.
    pub fn next_sequence(&self) -> u32 {
        self.segments.next_sequence()
    }

    /// The number that the segment had when it was last opened; of each item it says which filling it belongs to.
    pub fn sequence(&self, segment: u32) -> u32 {
        self.segments.sequence(segment)
    }

    /// Segments that hold items, those being emptied too. Looks at every segment.
    pub fn in_use(&self) -> Vec<Filled> {
        self.segments.in_use()
    }

    /// Bytes used in a segment, from its start.
    pub fn used_in(&self, segment: u32) -> u32 {
        self.segments.used_in(segment)
    }

    /// After a restart: what [`Self::in_use`] said of a segment; the oldest filling first, and before any of its items.
    pub fn restore_segment(&mut self, filled: Filled) -> bool {
        self.segments.restore(filled)
    }

    /// After a restart: takes a segment that the driver itself uses.
    pub fn restore_taken(&mut self, segment: u32) -> bool {
        self.segments.take_this(segment)
    }

    /// After a restart: an item lies at `place`. `false` where no filled segment holds it.
    pub fn restore_item(&mut self, place: LogPlace) -> bool {
        self.segments.restore_item(place)
    }

    /// After a restart: everything is restored, and what holds nothing alive is free.
    pub fn end_restoring(&mut self) {
        self.segments.end_restoring();
    }

    /// After a restart: numbers of fillings go on behind this one.
    pub fn restore_sequence(&mut self, sequence: u32) {
        self.segments.skip_sequence(sequence);
    }

    /// All items are dead at once; their segments are emptied in turn, without being read.
    pub fn kill_all(&mut self) {
        self.segments.kill_all();
    }

    /// The segment that a page belongs to.
    pub fn segment_of(&self, page: u32) -> u32 {
        self.segments.segment_of(page)
    }

    /// Live items.
    pub fn items(&self) -> u64 {
        self.segments.live_items()
    }

    /// Live bytes, to the mean size of a segment's items.
    pub fn live_bytes(&self) -> u64 {
        self.segments.live_bytes()
    }

    /// Segments that hold something, live or dead.
    pub fn segments_used(&self) -> u32 {
        self.config.segments - self.segments.free()
    }

    /// The counters of the log.
    pub fn counters(&self) -> LogCounters {
        self.counters
    }

    /// Bytes of memory held.
    pub fn metadata_bytes(&self) -> u64 {
        self.segments.bytes() + self.recent.bytes()
    }
}
