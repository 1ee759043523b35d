//! Removals that power loss may still undo, for clients that change the same key meanwhile.
//!
//! A client that removes a copy from flash waits for the sync that makes the removal durable. Another client
//! that changes the key before that sync finds nothing on flash to remove. Its reply must still wait for the
//! same sync: power loss would bring the copy back, and with it a value older than the acknowledged change.

use std::collections::HashSet;

use super::journal::HASH_MASK;

/// Removals remembered between two syncs. Where there are more, every change waits for the sync, so memory stays bounded.
const HASHES_MAX: usize = 1 << 16;
/// Capacity that a set may keep for the next sync, in entries.
const CAPACITY_KEPT: usize = 1 << 12;

/// The keys with a removal that one sync makes durable, by the bits of the hash that the journal has.
#[derive(Debug, Default)]
struct Removed {
    hashes: HashSet<u64>,
    /// Any key may be among them: a database was flushed, or there were too many.
    all: bool,
}

impl Removed {
    fn has(&self, hash: u64) -> bool {
        self.all || self.hashes.contains(&(hash & HASH_MASK))
    }

    fn add(&mut self, hash: u64) {
        if self.all {
            return;
        }
        self.hashes.insert(hash & HASH_MASK);
        if self.hashes.len() == HASHES_MAX {
            self.add_all();
        }
    }

    fn add_all(&mut self) {
        self.all = true;
        self.hashes.clear();
    }

    fn clear(&mut self) {
        self.all = false;
        self.hashes.clear();
        self.hashes.shrink_to(CAPACITY_KEPT);
    }
}

/// The sync that a removal waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// The one under way.
    UnderWay,
    /// The one after it.
    Next,
}

/// The removals that are not durable.
#[derive(Debug, Default)]
pub struct Removals {
    /// Journaled before the sync under way began.
    syncing: Removed,
    /// Since.
    waiting: Removed,
}

impl Removals {
    /// Notes that a copy of the key of this hash was removed.
    pub fn add(&mut self, hash: u64) {
        self.waiting.add(hash);
    }

    /// Notes that a database, or all of them, was flushed.
    pub fn add_all(&mut self) {
        self.waiting.add_all();
    }

    /// The sync that makes the last removal of a key of this hash durable; `None` where all are.
    #[inline]
    pub fn find(&self, hash: u64) -> Option<Sync> {
        match (self.waiting.has(hash), self.syncing.has(hash)) {
            (true, _) => Some(Sync::Next),
            (false, true) => Some(Sync::UnderWay),
            (false, false) => None,
        }
    }

    /// A sync begins. None is under way.
    pub fn begin_sync(&mut self) {
        debug_assert!(self.syncing.hashes.is_empty() && !self.syncing.all, "one sync at a time");
        std::mem::swap(&mut self.syncing, &mut self.waiting);
    }

    /// The sync under way is done.
    pub fn end_sync(&mut self) {
        self.syncing.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys differ here in the first 40 bits of their hash.
    const A: u64 = 7 << 24;
    const B: u64 = 8 << 24;

    #[test]
    fn a_removal_is_met_until_the_sync_behind_it_is_done() {
        let mut removals = Removals::default();
        assert_eq!(removals.find(A | 99), None);
        removals.add(A);
        assert_eq!((removals.find(A | 99), removals.find(B)), (Some(Sync::Next), None));
        removals.begin_sync();
        removals.add(B);
        assert_eq!((removals.find(A | 99), removals.find(B)), (Some(Sync::UnderWay), Some(Sync::Next)));
        removals.add(A);
        assert_eq!(removals.find(A | 99), Some(Sync::Next), "the last one counts");
        removals.end_sync();
        assert_eq!((removals.find(A | 99), removals.find(B)), (Some(Sync::Next), Some(Sync::Next)));
        removals.begin_sync();
        removals.end_sync();
        assert_eq!((removals.find(A | 99), removals.find(B)), (None, None));
    }

    #[test]
    fn a_flush_or_too_many_concern_every_key_until_they_are_durable() {
        let mut removals = Removals::default();
        removals.add_all();
        removals.begin_sync();
        assert_eq!(removals.find(A), Some(Sync::UnderWay));
        removals.end_sync();
        assert_eq!(removals.find(A), None);
        (0..HASHES_MAX as u64 - 1).for_each(|key| removals.add(key << 24));
        assert_eq!(removals.find(u64::MAX), None);
        removals.add(u64::MAX << 25);
        assert_eq!(removals.find(u64::MAX), Some(Sync::Next));
        assert!(removals.waiting.hashes.is_empty(), "they are not needed any more");
        removals.begin_sync();
        removals.end_sync();
        assert_eq!((removals.find(A), removals.find(u64::MAX)), (None, None));
        assert!(removals.syncing.hashes.capacity() <= 2 * CAPACITY_KEPT);
    }
}
