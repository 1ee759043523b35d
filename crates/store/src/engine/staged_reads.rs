//! Use of staged items by a request: a read leaves the item on flash,
//! unless it is hot; a change of its key brings it into memory first.

use crate::flash::format::ITEM_HEADER_BYTES;
use tiermem_model::advisor::Outcome;
use tiermem_policy::Id;

use super::contents::{Contents, entry};
use super::expiry::note_fields;
use super::item::{HEADER_BYTES, Header};
use super::staged::Staged;
use super::{Hit, ValueKind};

/// The staged items of an engine.
#[derive(Debug)]
pub(super) struct StagedReads<'a> {
    contents: &'a mut Contents,
}

impl Contents {
    /// The items read from flash for the current request.
    #[inline]
    pub fn staged_reads(&mut self) -> StagedReads<'_> {
        StagedReads { contents: self }
    }
}

impl<'a> StagedReads<'a> {
    /// Whether anything is staged for a key that is not in memory. An earlier key of the same request may have driven it out
    /// since it was seen there: then it is read now, and waited for.
    #[inline]
    pub fn has(&mut self, db: u8, key: &[u8], hash: u64) -> bool {
        if self.contents.has_flash() && self.contents.shard.memory().keys().place_below(hash).is_some() {
            self.contents.flash_reads().recall(db, key);
        }
        !self.contents.staged.is_empty()
    }

    /// Where this key's item stands, if there is one.
    fn look(&mut self, db: u8, key: &[u8], hash: u64) -> Option<usize> {
        if self.has(db, key, hash) { self.find(db, key, hash) } else { None }
    }

    /// The staged item of this key, if its time is not over and its database was not flushed since.
    fn find(&mut self, db: u8, key: &[u8], hash: u64) -> Option<usize> {
        let Contents { staged, items, shard, .. } = &mut *self.contents;
        let found = staged.find(hash)?;
        let item = staged.get(found)?;
        let header = item.item.header;
        if item.hash != hash || header.db != db || item.item.key() != key {
            return None;
        }
        let expired = header.expires_at_ms != 0 && header.expires_at_ms <= shard.now().unix_ms;
        let flushed = items.flash.as_ref().is_some_and(|flash| flash.is_flushed(&header));
        if !expired && !flushed {
            return Some(found);
        }
        staged.remove(found);
        if self.contents.forget_on_flash(db, hash) {
            self.contents.keys.remove(db, None);
            self.contents.counters.expired += u64::from(expired);
        }
        if expired {
            self.contents.tenants.removed(db, key, hash);
        }
        None
    }

    /// Reads a staged item as a look-up does; it moves into memory if it is hot.
    pub fn get(mut self, db: u8, key: &[u8], hash: u64) -> Option<Hit<'a>> {
        let found = self.look(db, key, hash);
        let outcome = if found.is_some() { Outcome::Below } else { Outcome::Nowhere };
        let Contents { tenants, shard, .. } = &mut *self.contents;
        tenants.looked_up((db, key, hash), outcome, shard);
        let at = found?;
        self.contents.counters.hits += 1;
        let staged = self.contents.staged.get(at)?;
        let bytes = staged.item.header.item_len() - ITEM_HEADER_BYTES + HEADER_BYTES;
        if self.contents.shard.hit_below(hash, bytes as u64)
            && let Some(id) = self.move_into_memory(db, key, hash)
        {
            self.contents.shard.promoted();
            return Some(self.contents.hit(id));
        }
        // Where memory had no room for it, it stands elsewhere among the staged now.
        let at = self.find(db, key, hash)?;
        self.contents.staged.hit(at)
    }

    /// Reads a staged item without counting.
    pub fn peek(mut self, db: u8, key: &[u8], hash: u64) -> Option<Hit<'a>> {
        let at = self.look(db, key, hash)?;
        self.contents.staged.hit(at)
    }

    /// When a staged item expires.
    pub fn expires_at(&mut self, db: u8, key: &[u8], hash: u64) -> Option<Option<u64>> {
        let at = self.look(db, key, hash)?;
        let at_ms = self.contents.staged.get(at)?.item.header.expires_at_ms;
        Some((at_ms != 0).then_some(at_ms))
    }

    /// Removes a staged item; whether it was there.
    pub fn remove(&mut self, db: u8, key: &[u8], hash: u64) -> bool {
        let Some(at) = self.look(db, key, hash) else { return false };
        self.contents.staged.remove(at);
        if self.contents.forget_on_flash(db, hash) {
            self.contents.keys.remove(db, None);
        }
        true
    }

    /// Copies a staged item into memory. It stays on flash as well, and its header says so.
    #[cold]
    pub fn move_into_memory(&mut self, db: u8, key: &[u8], hash: u64) -> Option<Id> {
        let at = self.find(db, key, hash)?;
        let contents = &mut *self.contents;
        let Staged { item, .. } = contents.staged.remove(at);
        let header = Header {
            value_len: item.header.value_len,
            key_len: item.header.key_len,
            db,
            kind: ValueKind::from_byte(item.header.kind),
            unchanged: true,
        };
        let expires_at_ms = (item.header.expires_at_ms != 0).then_some(item.header.expires_at_ms);
        let tenant = contents.tenant_for(db, key);
        let Ok((id, loc)) = contents.enter(&entry(hash, header, expires_at_ms, tenant), db) else {
            contents.staged.push(Staged { hash, item });
            return None;
        };
        if contents.shard.memory().keys().place_below(hash).is_some() {
            // It was counted when it lay on flash alone.
            contents.keys.remove(db, None);
        }
        contents.write_item(loc, header, (key, item.value()), expires_at_ms);
        note_fields(contents, id);
        Some(id)
    }
}
