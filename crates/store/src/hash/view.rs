//! Reading of a hash in place.

use tiermem_base::hash::field_hash;

use super::Broken;
use super::directory::{Probe, entry_of, find, slot_at};
use super::entry::{Entry, Parts};
use super::head::Head;

/// Slots that a random choice tries before it counts fields instead.
const RANDOM_TRIES: usize = 64;

/// A field that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// When it expires, in Unix ms; 0 is never.
    pub expires_ms: u64,
    /// Bytes of its entry.
    pub entry_bytes: usize,
}

/// A blob to read.
#[derive(Clone, Copy, Debug)]
pub struct Hash<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) head: Head,
}

impl<'a> Hash<'a> {
    /// Takes bytes for a hash.
    ///
    /// # Errors
    /// When they begin as none; what is wrong further on shows when it is come upon.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Result<Self, Broken> {
        Ok(Hash { bytes, head: Head::read(bytes)? })
    }

    /// Fields, those past their time among them that were not collected: there are none unless [`Self::is_due`].
    pub fn count(&self) -> usize {
        self.head.count
    }

    /// Whether fields may be past their time.
    #[inline]
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.head.is_due(now_ms)
    }

    /// No field expires before this Unix time in ms; `None`: none ever does.
    #[inline]
    pub fn earliest_ms(&self) -> Option<u64> {
        (self.head.earliest_ms != 0).then_some(self.head.earliest_ms)
    }

    /// Whether it has a directory. Redis calls the forms `listpack` and `hashtable`.
    pub fn is_table(&self) -> bool {
        self.head.table.is_some()
    }

    /// Bytes from the start of the blob to the end of the entries.
    pub fn used_bytes(&self) -> usize {
        self.head.used
    }

    /// Bytes of holes among the entries.
    pub fn dead_bytes(&self) -> usize {
        self.head.dead()
    }

    /// Bytes of entries that are no holes.
    pub fn live_bytes(&self) -> usize {
        self.head.live_bytes()
    }

    /// Whether most of the blob is empty, so that it should be rebuilt smaller.
    pub fn is_sparse(&self) -> bool {
        let slots = self.head.table.map_or(0, |table| table.slots);
        self.bytes.len() >= 512 && (self.live_bytes() * 6 < self.bytes.len() || self.head.count * 8 < slots)
    }

    fn field(&self, entry: &Entry, parts: Parts) -> Result<Field<'a>, Broken> {
        Ok(Field {
            name: self.bytes.get(parts.field.clone()).ok_or(Broken)?,
            value: self.bytes.get(parts.value.clone()).ok_or(Broken)?,
            expires_ms: parts.expires_ms(),
            entry_bytes: entry.len(),
        })
    }

    /// The field of this name, unless its time is over.
    pub fn get(&self, name: &[u8], now_ms: u64) -> Result<Option<Field<'a>>, Broken> {
        let Some(table) = &self.head.table else {
            return self
                .fields(now_ms)
                .find(|field| field.as_ref().map_or(true, |field| field.name == name))
                .transpose();
        };
        match find(self.bytes, &self.head, table, field_hash(table.seed, name), name)? {
            Probe::Found { entry, parts, .. } if !parts.is_over(now_ms) => {
                Ok(Some(self.field(&entry, parts)?))
            }
            _ => Ok(None),
        }
    }

    /// All fields but those past their time.
    pub fn fields(&self, now_ms: u64) -> Fields<'a> {
        Fields { hash: *self, at: self.head.entries(), now_ms }
    }

    /// The field that a slot of the directory names, unless its time is over.
    pub(super) fn at_slot(&self, slot: usize, now_ms: u64) -> Result<Option<Field<'a>>, Broken> {
        let (offset, _) = slot_at(self.bytes, slot)?;
        if offset == 0 {
            return Ok(None);
        }
        let (entry, parts) = entry_of(self.bytes, &self.head, offset)?;
        if parts.is_over(now_ms) { Ok(None) } else { self.field(&entry, parts).map(Some) }
    }

    /// Any field, each as likely as another but for how slots are clustered; `below(n)` draws from `0..n`.
    pub fn random(
        &self,
        now_ms: u64,
        below: &mut dyn FnMut(u64) -> u64,
    ) -> Result<Option<Field<'a>>, Broken> {
        if let Some(table) = self.head.table {
            for _ in 0..RANDOM_TRIES {
                let slot = below(table.slots as u64) as usize;
                if let Some(field) = self.at_slot(slot, now_ms)? {
                    return Ok(Some(field));
                }
            }
        }
        // A sequence, or nearly all are past their time.
        let live = self.fields(now_ms).count() as u64;
        self.fields(now_ms).nth(below(live) as usize).transpose()
    }
}

/// The fields of a hash in the order of their entries.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    hash: Hash<'a>,
    at: usize,
    now_ms: u64,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        let used = self.hash.head.used;
        while self.at < used {
            let entry = match Entry::read(self.hash.bytes, self.at, used) {
                Ok(entry) => entry,
                Err(broken) => {
                    self.at = used;
                    return Some(Err(broken));
                }
            };
            self.at = entry.end;
            if let Some(parts) = entry.parts.clone()
                && !parts.is_over(self.now_ms)
            {
                return Some(self.hash.field(&entry, parts));
            }
        }
        None
    }
}
