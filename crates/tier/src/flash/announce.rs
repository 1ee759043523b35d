//! What a restart must know is written here: items are announced in the journal, and superblocks name where to begin.

use tiermem_policy::log::Stream;
use tiermem_policy::shard::Shard;

use super::filling::Filling;
use super::journal::Record;
use super::{DATABASES, Flash, FlashError, Moment, Purpose};
use crate::block::{BlockError, Request};

/// Items announced in one call: some hundred microseconds' worth.
const ANNOUNCED_MAX: usize = 4096;
/// Write errors in a row after which the device is given up.
const WRITE_ERRORS_MAX: u32 = 16;

/// An emptied segment: free when the survivors among the items up to a certain one are announced, and that is durable.
#[derive(Clone, Copy, Debug)]
pub struct Emptied {
    /// The segment.
    pub segment: u32,
    /// The number of the last item appended when it was emptied.
    pub appended: u64,
    /// When the last survivor was announced.
    pub announced: Option<Moment>,
}

impl Flash {
    /// Notes how a write ended.
    pub(super) fn note_write(&mut self, result: &Result<(), BlockError>) {
        self.syncs.note_write();
        match result {
            Ok(()) => self.write_errors_in_row = 0,
            Err(error) => {
                self.stats.write_errors += 1;
                self.write_errors_in_row += 1;
                if self.write_errors_in_row == WRITE_ERRORS_MAX && !self.broken {
                    self.stats.broken = true;
                    self.broken = true;
                    self.stats.last_error = Some(error.to_string());
                }
            }
        }
    }

    /// Announces items whose bytes are on the device, and takes memory back from segments that are safe. `false`: there are
    /// more to announce.
    pub(super) fn announce(&mut self, shard: &mut Shard) -> bool {
        let mut budget = ANNOUNCED_MAX;
        for at in 0..self.fillings.len() {
            self.fillings[at].release(&mut self.syncs);
            while let Some(item) = self.fillings[at].next_written().filter(|_| budget > 0) {
                budget -= 1;
                // Overwritten, deleted or flushed meanwhile: announcing it would bring it back.
                let dead = item.dead || self.is_before_flush(self.fillings[at].sequence, item.db);
                let current =
                    shard.memory().place_below(item.hash).filter(|place| !dead && place.is_same(item.place));
                if let Some(place) = current {
                    if self.journal.is_full() && self.checkpoint.as_ref().is_some_and(|it| !it.is_starved()) {
                        // What makes room there is under way, and this can wait for it.
                        break;
                    }
                    let anew = self.fillings[at].stream == Stream::Fresh;
                    self.record(Record::Add { hash: item.hash, place, db: item.db, anew });
                    self.announced[usize::from(item.db) % DATABASES] += u64::from(anew);
                }
                self.fillings[at].announced();
            }
        }
        let kept = self.fillings.iter().filter(|filling| filling.stream == Stream::Kept);
        let first = kept.filter_map(Filling::first_unannounced).min().unwrap_or(u64::MAX);
        let syncs = &mut self.syncs;
        self.emptied.retain_mut(|Emptied { segment, appended, announced }| {
            if first <= *appended {
                return true;
            }
            let announced = *announced.get_or_insert_with(|| syncs.ask());
            let safe = syncs.is_past(announced);
            if safe {
                shard.device().freed(*segment);
            }
            !safe
        });
        while let Some(at) = self.fillings.iter().position(Filling::is_finished) {
            let filling = self.fillings.swap_remove(at);
            shard.device().written(filling.segment);
            if self.spare.len() < 2 {
                self.spare.push(filling.into_bytes());
            }
        }
        budget > 0
    }

    /// Gathers a record of something that has changed.
    pub(super) fn record(&mut self, record: Record) {
        self.syncs.note_write();
        self.gather_record(record);
    }

    fn gather_record(&mut self, record: Record) {
        if !self.journal.push(record) {
            self.turn_journal();
            self.journal.push(record);
        }
    }

    /// Hands to the device what was decided and journaled. Called before replies are sent, so that what they say outlives the
    /// process; where it is to outlive the machine, they wait until [`Self::is_durable`] says so of the moment returned. It is
    /// past where nothing was removed since the last call.
    #[inline]
    pub fn commit(&mut self) -> Moment {
        self.write_records();
        let promised = match std::mem::take(&mut self.owes) {
            true => self.syncs.ask(),
            false => Moment::default(),
        };
        self.submit();
        promised
    }

    /// Whether what was promised by that moment survives whatever is asked for.
    #[inline]
    pub fn is_durable(&self, moment: Moment) -> bool {
        self.syncs.is_past(moment)
    }

    /// Writes what was journaled.
    #[inline]
    pub(super) fn write_records(&mut self) {
        if self.journal.has_gathered() {
            self.write_journal();
        }
    }

    /// Asks the device to make durable what is written, if anybody waits for that.
    pub(super) fn begin_sync(&mut self) {
        if self.syncs.is_due() {
            self.syncs.begin();
            self.syncing = self.journal.next_sequence();
            self.requests.push(Request::sync(Purpose::Sync.token()));
        }
    }

    pub(super) fn end_sync(&mut self, result: &Result<(), BlockError>) {
        self.syncs.end();
        match result {
            Ok(()) => {
                self.stats.syncs += 1;
                self.record_durable(self.syncing);
            }
            // What the kernel could not write it may have forgotten: to ask again would prove nothing.
            Err(error) => self.give_up_recovery(&error.to_string()),
        }
    }

    /// Says how far the journal is durable. That is nothing to sync for, or an idle store would never come to rest.
    pub(super) fn record_durable(&mut self, sequence: u32) {
        self.gather_record(Record::Durable { sequence });
    }

    #[cold]
    fn write_journal(&mut self) {
        let Some((offset, bytes)) = self.journal.take(&self.layout) else { return };
        if let Err(error) = self.io.write_at(offset, &bytes) {
            self.give_up_recovery(&error.to_string());
        }
        self.stats.journal_bytes += bytes.len() as u64;
        self.journal.give_back(bytes);
    }

    /// Without a journal a restart would bring dead items back: it is to find nothing.
    pub(super) fn give_up_recovery(&mut self, error: &str) {
        self.stats.write_errors += 1;
        self.stats.last_error =
            Some(format!("the journal cannot be written ({error}): a restart begins empty"));
        self.stats.unrecoverable = true;
        self.blank_superblocks();
        // Replies that waited for a sync go out now: power loss must not bring back the blocks that name what they took away.
        if self.syncs.is_wanted()
            && let Err(error) = self.io.sync()
        {
            self.stats.last_error = Some(format!("power loss may bring back what was removed ({error})"));
        }
        self.syncs.give_up();
    }

    pub(super) fn write_superblock(&mut self) -> Result<(), FlashError> {
        if self.stats.unrecoverable {
            return Ok(());
        }
        // Both are there, the older one too, or else a restart takes one for lost.
        let blocks = if self.blank || self.superblock.epoch == 0 { 2 } else { 1 };
        for _ in 0..blocks {
            self.superblock.epoch += 1;
            let which = (self.superblock.epoch % 2) as usize;
            self.io.write_at(self.layout.superblock(which), &self.superblock.write())?;
        }
        Ok(())
    }
}
