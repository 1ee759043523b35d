//! The flash tail tier: the bytes behind a [`Log`], on a [`BlockIo`] device.
//!
//! What is decided (who comes in, which segment is emptied, who survives) is decided in [`Log`]. Here are the bytes:
//! segments being filled ([`filling`]), items read back ([`fetch`]), victims being emptied ([`emptying`]), and what makes
//! a restart warm: the [`journal`] of changes to the log's part of the index, [`checkpoint`]s of that part, and
//! [`recover`]y from both. The format lies in [`format`] and is drawn in `docs/store-format.md`.
//!
//! Nothing here waits for the device. The owner calls [`Flash::advance`] between requests and whenever the device says
//! that something is done, and [`Flash::commit`] before it sends replies.
//!
//! What survives the death of the process:
//!
//! - an item is announced in the journal after its bytes are on the device, so what the journal names is there;
//! - a removal or overwriting is journaled before its reply is sent, so nothing comes back from the dead;
//! - an item carries the number of its segment's filling, so a place that was promised but never written, or that was
//!   filled anew, is known by its leftovers and counts as empty.
//!
//! Power loss is survived too where [`Durability::Power`] asks for it: replies wait for a sync ([`syncs`]), and nothing
//! that a restart could need is overwritten before what stands in for it is durable: a checkpoint before its superblock,
//! that before the old checkpoint and the other half of the journal, survivors before the segment that they left.

mod announce;
mod checkpoint;
mod emptying;
mod fetch;
mod filling;
pub mod format;
mod journal;
mod recover;
mod stats;
mod syncs;
mod types;

use std::sync::Arc;

use tiermem_policy::log::{Appended, LogPlace, SEGMENT_HEADER_BYTES, Stream};
use tiermem_policy::shard::{Away, Shard};
use tiermem_sys::aligned::AlignedBuffer;

use crate::block::{BlockIo, Completion, Request};
use announce::Emptied;
use checkpoint::Checkpoint;
use emptying::Victim;
use fetch::Fetches;
pub use fetch::{FetchId, FlashItem};
use filling::{Filling, Unwritten};
use format::{BLOCK_BYTES, ITEM_HEADER_BYTES, ItemHeader, Layout, Superblock};
use journal::{Journal, Position, Record};
pub use stats::FlashStats;
pub use syncs::Moment;
use syncs::Syncs;
pub use types::{Durability, FlashConfig, FlashError};

/// The version of everything here. Another one is refused.
pub const VERSION: u32 = 1;

/// Databases that items are counted by.
pub const DATABASES: usize = 16;

/// What a request to the device was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Fetch(FetchId),
    Chunk { segment: u32, start: u32 },
    Victim,
    Checkpoint,
    Sync,
}

impl Purpose {
    fn token(self) -> u64 {
        match self {
            Purpose::Fetch(id) => id.0 << 2,
            Purpose::Chunk { segment, start } => u64::from(segment) << 32 | u64::from(start) | 1,
            Purpose::Victim => 2,
            Purpose::Checkpoint => 3,
            Purpose::Sync => 7,
        }
    }

    /// Chunks start at multiples of a block, so the lowest bits are free.
    fn of(token: u64) -> Purpose {
        match token & 3 {
            0 => Purpose::Fetch(FetchId(token >> 2)),
            1 => Purpose::Chunk { segment: (token >> 32) as u32, start: token as u32 & !3 },
            2 => Purpose::Victim,
            _ if token == Purpose::Sync.token() => Purpose::Sync,
            _ => Purpose::Checkpoint,
        }
    }
}

