//! What happened to keys, for those who want to know: clients that watch them, cache them, or are notified.
//!
//! Nothing is noted unless [`Engine::note_changes`] asked for it, so that a store that nobody observes pays one test
//! per change. Whoever asked takes the notes after each request and after each tick.

use super::Engine;

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has a new value.
    Written {
        /// It was not there before.
        new: bool,
        /// It was given an expiry together with the value.
        expires: bool,
    },
    /// It is there, which it was not before; what it was given is noted apart.
    New,
    /// It was changed in place: what it holds is another value now.
    Changed,
    /// It lost fields whose time was over.
    FieldsExpired,
    /// It was removed by a request.
    Removed,
    /// It was given an expiry.
    Expires,
    /// Its expiry was taken away.
    Persisted,
    /// Its time was over.
    Expired,
    /// It went to make room.
    Evicted,
    /// Every key of this database went, or of all databases.
    Flushed(Option<u8>),
}

/// Changes in the order in which they happened.
#[derive(Debug, Default)]
pub struct Changes {
    wanted: bool,
    notes: Vec<(Change, u8, u32)>,
    keys: Vec<u8>,
}

impl Changes {
    /// Notes a change if anybody wants to know.
    #[inline]
    pub(super) fn note(&mut self, change: Change, db: u8, key: &[u8]) {
        if self.wanted {
            self.keep(change, db, key);
        }
    }

    #[cold]
    fn keep(&mut self, change: Change, db: u8, key: &[u8]) {
        // Keys are at most 65535 bytes long.
        self.notes.push((change, db, key.len() as u32));
        self.keys.extend_from_slice(key);
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// Each change with its database and key.
    pub fn iter(&self) -> impl Iterator<Item = (Change, u8, &[u8])> {
        let mut rest = self.keys.as_slice();
        self.notes.iter().map(move |(change, db, len)| {
            let (key, others) = rest.split_at(*len as usize);
            rest = others;
            (*change, *db, key)
        })
    }
}

impl Engine {
    /// Begins or ends the noting of changes, or lets it go on.
    pub fn note_changes(&mut self, wanted: bool) {
        if self.changes.wanted != wanted {
            self.changes = Changes { wanted, ..Changes::default() };
        }
    }

    /// Notes a change that a caller has made in place.
    pub fn note(&mut self, change: Change, db: u8, key: &[u8]) {
        self.changes.note(change, db, key);
    }

    /// What happened since the last call.
    pub fn take_changes(&mut self) -> Changes {
        let wanted = self.changes.wanted;
        std::mem::replace(&mut self.changes, Changes { wanted, ..Changes::default() })
    }

    /// Whether something happened that nobody has taken yet.
    #[inline]
    pub fn has_changes(&self) -> bool {
        !self.changes.notes.is_empty()
    }
}
