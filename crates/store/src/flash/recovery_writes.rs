//! Bytes that a restart reads: superblocks, the journal, the checkpoint under way. The
//! [`Shard`] decides when a checkpoint is made and which part of the journal is overwritten.

use tiermem_policy::log::{Filled, Growths, LogPlace};
use tiermem_policy::shard::{Parts, Recorded, Shard};

use super::checkpoint::Gathered;
use super::format::{BLOCK_BYTES, Layout, NO_SEGMENT, Superblock};
use super::journal::{Journal, Position, Record};
use super::requests::{Purpose, Requests};
use super::{DATABASES, FlashError};
use tiermem_tier::block::{BlockError, Request};

/// Bytes written for restarts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    /// Bytes of journal.
    pub journal_bytes: u64,
    /// Bytes of checkpoints.
    pub checkpoint_bytes: u64,
    /// Writes that failed.
    pub errors: u64,
}

/// The state that the next process starts from.
pub struct Restart {
    layout: Layout,
    superblock: Superblock,
    journal: Journal,
    /// The checkpoint under way.
    gathered: Option<Gathered>,
    /// Items per database that a restart would find.
    announced: [u64; DATABASES],
    /// The number of the first record that the sync under way does not cover.
    syncing: u32,
    /// The superblocks are blank, until a checkpoint is named.
    is_blank: bool,
    /// Why a restart finds nothing, and never will.
    given_up: Option<String>,
    written: Written,
}

impl Restart {
    /// Continues from the recovered state.
    pub fn new(layout: Layout, superblock: Superblock, journal: Journal, items: [u64; DATABASES]) -> Self {
        Restart {
            layout,
            superblock,
            journal,
            gathered: None,
            announced: items,
            syncing: 0,
            is_blank: false,
            given_up: None,
            written: Written::default(),
        }
    }

    /// The newest superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Why a restart finds nothing, and never will.
    pub fn given_up(&self) -> Option<&str> {
        self.given_up.as_deref()
    }

    /// Items that it would find.
    pub fn items(&self) -> u64 {
        self.announced.iter().sum()
    }

    /// Bytes written for restarts.
    pub fn written(&self) -> Written {
        self.written
    }

    /// Begins the run: the superblock says that it is open. `records`: how many the journal's half has by then.
    ///
    /// # Errors
    /// When the device cannot be written.
    pub fn begin_run(&mut self, requests: &mut Requests) -> Result<u64, FlashError> {
        self.superblock.durable = requests.syncs().is_wanted();
        if self.superblock.durable {
            // From here on a record that is missing before this one means damage.
            self.journal.push(Record::Durable { sequence: self.journal.next_sequence() });
            self.write_records(requests);
        }
        self.write_superblock(requests)?;
        // Or else, after power loss, the run before would seem to be the last one, and what this one removes be there again.
        requests.sync_now()?;
        Ok(u64::from(self.journal.position().skipped))
    }

    /// The device has grown: what a restart finds says so before anything lies there.
    ///
    /// # Errors
    /// When the device cannot be written.
    pub fn grow(&mut self, growths: &Growths, requests: &mut Requests) -> Result<(), FlashError> {
        growths.given().clone_into(&mut self.superblock.growths);
        self.layout = self.layout.with_growths(growths, self.superblock.shard);
        if self.is_blank {
            // A restart finds nothing, and must not, until a checkpoint is named.
            return Ok(());
        }
        let mut written = self.write_superblock(requests);
        if written.is_ok() && requests.syncs().is_wanted() {
            written = requests.sync_now().map_err(FlashError::from);
        }
        if let Err(error) = &written {
            self.give_up(&error.to_string(), requests);
        }
        written
    }

    /// Gathers a record of something that has changed.
    pub fn record(&mut self, record: Record, shard: &mut Shard, requests: &mut Requests) {
        requests.syncs_mut().note_write();
        // A checkpoint that begins with this record counts what was there before it.
        self.gather(record, shard, requests);
        match record {
            Record::Add { db, anew, .. } => {
                self.announced[usize::from(db) % DATABASES] += u64::from(anew);
            }
            Record::Remove { db, counted, .. } => {
                let announced = &mut self.announced[usize::from(db) % DATABASES];
                *announced = announced.saturating_sub(u64::from(counted));
            }
            _ => {}
        }
    }

