//! What a restart must know is written here: items are announced in the journal, and superblocks name where to begin.

use tiermem_policy::index::Index;
use tiermem_policy::log::Stream;

use super::filling::Filling;
use super::journal::Record;
use super::{DATABASES, Flash, FlashError};
use crate::block::BlockError;

/// Items announced in one call: some hundred microseconds' worth.
const ANNOUNCED_MAX: usize = 4096;
/// Write errors in a row after which the device is given up.
const WRITE_ERRORS_MAX: u32 = 16;

impl Flash {
    /// Notes how a write ended.
    pub(super) fn note_write(&mut self, result: &Result<(), BlockError>) {
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
    pub(super) fn announce(&mut self, index: &Index) -> bool {
        let mut budget = ANNOUNCED_MAX;
        for at in 0..self.fillings.len() {
            while let Some(item) = self.fillings[at].next_written().filter(|_| budget > 0) {
                budget -= 1;
                // Overwritten, deleted or flushed meanwhile: announcing it would bring it back.
                let dead = item.dead || self.is_before_flush(self.fillings[at].segment, item.db);
                let current = index.find_log(item.hash).filter(|place| !dead && place.is_same(item.place));
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
        let log = &mut self.log;
        self.emptied.retain(|&(segment, appended)| {
            let safe = first > appended;
            if safe {
                log.emptied(segment);
            }
            !safe
        });
        while let Some(at) = self.fillings.iter().position(Filling::is_finished) {
            let filling = self.fillings.swap_remove(at);
            if self.spare.len() < 2 {
                self.spare.push(filling.into_bytes());
            }
        }
        budget > 0
    }

    /// Gathers a record.
    pub(super) fn record(&mut self, record: Record) {
        if !self.journal.push(record) {
            self.turn_journal();
            self.journal.push(record);
        }
    }

    /// Writes what was journaled. Called before replies are sent, so that what they say outlives the process.
    #[inline]
    pub fn commit(&mut self) {
        if self.journal.has_gathered() {
            self.write_journal();
        }
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
