//! Flash tail tier: the bytes behind a [`Log`], on a [`BlockIo`] device.
//!
//! The [`Shard`] makes the decisions: which items are admitted, which segment is emptied, which items
//! survive, when a checkpoint is made and in which segments. These files own the bytes, each part its own:
//!
//! | file | part | owns |
//! | --- | --- | --- |
//! | `write_buffers.rs`, `filling.rs` | [`Segments`] | bytes of segments being filled |
//! | `gc_read_buffer.rs` | [`Emptying`] | bytes of the segment being emptied |
//! | `fetch.rs` | [`Fetches`] | items that are read back |
//! | `recovery_writes.rs`, `journal.rs`, `checkpoint.rs` | [`Restart`] | superblock, journal, checkpoint, items per database |
//! | `shared_growths.rs`, `growth.rs` | [`SharedGrowths`] | how far the device has grown |
//! | `requests.rs`, `syncs.rs`, `removals.rs` | [`Requests`] | the device, how far writes are durable, removals that are not yet durable |
//!
//! [`recover`] opens a region. [`format`] has the on-device format; `docs/store-format.md` draws it.
//!
//! No function here waits for the device. The owner calls [`Flash::advance`] between requests
//! and whenever the device reports a completion, and [`Flash::commit`] before it sends replies.
//!
//! Guarantees when the process dies:
//!
//! - an item is announced in the journal after its bytes are on the device, so every item named in the journal exists;
//! - a removal or overwrite is journaled before its reply is sent, so no removed item comes back;
//! - an item carries the number of its segment's filling, so a place that was promised but never written, or filled
//!   anew, is recognized by its old bytes and counts as empty.
//!
//! With [`Durability::Power`] this holds after power loss too: replies wait for a sync
//! ([`syncs`]), and nothing that a restart could need is overwritten before its replacement is
//! durable. The order is: the checkpoint, then its superblock, then the old checkpoint and the
//! other half of the journal may be overwritten; survivors, then the segment that they left.

mod checkpoint;
mod fetch;
mod filling;
pub mod format;
mod gc_read_buffer;
pub mod growth;
mod journal;
mod recover;
mod recovery_writes;
mod removals;
mod requests;
mod shared_growths;
mod stats;
mod syncs;
mod types;
mod write_buffers;

use std::sync::Arc;

use tiermem_policy::log::{Appended, Growths, LogPlace, SEGMENT_HEADER_BYTES, Stream};
use tiermem_policy::shard::{Away, Duty, Lying, Shard};
use tiermem_sys::aligned::AlignedBuffer;

use fetch::Fetches;
pub use fetch::{FetchId, FlashItem};
use format::{BLOCK_BYTES, ITEM_HEADER_BYTES, ItemHeader, Layout};
use gc_read_buffer::Emptying;
use journal::Record;
pub use recover::found_region_bytes;
use recovery_writes::Restart;
use requests::{Purpose, Requests};
pub use shared_growths::SharedGrowths;
pub use stats::FlashStats;
pub use syncs::Moment;
use tiermem_tier::block::{BlockError, Completion, Request};
pub use types::{Durability, FlashConfig, FlashError};
use write_buffers::Segments;

/// The version of everything here. A later one is refused.
pub const VERSION: u32 = 2;
/// That of regions that never grew, so that the builds before know them.
const VERSION_UNGROWN: u32 = 1;

/// Databases that items are counted by.
pub const DATABASES: usize = 16;

/// Write errors in a row after which the device is given up.
const WRITE_ERRORS_MAX: u32 = 16;

/// The flash tier of one shard.
pub struct Flash {
    layout: Layout,
    /// What the regions of the device were given, and this one has taken.
    growths: Growths,
    shared_growths: SharedGrowths,
    requests: Requests,
    segments: Segments,
    restart: Restart,
    emptying: Emptying,
    fetches: Fetches,
    /// Items per database.
    items: [u64; DATABASES],
    /// Unix time, as last given.
    now_ms: u64,
    stats: FlashStats,
    write_errors_in_row: u32,
    broken: bool,
    /// The run that left the restored contents; `None` where it began empty.
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

/// A fixed word; its hash shows whether keys are hashed as they were when the region was written.
pub const HASH_PROBE: &[u8] = b"tiermem flash hash probe";

impl Flash {
    /// The seed with which keys are hashed here.
    pub fn hash_seed(&self) -> u64 {
        self.restart.superblock().hash_seed
    }