    fn gather(&mut self, record: Record, shard: &mut Shard, requests: &mut Requests) {
        match shard.device().note_record() {
            Recorded::Behind => {}
            Recorded::InOtherHalf => {
                self.write_records(requests);
                self.journal.turn();
                self.begin_checkpoint();
            }
            Recorded::OverLost { is_first } => self.lose_records(is_first, requests),
        }
        let fits = self.journal.push(record);
        assert!(fits, "the shard knows what room the journal has");
    }

    /// Records the removal of all items of a database, or of all, from fillings before `sequence`.
    pub fn flush(&mut self, db: Option<u8>, sequence: u32, shard: &mut Shard, requests: &mut Requests) {
        self.record(Record::Flush { db, sequence }, shard, requests);
        match db {
            Some(db) => {
                let db = usize::from(db) % DATABASES;
                (self.superblock.flushed[db], self.announced[db]) = (sequence, 0);
            }
            None => {
                (self.superblock.flushed, self.announced) = ([sequence; DATABASES], [0; DATABASES]);
            }
        }
    }

    /// Whether a filling is older than the last flush of a database.
    pub fn is_before_flush(&self, sequence: u32, db: u8) -> bool {
        sequence < self.superblock.flushed[usize::from(db) % DATABASES]
    }

    #[cold]
    fn lose_records(&mut self, is_first: bool, requests: &mut Requests) {
        if is_first {
            self.is_blank = true;
            self.blank_superblocks(requests);
            // The half is about to be written over, and nothing may name it by then.
            if requests.syncs().is_wanted()
                && let Err(error) = requests.sync_now()
            {
                self.give_up(&error.to_string(), requests);
            }
        }
        self.write_records(requests);
        self.journal.rewind();
    }

    fn begin_checkpoint(&mut self) {
        self.gathered = Some(Gathered::new(self.journal.position(), self.superblock.flushed, self.announced));
    }

    /// Receives the parts of a checkpoint.
    pub fn parts<'a>(&'a mut self, requests: &'a mut Requests) -> impl Parts + 'a {
        Gathering { restart: self, requests }
    }

    /// Writes the gathered part to this segment.
    pub fn write_part(&mut self, segment: u32, next: Option<u32>, requests: &mut Requests) {
        let Some(gathered) = &mut self.gathered else { return };
        let next = next.unwrap_or(NO_SEGMENT);
        let buffer = gathered.take_part(self.superblock.uuid, self.superblock.epoch + 1, next);
        assert!(buffer.len() <= self.layout.segment_bytes as usize, "a part fits its segment");
        self.written.checkpoint_bytes += buffer.len() as u64;
        let offset = self.layout.segment(segment);
        requests.push(Request::write(Purpose::Checkpoint.token(), offset, buffer));
    }

    /// Writes the superblock that names the checkpoint; whether it could be.
    pub fn name(&mut self, first: u32, next_sequence: u32, requests: &mut Requests) -> bool {
        let Some(gathered) = self.gathered.take() else { return false };
        let Position { half, skipped, sequence } = gathered.journal;
        let superblock = &mut self.superblock;
        superblock.checkpoint = first;
        (superblock.journal_half, superblock.journal_sequence) = (half, sequence);
        (superblock.journal_skipped, superblock.next_sequence) = (skipped, next_sequence);
        superblock.items = gathered.items;
        let flushed = std::mem::replace(&mut superblock.flushed, gathered.flushed);
        let written = self.write_superblock(requests);
        self.superblock.flushed = flushed;
        match &written {
            Ok(()) => self.is_blank = false,
            Err(error) => self.give_up(&error.to_string(), requests),
        }
        written.is_ok()
    }

