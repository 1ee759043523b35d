//! Flash reads for requests, before they run. The caller asks [`FlashReads::seek`] for each
//! key of a request whether the flash tier must be read for it, and starts those reads. Once
//! all are done, it stages the items ([`FlashReads::stage`]) and runs the request, which
//! finds them as if they were in memory ([`StagedReads`](super::staged_reads::StagedReads)).

use std::task::Waker;

use crate::flash::FetchId;
use tiermem_policy::index::Found;
use tiermem_policy::shard;

use super::contents::Contents;
use super::staged::Staged;

/// A key that lies on flash: what to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashKey {
    below: shard::Away,
    /// Its database, where it was asked for by its key.
    db: Option<u8>,
}

impl FlashKey {
    /// The hash of its key; of one that a scan met only the first 40 bits.
    pub fn hash(&self) -> u64 {
        self.below.hash
    }

    /// Whether both mean the same bytes, however often they were hit.
    pub fn is_same(&self, other: &FlashKey) -> bool {
        self.below.is_same(&other.below)
    }
}

/// The flash tier of an engine, to be read; where there is none, nothing is to be read.
#[derive(Debug)]
pub struct FlashReads<'a> {
    contents: &'a mut Contents,
}

impl Contents {
    /// The flash tier, to be read.
    #[inline]
    pub fn flash_reads(&mut self) -> FlashReads<'_> {
        FlashReads { contents: self }
    }
}

impl FlashReads<'_> {
    /// Makes a step of the shard if one is due: before it is asked where a request's keys lie.
    #[inline]
    pub fn prepare(&mut self) {
        self.contents.prepare();
    }

    /// Whether the flash tier must be read before a request that looks at `key` can run.
    #[inline]
    pub fn seek(&self, db: u8, key: &[u8]) -> Option<FlashKey> {
        self.contents.items.flash.as_ref()?;
        let hash = self.contents.items.hash(db, key);
        let below = self.contents.shard.seek(hash, (db, key), &self.contents.items)?;
        Some(FlashKey { below, db: Some(db) })
    }

    /// Asks for an item. The question ends with [`Self::stage`] or [`Self::cancel`].
    pub fn ask(&mut self, away: FlashKey) -> Option<FetchId> {
        Some(self.contents.items.flash.as_mut()?.ask(&away.below))
    }

    /// Whether the answer is there; if not, `waker` is woken when it is.
    pub fn is_answered(&mut self, id: FetchId, waker: &Waker) -> bool {
        self.contents.items.flash.as_mut().is_none_or(|flash| flash.is_ready(id, Some(waker)))
    }

    /// Takes an answer that is there, for the request that runs next. `false`: the item lies elsewhere by now, seek again.
    pub fn stage(&mut self, away: FlashKey, id: FetchId) -> bool {
        let Some(flash) = &mut self.contents.items.flash else { return true };
        let is_current = self.contents.shard.stage(&away.below) == shard::Staged::Here;
        match flash.take(id) {
            Some(item) if is_current => self.contents.staged.push(Staged { hash: item.header.hash, item }),
            // What was promised is not there: lost in a crash, or damaged.
            None if is_current => {
                flash.count_lost();
                let db = away.db.unwrap_or_else(|| self.contents.keys.fullest());
                self.give_up_below(db, away.below.hash);
            }
            _ => return false,
        }
        true
    }

    /// An item is not where the flash tier should have it.
    fn give_up_below(&mut self, db: u8, hash: u64) {
        let counted = self.contents.forget_on_flash(db, hash);
        if counted && !self.contents.shard.device().note_lost(hash, &mut self.contents.items) {
            self.contents.keys.remove(db, None);
        }
    }

    /// Ends the request that staged items were for.
    #[inline]
    pub fn unstage(&mut self) {
        if !self.contents.staged.is_empty() {
            self.contents.staged.clear();
        }
    }

    /// An answer is not wanted any more.
    pub fn cancel(&mut self, id: FetchId) {
        if let Some(flash) = &mut self.contents.items.flash {
            flash.cancel(id);
        }
    }

    /// Stages `key`, waiting for the device: for callers that have nothing else to do.
    pub fn resolve(&mut self, db: u8, key: &[u8]) {
        self.contents.prepare();
        self.recall(db, key);
    }

    /// Stages `key` if it lies on flash alone.
    pub(super) fn recall(&mut self, db: u8, key: &[u8]) {
        while let Some(away) = self.seek(db, key) {
            if self.contents.staged.find(away.hash()).is_some() {
                return;
            }
            let Some(id) = self.ask(away) else { return };
            while !self.is_answered(id, Waker::noop()) {
                self.contents.flash_tier().wait();
            }
            self.stage(away, id);
        }
    }

    /// The keys to be read before a scan of about `count` keys from `cursor`.
    pub fn seek_scan(&self, cursor: u64, count: usize) -> Vec<FlashKey> {
        let mut away = Vec::new();
        if let Some(log) = self.contents.shard.log() {
            self.contents.shard.memory().keys().entries(cursor, count.max(1), |hash, found| {
                if let Found::Log(place) = found {
                    away.push(FlashKey { below: log.away(hash, place), db: None });
                }
            });
        }
        away
    }
}
