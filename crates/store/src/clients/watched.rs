//! Keys that clients watch for a transaction.

use std::collections::BTreeMap;

use super::{Clients, Slot, TooMuch};
use crate::engine::{Change, DATABASES};

/// Who watches a key, for each database.
#[derive(Debug, Default)]
pub(super) struct Watched([BTreeMap<Box<[u8]>, Vec<u64>>; DATABASES as usize]);

impl Watched {
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeMap::is_empty)
    }
}

impl Clients {
    /// A client watches a key from now on, which is `present` or not.
    pub fn watch(&mut self, slot: Slot, db: u8, key: &[u8], present: bool) -> Result<(), TooMuch> {
        let id = self.entry(slot).id;
        let watchers = self.watched.0[usize::from(db)].get(key);
        if watchers.is_some_and(|ids| ids.contains(&id)) {
            return Ok(());
        }
        self.remember(key.len())?;
        self.watched.0[usize::from(db)].entry(key.into()).or_default().push(id);
        self.entry_mut(slot).watching.push((db, key.into(), present));
        self.update_attention();
        Ok(())
    }

    /// A client watches nothing any more.
    pub fn unwatch(&mut self, slot: Slot) {
        let entry = self.entry_mut(slot);
        entry.dirty = false;
        let (id, watching) = (entry.id, std::mem::take(&mut entry.watching));
        if watching.is_empty() {
            return;
        }
        for (db, key, _) in watching {
            self.unremember(key.len());
            let keys = &mut self.watched.0[usize::from(db)];
            if let Some(ids) = keys.get_mut(&key) {
                ids.retain(|watcher| *watcher != id);
                if ids.is_empty() {
                    keys.remove(&key);
                }
            }
        }
        self.update_attention();
    }

    /// What a client watches.
    pub fn watching(&self, slot: Slot) -> impl Iterator<Item = (u8, &[u8])> {
        self.entry(slot).watching.iter().map(|(db, key, _)| (*db, &**key))
    }

    /// Whether something that a client watches has changed.
    pub fn is_dirty(&self, slot: Slot) -> bool {
        self.entry(slot).dirty
    }

    pub(super) fn mark_watchers(&mut self, change: Change, db: u8, key: &[u8]) {
        if let Change::Flushed(db) = change {
            return self.mark_all_watchers(db);
        }
        let keys = &self.watched.0[usize::from(db)];
        if keys.is_empty() {
            return;
        }
        for id in keys.get(key).cloned().unwrap_or_default() {
            if let Some(slot) = self.find(id) {
                self.entry_mut(slot).dirty = true;
            }
        }
    }

    /// Keys that were not there when they were watched, and have not come since, do not go with a flush either.
    fn mark_all_watchers(&mut self, db: Option<u8>) {
        for entry in &mut self.entries {
            let gone = |(at, _, present): &(u8, Box<[u8]>, bool)| *present && db.is_none_or(|db| db == *at);
            entry.dirty |= entry.watching.iter().any(gone);
        }
    }
}
