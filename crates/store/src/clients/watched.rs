//! Watched keys (`WATCH`): keys that clients watch for a transaction.

use std::collections::BTreeMap;

use super::TooMuch;
use super::registry::Slot;
use super::state_budget::StateBudget;
use crate::engine::{Change, DATABASES};

/// Keys that one client watches.
#[derive(Debug, Default)]
struct Watch {
    /// One of the keys has changed.
    dirty: bool,
    /// Database, key, and whether it was there.
    keys: Vec<(u8, Box<[u8]>, bool)>,
}

/// The clients that watch each key, by database, and the keys that each client watches.
#[derive(Debug, Default)]
pub struct Watched {
    watchers: [BTreeMap<Box<[u8]>, Vec<Slot>>; DATABASES as usize],
    clients: BTreeMap<Slot, Watch>,
}

impl Watched {
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// A client watches a key from now on, which is `present` or not.
    pub(super) fn watch(
        &mut self,
        state: &mut StateBudget,
        slot: Slot,
        (db, key): (u8, &[u8]),
        present: bool,
    ) -> Result<(), TooMuch> {
        let keys = &mut self.watchers[usize::from(db)];
        if keys.get(key).is_some_and(|slots| slots.contains(&slot)) {
            return Ok(());
        }
        state.take(key.len())?;
        keys.entry(key.into()).or_default().push(slot);
        self.clients.entry(slot).or_default().keys.push((db, key.into(), present));
        Ok(())
    }

    /// A client watches nothing any more; whether it did.
    pub(super) fn unwatch(&mut self, state: &mut StateBudget, slot: Slot) -> bool {
        let Some(watch) = self.clients.remove(&slot) else { return false };
        for (db, key, _) in watch.keys {
            state.give_back(key.len());
            let keys = &mut self.watchers[usize::from(db)];
            if let Some(slots) = keys.get_mut(&key) {
                slots.retain(|watcher| *watcher != slot);
                if slots.is_empty() {
                    keys.remove(&key);
                }
            }
        }
        true
    }

    /// The keys that a client watches.
    pub fn keys_of(&self, slot: Slot) -> impl Iterator<Item = (u8, &[u8])> {
        let keys = self.clients.get(&slot).map_or(&[][..], |watch| &watch.keys);
        keys.iter().map(|(db, key, _)| (*db, &**key))
    }

    /// Whether something that a client watches has changed.
    pub fn is_dirty(&self, slot: Slot) -> bool {
        self.clients.get(&slot).is_some_and(|watch| watch.dirty)
    }

    /// A key has changed.
    pub(super) fn mark(&mut self, change: Change, db: u8, key: &[u8]) {
        if let Change::Flushed(db) = change {
            return self.mark_flushed(db);
        }
        for slot in self.watchers[usize::from(db)].get(key).into_iter().flatten() {
            if let Some(watch) = self.clients.get_mut(slot) {
                watch.dirty = true;
            }
        }
    }

    /// Keys that were not there when they were watched, and have not come since, do not go with a flush either.
    fn mark_flushed(&mut self, db: Option<u8>) {
        for watch in self.clients.values_mut() {
            let gone = |(at, _, present): &(u8, Box<[u8]>, bool)| *present && db.is_none_or(|db| db == *at);
            watch.dirty |= watch.keys.iter().any(gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_concerns_those_who_watch_the_key_in_its_database() {
        let (mut watched, mut state) = (Watched::default(), StateBudget::default());
        watched.watch(&mut state, 1, (0, b"k"), true).unwrap();
        let once = state.bytes();
        watched.watch(&mut state, 1, (0, b"k"), true).unwrap();
        assert_eq!(state.bytes(), once, "watched once");
        watched.watch(&mut state, 2, (1, b"k"), true).unwrap();
        watched.watch(&mut state, 3, (0, b"other"), true).unwrap();
        watched.mark(Change::Changed, 0, b"k");
        assert_eq!([1, 2, 3].map(|slot| watched.is_dirty(slot)), [true, false, false]);
        assert_eq!(watched.keys_of(2).collect::<Vec<_>>(), [(1, &b"k"[..])]);
        assert!([1, 2, 3].map(|slot| watched.unwatch(&mut state, slot)) == [true; 3]);
        assert!(!watched.unwatch(&mut state, 1) && watched.is_empty() && !watched.is_dirty(1));
        assert_eq!((state.bytes(), watched.keys_of(1).count()), (0, 0));
    }

    #[test]
    fn a_flush_concerns_keys_that_were_there() {
        let (mut watched, mut state) = (Watched::default(), StateBudget::default());
        watched.watch(&mut state, 1, (0, b"there"), true).unwrap();
        watched.watch(&mut state, 2, (0, b"not there"), false).unwrap();
        watched.mark(Change::Flushed(Some(1)), 0, b"");
        assert!(!watched.is_dirty(1));
        watched.mark(Change::Flushed(None), 0, b"");
        assert!(watched.is_dirty(1) && !watched.is_dirty(2));
    }
}