/// The flash tier of one shard.
pub struct Flash {
    io: Box<dyn BlockIo>,
    layout: Layout,
    superblock: Superblock,
    fillings: Vec<Filling>,
    /// Memory of segments that are safe on the device.
    spare: Vec<Box<[u8]>>,
    journal: Journal,
    checkpoint: Option<Checkpoint>,
    /// Segments of the checkpoint that the superblock names.
    checkpoint_segments: Vec<u32>,
    /// The segment that is read to be emptied, and the one that was.
    reading: Option<u32>,
    victim: Option<Victim>,
    /// Unix time, as it was told last.
    now_ms: u64,
    /// Emptied segments that still hold what survivors might be needed from.
    emptied: Vec<Emptied>,
    /// Items appended since the start.
    appended: u64,
    /// Records are missing from the journal that the checkpoint under way would need.
    records_lost: bool,
    /// The superblocks are blank, since the journal was full: only a new checkpoint makes a restart possible again.
    blank: bool,
    fetches: Fetches,
    completions: Vec<Completion>,
    requests: Vec<Request>,
    /// Items per database.
    items: [u64; DATABASES],
    /// Those of them that the journal has announced: what a restart would find.
    announced: [u64; DATABASES],
    syncs: Syncs,
    /// Something was removed since the last call of [`Flash::commit`].
    owes: bool,
    /// Where the journal stood when the sync began that is under way.
    syncing: u32,
    /// How full the journal must be before a checkpoint that failed is tried again.
    checkpoint_retry: f64,
    stats: FlashStats,
    write_errors_in_row: u32,
    broken: bool,
    /// The run that left what was taken up; `None` where it began empty.
    found_session: Option<[u8; 16]>,
}

impl std::fmt::Debug for Flash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flash")
            .field("layout", &self.layout)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// A fixed word whose hash shows whether keys are hashed as they were when the region was written.
pub const HASH_PROBE: &[u8] = b"tiermem flash hash probe";

impl Flash {
    /// The seed with which keys are hashed here.
    pub fn hash_seed(&self) -> u64 {
        self.superblock.hash_seed
    }

    /// Whom to wake when the device has done something.
    pub fn notify(&mut self, waker: Arc<dyn Fn() + Send + Sync>) {
        self.io.notify(waker);
    }

    /// Items per database.
    pub fn items(&self) -> &[u64; DATABASES] {
        &self.items
    }

    /// Whether the device was given up after too many errors.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Writes an item to its place in the log. Where it comes from memory it counts from now on.
    pub fn append(&mut self, to: &Appended, stream: Stream, header: ItemHeader, key_and_value: &[u8]) {
        let len = ITEM_HEADER_BYTES + key_and_value.len();
        let at = self.filling(to.segment, to.sequence, stream);
        assert_eq!(self.fillings[at].sequence, to.sequence, "a segment is filled once at a time");
        self.appended += 1;
        let (hash, db, place) = (header.hash, header.db, to.place);
        let unwritten = Unwritten { hash, place, db, number: self.appended, dead: false };
        let item = self.fillings[at].item(to.offset as usize, len, unwritten);
        item[ITEM_HEADER_BYTES..].copy_from_slice(key_and_value);
        ItemHeader { sequence: to.sequence, ..header }.seal(item);
        if stream == Stream::Fresh {
            self.items[usize::from(db) % DATABASES] += 1;
        }
    }

    /// The filling of a segment, begun if it is new.
    fn filling(&mut self, segment: u32, sequence: u32, stream: Stream) -> usize {
        if let Some(at) = self.fillings.iter().position(|filling| filling.segment == segment) {
            return at;
        }
        self.record(Record::Open { segment, sequence });
        let bytes = self
            .spare
            .pop()
            .unwrap_or_else(|| vec![0; self.layout.segment_bytes as usize].into_boxed_slice());
        self.fillings.push(Filling::new(segment, sequence, stream, self.superblock.uuid, bytes));
        self.fillings.len() - 1
    }

    /// Nothing more comes to a segment.
    pub fn seal(&mut self, segment: u32) {
        if let Some(filling) = self.fillings.iter_mut().find(|filling| filling.segment == segment) {
            filling.seal();
        }
    }

    /// Has bytes of a segment written.
    pub fn write(&mut self, segment: u32, start: u32, end: u32) {
        let Some(filling) = self.fillings.iter_mut().find(|filling| filling.segment == segment) else {
            return;
        };
        let buffer = filling.piece(start as usize, end as usize);
        let offset = self.layout.segment(segment) + u64::from(start);
        self.stats.write_bytes += buffer.len() as u64;
        self.requests.push(Request::write(Purpose::Chunk { segment, start }.token(), offset, buffer));
    }

