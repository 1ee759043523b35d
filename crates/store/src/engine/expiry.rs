//! Expiry that no request asks for: keys and fields of hashes whose time is over, a piece at a time.
//!
//! The shard finds items that are due. Fields are bytes, which it does not know: it is told when the first field of a hash expires, and
//! names the hash then. What lies on flash goes when it is accessed.

use tiermem_policy::Id;

use super::contents::Contents;
use super::losses::LosesParts;
use super::{Change, ValueKind};
use crate::hash::{Hash, collect};
use crate::tiers::Losing;

/// Hashes looked at in a piece of work.
const HASHES: u32 = 64;
/// Bytes of hashes that count as another one.
const HASH_BYTES: usize = 1024;
/// After so long a hash is tried again that a reply had pinned.
const PINNED_MS: u64 = 1000;

/// What an engine does that no request asks for.
pub struct BetweenRequests<'a> {
    pub(super) contents: &'a mut Contents,
}

impl BetweenRequests<'_> {
    /// Does what is due: some expired items, and memory for the first ones. Call it when idle, at least every 100 ms. Returns whether
    /// more may have expired, for which [`Self::expire_piece`] is.
    pub fn tick(self) -> bool {
        self.contents.pinned_values().give_held();
        let more = self.contents.shard.idle();
        self.end_piece(more)
    }

    /// Takes out a few more items and fields that have expired: some tens of microseconds of work. Returns whether that was not all.
    pub fn expire_piece(self) -> bool {
        let more = self.contents.shard.expiry().piece();
        self.end_piece(more)
    }

    /// For how many milliseconds something has been due that is still there, to the tenth of a second.
    pub fn expiry_late_ms(self) -> u64 {
        self.contents.shard.expiry().late_ms()
    }

    fn end_piece(self, more: bool) -> bool {
        self.contents.carry_out();
        let more = expire_fields(self.contents) || more;
        self.contents.flash_tier().advance();
        self.contents.items.tiers.settle();
        more
    }
}

impl Contents {
    /// Notes when the first field expires of the item of a key, which is in memory, if it is a hash and any does.
    pub fn note_fields_of(&mut self, db: u8, key: &[u8]) {
        if let Some(id) = self.find(db, key, self.items.hash(db, key)) {
            note_fields(self, id);
        }
    }
}

/// Notes when the first field expires, if the item is a hash and any does.
pub(super) fn note_fields(contents: &mut Contents, id: Id) {
    if let Some(earliest_ms) = hash_of(contents, id).and_then(|hash| hash.earliest_ms()) {
        contents.shard.item(id).set_parts_expire_at_ms(Some(earliest_ms));
    }
}

fn hash_of(contents: &Contents, id: Id) -> Option<Hash<'_>> {
    let loc = contents.shard.ladder().residents().nodes().loc(id);
    let header = contents.items.header(loc);
    if header.kind != ValueKind::Hash {
        return None;
    }
    Hash::read(contents.items.value(loc, header)).ok()
}

fn expire_fields(contents: &mut Contents) -> bool {
    let mut work = HASHES;
    while let Some(id) = contents.shard.expiry().parts_due(&mut work) {
        let bytes = collect_fields(contents, id);
        work = work.saturating_sub((bytes / HASH_BYTES) as u32);
    }
    work == 0
}

/// Takes the expired fields out of a hash, as far as [`collect`] gets, and the hash if none is left. Returns the bytes that were
/// looked at.
fn collect_fields(contents: &mut Contents, id: Id) -> usize {
    let now_ms = contents.shard.now().unix_ms;
    let loc = contents.shard.ladder().residents().nodes().loc(id);
    let header = contents.items.header(loc);
    let key = contents.items.key(loc, header).to_vec();
    if !contents.items.tiers.are_there(loc, header.item_len()) {
        contents.drop_lost();
        return 0;
    }
    let Some(hash) = hash_of(contents, id) else { return 0 };
    let bytes = hash.used_bytes();
    if !hash.is_due(now_ms) {
        // They went when a request met them, or were given more time.
        note_fields(contents, id);
        return 0;
    }
    if !contents.shard.item(id).change_unused() {
        contents.shard.item(id).set_parts_expire_at_ms(Some(now_ms + PINNED_MS));
        return 0;
    }
    let key_hash = contents.items.hash(header.db, &key);
    contents.forget_copy(id, key_hash);
    contents.keeping.unseal_to_change(
        &mut contents.items.tiers,
        contents.shard.ladder().residents(),
        (id, loc),
    );
    let value = &mut contents.items.tiers.bytes_mut(loc, header.item_len())[header.value_offset()..];
    let left = collect(value, now_ms);
    contents.items.tiers.charge_read(loc.tier, bytes);
    contents.items.tiers.charge_write(loc.tier, bytes);
    contents.changes.note(Change::FieldsExpired, header.db, &key);
    match left {
        Ok(0) => {
            contents.tenants.removed(header.db, &key, key_hash);
            contents.forget(id, key_hash);
            contents.changes.note(Change::Removed, header.db, &key);
        }
        Ok(_) => note_fields(contents, id),
        // A damaged hash is the business of whoever asks for it.
        Err(_) => {}
    }
    bytes
}
