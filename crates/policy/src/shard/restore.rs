//! Items that are there already after a restart, and the end of all of them.

use super::log::LogWork;
use super::{Entry, Shard};
use crate::Id;
use crate::index::{Found, Index};
use crate::ladder::Loc;
use crate::log::{Log, LogConfig, LogPlace};

impl Shard {
    /// Takes up an item that lies in memory already, in a place of `place_bytes`. `None`, and nothing done, where that place
    /// cannot be one, or there is no memory for the item's metadata. Before anything enters; places of a page in ascending order.
    pub fn restore(&mut self, loc: Loc, place_bytes: u64, entry: &Entry) -> Option<Id> {
        self.contents.memory.adopt(loc, place_bytes, entry, self.now)
    }

    /// Puts a log below memory, with what it holds. Before anything enters.
    pub fn attach_log(&mut self, state: LogState) {
        self.contents.memory.begin_with(state.index);
        self.contents.attach(LogWork::new(state.log, state.lent, self.ladder().residents().levels()));
    }

    /// Removes all items in memory and the whole index, at once. `false`, and nothing done, while a place is pinned.
    pub fn clear(&mut self) -> bool {
        let cleared = self.contents.memory.clear();
        if cleared {
            self.under_way.clear();
        }
        cleared
    }
}

/// What a log holds when it is put below memory: nothing, or what was there before a restart.
#[derive(Debug)]
pub struct LogState {
    log: Log,
    index: Index,
    /// Segments that the driver uses itself.
    lent: u32,
}

/// A segment that was filled before a restart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filled {
    /// Which one.
    pub segment: u32,
    /// The number of its filling.
    pub sequence: u32,
    /// Items appended.
    pub items: u32,
    /// Bytes used from its start.
    pub used_bytes: u32,
}

impl LogState {
    /// An empty log.
    ///
    /// # Panics
    /// As [`Log::new`]; callers check their configuration.
    pub fn new(config: LogConfig) -> Self {
        LogState { log: Log::new(config), index: Index::default(), lent: 0 }
    }

    /// An item lies at `place`, whatever was there for its hash.
    pub fn put(&mut self, hash: u64, place: LogPlace) {
        self.index.put_log(hash, place);
    }

    /// Nothing lies there for this hash any more.
    pub fn remove(&mut self, hash: u64) {
        self.index.remove_log(hash);
    }

    /// Nothing lies there at all.
    pub fn clear(&mut self) {
        self.index = Index::default();
    }

    /// Items that lie there.
    pub fn items(&self) -> u64 {
        self.index.log_len()
    }

    /// All items are told: the accounts follow from them, from the segments that were filled, those that the driver uses itself,
    /// and the number of the next filling. What names no filled segment is nowhere.
    pub fn settle(&mut self, mut filled: Vec<Filled>, taken: &[u32], next_sequence: u32) {
        self.lent = taken.iter().map(|&segment| u32::from(self.log.restore_taken(segment))).sum();
        // The oldest filling first.
        filled.sort_by_key(|filled| filled.sequence);
        for Filled { segment, sequence, items, used_bytes } in filled {
            self.log.restore_segment(segment, sequence, items, used_bytes);
        }
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
