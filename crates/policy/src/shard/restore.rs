//! Restore: items that are there already after a restart; and the removal of all items.

use super::checkpoint::Checkpoints;
use super::journal::Journal;
use super::log::LogWork;
use super::{Entry, Shard};
use crate::Id;
use crate::index::{Found, Index};
use crate::ladder::Loc;
use crate::log::{Filled, Log, LogConfig, LogPlace};

impl Shard {
    /// Takes up an item that lies in memory already, in a place of `place_bytes`. `None`, and nothing done, where that place
    /// cannot be one, or there is no memory for the item's metadata. Before anything enters; places of a page in ascending order.
    pub fn restore(&mut self, loc: Loc, place_bytes: u64, entry: &Entry) -> Option<Id> {
        self.contents.memory_mut().adopt(loc, place_bytes, entry, self.now)
    }

    /// Puts a log below memory, with the items that it holds. Call it before any item enters.
    pub fn attach_log(&mut self, state: LogState) {
        self.contents.memory_mut().keys_mut().begin_with(state.index);
        let (used, needs_other_half) = state.journal;
        let journal = Journal::new(state.log.config().journal_records, used, needs_other_half);
        let checkpoints = Checkpoints::new(journal, state.checkpoint);
        self.contents.attach(LogWork::new(state.log, checkpoints, self.ladder().residents().levels()));
    }

    /// Removes all items in memory and the whole index, at once. `false`, and nothing done, while a place is pinned.
    pub fn clear(&mut self) -> bool {
        let cleared = self.contents.memory_mut().clear();
        if cleared {
            self.under_way.clear();
        }
        cleared
    }
}

/// The state of a log when it is put below memory: empty, or as it was before a restart.
#[derive(Debug)]
pub struct LogState {
    log: Log,
    index: Index,
    /// Segments of the last checkpoint.
    checkpoint: Vec<u32>,
    /// Records in the half of the journal that is in use, and whether the records of the other one count too.
    journal: (u64, bool),
}

impl LogState {
    /// An empty log.
    ///
    /// # Panics
    /// Where [`Log::new`] does; callers check their configuration.
    pub fn new(config: LogConfig) -> Self {
        LogState {
            log: Log::new(config),
            index: Index::default(),
            checkpoint: Vec::new(),
            journal: (0, false),
        }
    }

    /// An item lies at `place`, whatever was there for its hash.
    pub fn put(&mut self, hash: u64, place: LogPlace) {
        self.index.put_log(hash, place);
    }

    /// Removes the item of this hash.
    pub fn remove(&mut self, hash: u64) {
        self.index.remove_log(hash);
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        self.index = Index::default();
    }

    /// Items that lie there.
    pub fn items(&self) -> u64 {
        self.index.log_len()
    }

    /// Sets the `records` in the half of the journal that is in use; `needs_other_half`: the records of the other one count too.
    pub fn set_journal(&mut self, records: u64, needs_other_half: bool) {
        self.journal = (records, needs_other_half);
    }

    /// Ends the restore when all items were put. The accounts follow from the items, from the segments that were filled, those of
    /// the last `checkpoint`, and the number of the next filling. Items that name no filled segment are dropped.
    pub fn settle(&mut self, mut filled: Vec<Filled>, checkpoint: &[u32], next_sequence: u32) {
        self.checkpoint = checkpoint.to_vec();
        self.checkpoint.retain(|&segment| self.log.restore_taken(segment));
        // The oldest filling first.
        filled.sort_by_key(|filled| filled.sequence);
        filled.into_iter().for_each(|filled| _ = self.log.restore_segment(filled));
        let mut astray = Vec::new();
        self.index.scan(0, usize::MAX, |hash, found| {
            if let Found::Log(place) = found
                && !self.log.restore_item(place)
            {
                astray.push(hash);
            }
        });
        astray.into_iter().for_each(|hash| self.remove(hash));
        self.log.end_restoring();
        self.log.restore_sequence(next_sequence.saturating_sub(1));
    }
}