    /// Writes what was journaled.
    #[inline]
    pub fn write_records(&mut self, requests: &mut Requests) {
        if self.journal.has_gathered() {
            self.write_journal(requests);
        }
    }

    #[cold]
    fn write_journal(&mut self, requests: &mut Requests) {
        let Some((offset, bytes)) = self.journal.take(&self.layout) else { return };
        if let Err(error) = requests.write_at(offset, &bytes) {
            self.give_up(&error.to_string(), requests);
        }
        self.written.journal_bytes += bytes.len() as u64;
        self.journal.give_back(bytes);
    }

    /// Starts a sync of what is written, if a reply waits for one.
    pub fn begin_sync(&mut self, requests: &mut Requests) {
        if requests.begin_sync() {
            self.syncing = self.journal.next_sequence();
        }
    }

    /// The sync under way has ended; whether with success.
    pub fn end_sync(
        &mut self,
        result: &Result<(), BlockError>,
        shard: &mut Shard,
        requests: &mut Requests,
    ) -> bool {
        requests.syncs_mut().end();
        match result {
            // How far the journal is durable is nothing to sync for, or an idle store would never come to rest.
            Ok(()) => self.gather(Record::Durable { sequence: self.syncing }, shard, requests),
            // What the kernel could not write it may have forgotten: to ask again would prove nothing.
            Err(error) => self.give_up(&error.to_string(), requests),
        }
        result.is_ok()
    }

    /// Without a journal a restart would bring dead items back: it is to find nothing.
    fn give_up(&mut self, error: &str, requests: &mut Requests) {
        self.written.errors += 1;
        self.given_up = Some(format!("the journal cannot be written ({error}): a restart begins empty"));
        self.blank_superblocks(requests);
        // Replies that waited for a sync go out now: power loss must not bring back the blocks that name what they took away.
        if requests.syncs().is_wanted()
            && let Err(error) = requests.sync_now()
        {
            self.given_up = Some(format!("power loss may bring back what was removed ({error})"));
        }
        requests.syncs_mut().give_up();
    }

    fn write_superblock(&mut self, requests: &mut Requests) -> Result<(), FlashError> {
        if self.given_up.is_some() {
            return Ok(());
        }
        // Both are there, the older one too, or else a restart takes one for lost.
        let blocks = if self.is_blank || self.superblock.epoch == 0 { 2 } else { 1 };
        for _ in 0..blocks {
            self.superblock.epoch += 1;
            let which = (self.superblock.epoch % 2) as usize;
            requests.write_at(self.layout.superblock(which), &self.superblock.write())?;
        }
        Ok(())
    }

    /// The blocks that name no checkpoint: a restart finds nothing.
    fn blank_superblocks(&self, requests: &mut Requests) {
        let blank = [0; BLOCK_BYTES];
        for which in 0..2 {
            // If this fails there is nothing left to try.
            let _ = requests.write_at(self.layout.superblock(which), &blank);
        }
    }

    /// Ends the run in order: all that a restart needs is written.
    ///
    /// # Errors
    /// When the device cannot be written.
    pub fn end_run(&mut self, requests: &mut Requests) -> Result<(), FlashError> {
        // What is to be trusted is there before the block that says so.
        requests.sync_now()?;
        self.superblock.clean = true;
        self.write_superblock(requests)?;
        Ok(requests.sync_now()?)
    }
}

struct Gathering<'a> {
    restart: &'a mut Restart,
    requests: &'a mut Requests,
}

impl Parts for Gathering<'_> {
    fn begin(&mut self, rewinds: bool) {
        self.restart.write_records(self.requests);
        if rewinds {
            self.restart.journal.rewind();
        }
        self.restart.begin_checkpoint();
    }

    fn add_segment(&mut self, filled: Filled) {
        if let Some(gathered) = &mut self.restart.gathered {
            gathered.add_segment(filled);
        }
    }

    fn add_item(&mut self, hash: u64, place: LogPlace) {
        if let Some(gathered) = &mut self.restart.gathered {
            gathered.add_item(hash, place);
        }
    }
}