    /// Whom to wake when the device has done something.
    pub fn notify(&mut self, waker: Arc<dyn Fn() + Send + Sync>) {
        self.requests.notify(waker);
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
    pub fn append(
        &mut self,
        shard: &mut Shard,
        (to, stream): (&Appended, Stream),
        header: ItemHeader,
        key_and_value: &[u8],
    ) {
        if !self.segments.has(to.segment) {
            self.record(Record::Open { segment: to.segment, sequence: to.sequence }, shard);
            self.segments.begin(to.segment, to.sequence, stream);
        }
        let len = ITEM_HEADER_BYTES + key_and_value.len();
        let item = self.segments.item((to.segment, to.sequence), to.offset, len);
        item[ITEM_HEADER_BYTES..].copy_from_slice(key_and_value);
        ItemHeader { sequence: to.sequence, ..header }.seal(item);
        if stream == Stream::Fresh {
            self.items[usize::from(header.db) % DATABASES] += 1;
        }
    }

    /// Appends the item at byte `at` of the segment that is being emptied again.
    pub fn append_survivor(&mut self, shard: &mut Shard, to: &Appended, at: u32) {
        let emptying = std::mem::take(&mut self.emptying);
        if let Some((header, key_and_value)) = emptying.survivor(at) {
            self.append(shard, (to, Stream::Kept), header, key_and_value);
        }
        self.emptying = emptying;
    }

    fn record(&mut self, record: Record, shard: &mut Shard) {
        self.restart.record(record, shard, &mut self.requests);
    }

    /// Seals a segment: no more items are appended to it.
    pub fn seal(&mut self, segment: u32) {
        self.segments.seal(segment);
    }

    /// Writes bytes of a segment.
    pub fn write(&mut self, segment: u32, start: u32, end: u32) {
        let Some(buffer) = self.segments.piece(segment, start, end) else { return };
        let offset = self.layout.segment(segment) + u64::from(start);
        self.stats.write_bytes += buffer.len() as u64;
        self.requests.push(Request::write(Purpose::Chunk { segment, start }.token(), offset, buffer));
    }

    /// Reads a whole segment, which is then the one that is being emptied.
    pub fn read(&mut self, segment: u32) {
        let buffer = AlignedBuffer::zeroed(self.layout.segment_bytes as usize);
        let offset = self.layout.segment(segment);
        self.emptying.begin(segment);
        self.requests.push(Request::read(Purpose::Victim.token(), offset, buffer));
    }

    /// Nothing is read any more from the segment that is being emptied.
    pub fn free(&mut self) {
        self.emptying.end();
    }

    /// The item at byte `at` of the segment being emptied, of this filling.
    pub fn header_at(&self, segment: u32, sequence: u32, at: u32) -> Option<ItemHeader> {
        self.emptying.header_at(segment, sequence, at)
    }

    /// The same as the shard wants to know it.
    pub fn lying_at(&self, segment: u32, sequence: u32, at: u32) -> Option<Lying> {
        self.emptying.lying_at((segment, sequence), at, |header| {
            let is_expired = header.expires_at_ms != 0 && header.expires_at_ms <= self.now_ms;
            is_expired || self.is_flushed(header)
        })
    }

    /// Takes an item out of all accounts that has left the index, and says so in the journal. Whether it counted.
    pub fn retire(&mut self, shard: &mut Shard, hash: u64, place: LogPlace, db: u8) -> bool {
        let Some((segment, sequence)) = shard.log().map(|work| work.filling_of(place)) else { return false };
        let is_flushed = self.restart.is_before_flush(sequence, db);
        let withdrawn = shard.device().withdraw(hash, place);
        let is_announced = withdrawn.as_ref().is_none_or(|it| !it.is_new);
        withdrawn.into_iter().for_each(|it| self.segments.bury(segment, it.bytes));
        self.requests.syncs_mut().removed(Some(hash));
        self.record(Record::Remove { hash, db, counted: is_announced && !is_flushed }, shard);
        let items = &mut self.items[usize::from(db) % DATABASES];
        *items = items.saturating_sub(u64::from(!is_flushed));
        !is_flushed
    }

    /// A request changes the key of this hash, of which nothing lies on flash: its reply waits until the last removal is durable.
    #[inline]
    pub fn note_change(&mut self, hash: u64) {
        self.requests.syncs_mut().changed(hash);
    }

    /// Waits until the device has done something, if it has anything to do.
    pub fn wait(&mut self) {
        self.submit();
        self.requests.wait();
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
            let buffer = self.fetches.buffer(reading.len);
            let offset = self.layout.page(reading.page);
            self.requests.push(Request::read(Purpose::Fetch(reading.id).token(), offset, buffer));
        }
    }