    /// Takes an item out of all accounts that has left the index, and says so in the journal. Whether it counted.
    /// `filling` is its segment, and the number of that segment's filling.
    pub fn retire(&mut self, hash: u64, place: LogPlace, (segment, sequence): (u32, u32), db: u8) -> bool {
        let at = usize::from(db) % DATABASES;
        let flushed = self.is_before_flush(sequence, db);
        let filling = self.fillings.iter_mut().find(|filling| filling.segment == segment);
        let counted = !filling.is_some_and(|filling| filling.withdraw(hash, place)) && !flushed;
        self.owes = true;
        self.record(Record::Remove { hash, db, counted });
        self.announced[at] = self.announced[at].saturating_sub(u64::from(counted));
        self.items[at] = self.items[at].saturating_sub(u64::from(!flushed));
        !flushed
    }

    fn is_before_flush(&self, sequence: u32, db: u8) -> bool {
        sequence < self.superblock.flushed[usize::from(db) % DATABASES]
    }

    /// Waits until the device has done something, if it has anything to do.
    pub fn wait(&mut self) {
        self.submit();
        if self.io.in_flight() > 0 {
            self.io.wait(&mut self.completions);
        }
    }

    /// Notes that an item was not where the index said.
    pub fn count_lost(&mut self) {
        self.stats.lost_items += 1;
    }

    /// Asks for an item.
    pub fn ask(&mut self, away: &Away) -> FetchId {
        let Away { hash, place, sequence, is_in_memory } = *away;
        let pages = self.layout.segment_bytes / BLOCK_BYTES as u32;
        let in_segment = (place.page() % pages) as usize * BLOCK_BYTES;
        let first = if in_segment == 0 { SEGMENT_HEADER_BYTES as usize } else { 0 };
        if is_in_memory {
            return self.fetches.answered(hash, place, sequence, first);
        }
        self.stats.reads += 1;
        let len = fetch::reading_len(place, pages);
        let id = self.fetches.ask(hash, place, sequence, first, len);
        self.begin_readings();
        id
    }

    fn begin_readings(&mut self) {
        while let Some(reading) = self.fetches.next_reading() {
            self.stats.read_bytes += reading.len as u64;
            let buffer = AlignedBuffer::zeroed(reading.len);
            let offset = self.layout.page(reading.page);
            self.requests.push(Request::read(Purpose::Fetch(reading.id).token(), offset, buffer));
        }
    }

    /// Whether the answer is there; if not, who is to be woken when it is.
    pub fn is_ready(&mut self, id: FetchId, waker: Option<&std::task::Waker>) -> bool {
        self.fetches.is_ready(id, waker)
    }

    /// The answer of a question that is ready.
    pub fn take(&mut self, id: FetchId) -> Option<FlashItem> {
        let about = self.fetches.about(id)?;
        let bytes = about.in_memory.then(|| {
            // Read now, not when it was asked: a later version may have come to the same block since.
            let segment = about.page / (self.layout.segment_bytes / BLOCK_BYTES as u32);
            let filling = self.fillings.iter().find(|filling| filling.segment == segment);
            let start = self.layout.page(about.page) - self.layout.segment(segment);
            filling.and_then(|filling| filling.bytes().get(start as usize..)).unwrap_or_default()
        });
        let item = self.fetches.take(id, bytes);
        self.begin_readings();
        item
    }

    /// An answer is not wanted any more.
    pub fn cancel(&mut self, id: FetchId) {
        self.fetches.cancel(id);
        self.begin_readings();
    }

    /// Whether a filling is younger than the last flush of its database.
    pub fn is_flushed(&self, header: &ItemHeader) -> bool {
        header.sequence < self.superblock.flushed[usize::from(header.db) % DATABASES]
    }

