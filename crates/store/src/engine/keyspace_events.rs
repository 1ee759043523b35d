//! Keyspace events: changes to keys, for clients that watch them, cache them, or are notified.
//!
//! Changes are recorded only while a client [wants](Changes::want) them, so an unobserved store
//! pays one test per change. The caller takes the records after each request and after each tick.

/// A change of a key.
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
    /// Fields of it expired.
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
    /// Switches the recording of changes on or off.
    pub fn want(&mut self, wanted: bool) {
        if self.wanted != wanted {
            *self = Changes { wanted, ..Changes::default() };
        }
    }

    /// Records a change if changes are wanted. A caller that has changed a value in place must call it.
    #[inline]
    pub fn note(&mut self, change: Change, db: u8, key: &[u8]) {
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

    /// Takes the changes since the last call.
    pub fn take(&mut self) -> Changes {
        let wanted = self.wanted;
        std::mem::replace(self, Changes { wanted, ..Changes::default() })
    }

    /// Whether no record waits to be taken.
    #[inline]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_noted_while_they_are_wanted_and_taken_once() {
        let mut changes = Changes::default();
        changes.note(Change::Removed, 0, b"unseen");
        assert!(changes.is_empty());
        changes.want(true);
        changes.note(Change::New, 3, b"a");
        changes.note(Change::Flushed(None), 0, b"");
        changes.want(true);
        changes.note(Change::Evicted, 1, b"bc");
        let taken = changes.take();
        let expected: [(Change, u8, &[u8]); 3] =
            [(Change::New, 3, b"a"), (Change::Flushed(None), 0, b""), (Change::Evicted, 1, b"bc")];
        assert_eq!(taken.iter().collect::<Vec<_>>(), expected);
        assert!(changes.is_empty());
        changes.note(Change::Expired, 0, b"d");
        assert!(!changes.is_empty(), "they are wanted on");
        changes.want(false);
        assert!(changes.is_empty(), "what nobody wants any more is forgotten");
    }
}