    /// Whether the item is read; if not, `waker` is woken when it is.
    pub fn is_ready(&mut self, id: FetchId, waker: Option<&std::task::Waker>) -> bool {
        self.fetches.is_ready(id, waker)
    }

    /// The answer of a question that is ready.
    pub fn take(&mut self, id: FetchId) -> Option<FlashItem> {
        let about = self.fetches.about(id)?;
        let bytes = about.in_memory.then(|| {
            // Read now, not when it was asked: a later version may have come to the same block since.
            let pages = self.layout.segment_bytes / BLOCK_BYTES as u32;
            let (segment, page) = (about.page / pages, about.page % pages);
            self.segments.bytes_from(segment, page * BLOCK_BYTES as u32)
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
        self.restart.is_before_flush(header.sequence, header.db)
    }

    /// Hands everything that was decided to the device. What the journal says of a segment is written before anything is
    /// written to it, or else survivors of its last filling would lie nowhere after a crash.
    #[inline]
    pub fn submit(&mut self) {
        if self.requests.is_due() {
            self.restart.write_records(&mut self.requests);
            self.restart.begin_sync(&mut self.requests);
            self.requests.submit();
        }
    }

    /// Hands decided and journaled changes to the device. Call it before replies are sent, so that
    /// acknowledged changes outlive the process. Where they must outlive the machine, replies wait until
    /// [`Self::is_durable`] is true for the returned moment. The moment is past already if since the
    /// last call nothing was removed, and no key was changed that has a removal that is not durable yet.
    #[inline]
    pub fn commit(&mut self) -> Moment {
        self.restart.write_records(&mut self.requests);
        let promised = self.requests.syncs_mut().promise();
        self.submit();
        promised
    }

    /// Whether everything promised by that moment has the configured durability.
    #[inline]
    pub fn is_durable(&self, moment: Moment) -> bool {
        self.requests.syncs().is_past(moment)
    }

    /// Takes the device's completions, and passes them to the shard. `now_ms` is Unix time.
    pub fn take_done(&mut self, shard: &mut Shard, now_ms: u64) {
        self.now_ms = now_ms;
        self.take_completions(shard);
        self.announce(shard);
        if self.broken {
            shard.device().give_up();
        }
    }

    fn take_completions(&mut self, shard: &mut Shard) {
        let mut completions = self.requests.take_completions();
        completions.drain(..).for_each(|completion| self.complete(completion, shard));
        self.requests.give_back(completions);
    }

    fn complete(&mut self, completion: Completion, shard: &mut Shard) {
        let is_ok = completion.result.is_ok();
        match Purpose::of(completion.token) {
            Purpose::Fetch(id) => {
                self.stats.read_errors += u64::from(!is_ok);
                self.fetches.read(id, is_ok.then_some(completion.buffer));
                self.begin_readings();
            }
            Purpose::Chunk { segment, start } => {
                self.note_write(&completion.result);
                self.segments.piece_written(segment, start);
            }
            Purpose::Victim => {
                self.stats.read_errors += u64::from(!is_ok);
                self.stats.read_bytes += completion.buffer.len() as u64;
                if let Some(segment) = self.emptying.take_reading() {
                    if is_ok {
                        let sequence = shard.log().map_or(0, |work| work.log().sequence(segment));
                        self.emptying.arrived(segment, sequence, completion.buffer);
                    }
                    shard.device().arrived(segment, is_ok);
                }
            }
            Purpose::Checkpoint => {
                self.note_write(&completion.result);
                shard.device().part_written(is_ok);
            }
            Purpose::Sync => {
                let is_ok = self.restart.end_sync(&completion.result, shard, &mut self.requests);
                self.stats.syncs += u64::from(is_ok);
            }
        }
    }

    /// Notes how a write ended.
    fn note_write(&mut self, result: &Result<(), BlockError>) {
        self.requests.syncs_mut().note_write();
        match result {
            Ok(()) => self.write_errors_in_row = 0,
            Err(error) => {
                self.stats.write_errors += 1;
                self.write_errors_in_row += 1;
                if self.write_errors_in_row == WRITE_ERRORS_MAX && !self.broken {
                    (self.stats.broken, self.broken) = (true, true);
                    self.stats.last_error = Some(error.to_string());
                }
            }
        }
    }

    /// Tells the shard what is safe, and does what follows. Whether anything was announced.
    fn announce(&mut self, shard: &mut Shard) -> bool {
        for (segment, end) in self.segments.safe(self.requests.syncs_mut()) {
            shard.device().note_safe(segment, end);
        }
        shard.device().announce();
        self.carry_out(shard)
    }

    /// Does what is to be done for restarts. Whether anything was announced.
    fn carry_out(&mut self, shard: &mut Shard) -> bool {
        let mut has_announced = false;
        loop {
            while let Some(settled) = self.requests.syncs_mut().take_settled() {
                shard.device().settled(settled);
            }
            let Some(duty) = shard.device().next_duty() else { return has_announced };
            match duty {
                Duty::Announce { segment, at, hash, place, is_new } => {
                    has_announced = true;
                    let db = ItemHeader::db_of(self.segments.bytes_from(segment, at)).unwrap_or(0);
                    let sequence = self.segments.sequence(segment).unwrap_or(0);
                    // Announcing what was flushed would bring it back.
                    if !self.restart.is_before_flush(sequence, db) {
                        self.record(Record::Add { hash, place, db, anew: is_new }, shard);
                    }
                }
                Duty::Release { segment } => self.segments.release(segment),
                Duty::Settle(what) => self.requests.syncs_mut().settle(what),
                Duty::WritePart { segment, next } => {
                    self.restart.write_part(segment, next, &mut self.requests);
                }
                Duty::Name { first, next_sequence } => {
                    let is_written = self.restart.name(first, next_sequence, &mut self.requests);
                    shard.device().named(is_written);
                }
            }
        }
    }

    /// A piece of the checkpoint under way. Acts of the shard may follow.
    pub fn step_checkpoint(&mut self, shard: &mut Shard) {
        shard.device().step_checkpoint(&mut self.restart.parts(&mut self.requests));
        self.carry_out(shard);
    }

    /// Removes all items of one database, or of all, that come from a filling before `sequence`. All segments
    /// being filled are sealed. Items of one database stay in the index as dead entries until they are met.
    pub fn flush(&mut self, shard: &mut Shard, db: Option<u8>, sequence: u32) {
        self.requests.syncs_mut().removed(None);
        self.restart.flush(db, sequence, shard, &mut self.requests);
        match db {
            Some(db) => self.items[usize::from(db) % DATABASES] = 0,
            None => self.items = [0; DATABASES],
        }
    }

    /// Once a second, when what lies in half-filled segments was written, so that a crash loses little of it.
    pub fn tick(&mut self) {
        self.requests.syncs_mut().ask_if_unsynced();
        self.submit();
    }

    /// Writes all that a restart needs to find what is there now. Waits for the device.
    ///
    /// # Errors
    /// When it would not find it.
    pub fn write_back(&mut self, shard: &mut Shard) -> Result<(), FlashError> {
        announce_all(self, shard);
        if self.items.iter().all(|items| *items == 0) {
            return Ok(());
        }
        if let Some(why) = self.restart.given_up() {
            return Err(FlashError::Unrecoverable(why.to_owned()));
        }
        if shard.log().is_some_and(|work| work.checkpoints().is_blank()) {
            let why = "no checkpoint could be written, a restart begins empty";
            return Err(FlashError::Unrecoverable(why.to_owned()));
        }
        Ok(self.requests.sync_now()?)
    }

    /// Closes the region in order. Waits for the device.
    ///
    /// # Errors
    /// When the device cannot be written.
    pub fn close(&mut self, shard: &mut Shard) -> Result<(), FlashError> {
        announce_all(self, shard);
        if shard.log().is_some_and(|work| work.checkpoints().is_blank()) {
            // The blocks stay so.
            return Ok(());
        }
        self.restart.end_run(&mut self.requests)
    }
}

/// Writes and announces all items; every segment was sealed before.
fn announce_all(flash: &mut Flash, shard: &mut Shard) {
    loop {
        flash.step_checkpoint(shard);
        let has_announced = flash.announce(shard);
        flash.submit();
        // What waits for a checkpoint, or for the first one after the journal was full, would be lost without it.
        let goes_on = shard.log().is_some_and(|work| work.checkpoints().is_awaited());
        if !flash.requests.is_busy() && !goes_on && !has_announced {
            break;
        }
        flash.requests.wait();
        flash.take_completions(shard);
    }
    flash.restart.write_records(&mut flash.requests);
}