    /// Hands everything that was decided to the device. What the journal says of a segment is written before anything is
    /// written to it, or else survivors of its last filling would lie nowhere after a crash.
    #[inline]
    pub fn submit(&mut self) {
        if !self.requests.is_empty() || self.syncs.is_due() {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        self.write_records();
        self.begin_sync();
        self.io.submit_all(&mut self.requests);
    }

    /// Takes what the device has done, and tells the shard of it. `now_ms` is Unix time.
    pub fn take_done(&mut self, shard: &mut Shard, now_ms: u64) {
        self.now_ms = now_ms;
        let mut completions = std::mem::take(&mut self.completions);
        self.io.completed(&mut completions);
        for completion in completions.drain(..) {
            self.complete(completion, shard);
        }
        self.completions = completions;
        self.announce(shard);
        if self.broken {
            shard.device().give_up();
        }
        shard.device().promise_segments(self.checkpoint.as_ref().is_some_and(|it| !it.is_starved()));
    }

    fn complete(&mut self, completion: Completion, shard: &mut Shard) {
        let ok = completion.result.is_ok();
        match Purpose::of(completion.token) {
            Purpose::Fetch(id) => {
                self.stats.read_errors += u64::from(!ok);
                self.fetches.read(id, ok.then_some(completion.buffer));
                self.begin_readings();
            }
            Purpose::Chunk { segment, start } => {
                self.note_write(&completion.result);
                // What could not be written is not found when it is read, and costs a miss.
                if let Some(filling) = self.fillings.iter_mut().find(|filling| filling.segment == segment) {
                    filling.chunk_written(start as usize);
                }
            }
            Purpose::Victim => {
                self.stats.read_errors += u64::from(!ok);
                self.stats.read_bytes += completion.buffer.len() as u64;
                if let Some(segment) = self.reading.take() {
                    let sequence = shard.log().map_or(0, |work| work.log().sequence(segment));
                    let bytes = completion.buffer;
                    self.victim = ok.then_some(Victim { segment, sequence, bytes });
                    shard.device().arrived(segment, ok);
                }
            }
            Purpose::Checkpoint => {
                self.note_write(&completion.result);
                if let Some(checkpoint) = &mut self.checkpoint {
                    checkpoint.written(ok);
                }
            }
            Purpose::Sync => self.end_sync(&completion.result),
        }
    }

    /// Removes all items of one database, or of all, whose last filling came before `sequence`: all that are being filled are
    /// sealed. Those of one database stay in the index as dead entries until they are met.
    pub fn flush(&mut self, db: Option<u8>, sequence: u32) {
        self.owes = true;
        self.record(Record::Flush { db, sequence });
        match db {
            Some(db) => {
                let db = usize::from(db) % DATABASES;
                self.superblock.flushed[db] = sequence;
                (self.items[db], self.announced[db]) = (0, 0);
            }
            None => {
                self.superblock.flushed = [sequence; DATABASES];
                (self.items, self.announced) = ([0; DATABASES], [0; DATABASES]);
            }
        }
    }

    /// Once a second, when what lies in half-filled segments was written, so that a crash loses little of it.
    pub fn tick(&mut self) {
        self.syncs.ask_if_unsynced();
        self.submit();
    }

    /// Closes the region in order: all items are written and announced, and every segment was sealed before. Waits for the device.
    pub fn close(&mut self, shard: &mut Shard) -> Result<(), FlashError> {
        loop {
            self.step_checkpoint(shard);
            let announced = self.announce(shard);
            self.submit();
            // What waits for a checkpoint, or for the first one after the journal was full, would be lost without it.
            let owed = self.blank || self.journal.is_full();
            let goes_on = owed && self.checkpoint.as_ref().is_some_and(|it| !it.is_starved());
            if self.io.in_flight() == 0 && !goes_on && announced {
                break;
            }
            let mut completions = std::mem::take(&mut self.completions);
            self.io.wait(&mut completions);
            for completion in completions.drain(..) {
                self.complete(completion, shard);
            }
            self.completions = completions;
        }
        self.write_records();
        if self.blank {
            // The blocks stay so.
            return Ok(());
        }
        // What is to be trusted is there before the block that says so.
        self.io.sync()?;
        self.superblock.clean = true;
        self.write_superblock()?;
        self.io.sync()?;
        Ok(())
    }
}
