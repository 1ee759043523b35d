//! Expiry that no request asks for: keys and fields of hashes whose time is over, a piece at a time.
//!
//! The shard finds items that are due. Fields are bytes, which it does not know: it is told when the first field of a hash expires, and
//! names the hash then. What lies on flash goes when it is accessed.

use tiermem_policy::Id;

use super::contents::Contents;
use super::{Change, ValueKind};
use crate::hash::{Hash, collect};

/// Hashes looked at in a piece of work.
const HASHES: u32 = 64;
/// Bytes of hashes that count as another one.
const HASH_BYTES: usize = 1024;
/// After so long a hash is tried again that a reply had pinned.
const PINNED_MS: u64 = 1000;

impl Contents {
    /// Does what is due without a request: some expired items, and memory for the first ones. Returns whether more may have expired.
    pub fn idle(&mut self) -> bool {
        let more = self.shard.idle();
        self.end_piece(more)
    }

    /// Takes out a few more of what has expired. Returns whether that was not all.
    pub fn expire_piece(&mut self) -> bool {
        let more = self.shard.expire_piece();
        self.end_piece(more)
    }

    fn end_piece(&mut self, more: bool) -> bool {
        self.carry_out();
        let more = self.expire_fields() || more;
        self.flash_tier().advance();
        self.items.tiers.settle();
        more
    }

    /// Notes when the first field expires, if the item is a hash and any does.
    pub fn note_fields(&mut self, id: Id) {
        if let Some(earliest_ms) = self.hash_of(id).and_then(|hash| hash.earliest_ms()) {
            self.shard.item(id).set_parts_expire_at_ms(Some(earliest_ms));
        }
    }

    /// The same for the item of a key, which is in memory.
    pub fn note_fields_of(&mut self, db: u8, key: &[u8]) {
        if let Some(id) = self.find(db, key, self.items.hash(db, key)) {
            self.note_fields(id);
        }
    }

    fn hash_of(&self, id: Id) -> Option<Hash<'_>> {
        let loc = self.shard.ladder().residents().nodes().loc(id);
        let header = self.items.header(loc);
        if header.kind != ValueKind::Hash {
            return None;
        }
        Hash::read(self.items.value(loc, header)).ok()
    }

    fn expire_fields(&mut self) -> bool {
        let mut work = HASHES;
        while let Some(id) = self.shard.parts_due(&mut work) {
            let bytes = self.collect_fields(id);
            work = work.saturating_sub((bytes / HASH_BYTES) as u32);
        }
        work == 0
    }

    /// Takes the expired fields out of a hash, as far as [`collect`] gets, and the hash if none is left. Returns the bytes that were
    /// looked at.
    fn collect_fields(&mut self, id: Id) -> usize {
        let now_ms = self.shard.now().unix_ms;
        let Some(hash) = self.hash_of(id) else { return 0 };
        let bytes = hash.used_bytes();
        if !hash.is_due(now_ms) {
            // They went when a request met them, or were given more time.
            self.note_fields(id);
            return 0;
        }
        if !self.shard.item(id).change_unused() {
            self.shard.item(id).set_parts_expire_at_ms(Some(now_ms + PINNED_MS));
            return 0;
        }
        let loc = self.shard.ladder().residents().nodes().loc(id);
        let header = self.items.header(loc);
        let key = self.items.key(loc, header).to_vec();
        let key_hash = self.items.hash(header.db, &key);
        self.forget_copy(id, key_hash);
        self.keeping.unseal_to_change(&mut self.items.tiers, self.shard.ladder().residents(), (id, loc));
        let value = &mut self.items.tiers.bytes_mut(loc, header.item_len())[header.value_offset()..];
        let left = collect(value, now_ms);
        self.items.tiers.charge_read(loc.tier, bytes);
        self.items.tiers.charge_write(loc.tier, bytes);
        self.changes.note(Change::FieldsExpired, header.db, &key);
        match left {
            Ok(0) => {
                self.tenants.removed(header.db, &key, key_hash);
                self.forget(id, key_hash);
                self.changes.note(Change::Removed, header.db, &key);
            }
            Ok(_) => self.note_fields(id),
            // A damaged hash is the business of whoever asks for it.
            Err(_) => {}
        }
        bytes
    }
}
