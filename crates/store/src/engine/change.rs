//! Values changed or built in place: for values with an inner order,
//! such as hashes, which may be too long to be rewritten at each change.
//!
//! A change keeps the key's expiry and counts as an access. The caller that makes a change
//! [notes](super::Changes::note) it. A move of the item under way is aborted. A value that a reply
//! has pinned is never changed: it is copied first, and the reply continues with the old bytes.

use tiermem_policy::shard::Entered;

use super::contents::{Contents, entry};
use super::item::{HEADER_BYTES, Header};
use super::losses::LosesParts;
use super::{Change, ItemRef, StoreError, ValueKind};

/// A value to be changed.
#[derive(Debug)]
pub struct ValueMut<'a> {
    /// The value's bytes, in place.
    pub bytes: &'a mut [u8],
    /// What they are.
    pub kind: ValueKind,
    /// The item.
    pub item: ItemRef,
}

/// The values of an engine, to be changed where they lie.
#[derive(Debug)]
pub struct ValuesInPlace<'a> {
    pub(super) contents: &'a mut Contents,
}

impl<'a> ValuesInPlace<'a> {
    /// Charges the writing of a contiguous part, of `len` bytes, of an item that was just looked up.
    pub fn charge_write(&self, item: ItemRef, len: usize) {
        self.contents
            .items
            .tiers
            .charge_write(self.contents.shard.ladder().residents().nodes().loc(item.0).tier, len);
    }

    /// The value of `key`, to be changed in place without changing its length; uncharged.
    ///
    /// # Errors
    /// When the value is pinned and there is no room for a copy.
    pub fn change(mut self, db: u8, key: &[u8]) -> Result<Option<ValueMut<'a>>, StoreError> {
        self.contents.begin();
        let hash = self.contents.items.hash(db, key);
        let Some(mut id) = self.contents.find_live(db, key, hash) else { return Ok(None) };
        self.contents.counters.sets += 1;
        self.contents.forget_copy(id, hash);
        let header = self.contents.items.header(self.contents.shard.ladder().residents().nodes().loc(id));
        if !self.contents.shard.item(id).change_in_place() {
            self.build_anew(db, key, header.kind, header.value_len as usize, |old, new| {
                new.copy_from_slice(old);
            })?;
            let Some(copy) = self.contents.find_live(db, key, hash) else { return Ok(None) };
            id = copy;
        } else {
            let Contents { tenants, shard, .. } = &mut *self.contents;
            tenants.wrote(tenants.of(db, key), hash, shard.ladder().residents().place_bytes(id), shard);
        }
        let item = ItemRef(id);
        Ok(Some(ValueMut { bytes: self.change_on(item), kind: header.kind, item }))
    }

    /// The bytes that [`Self::change`] gave, once more; nothing but the value itself was changed since.
    pub fn change_on(self, item: ItemRef) -> &'a mut [u8] {
        let Contents { shard, items, keeping, .. } = self.contents;
        let loc = shard.ladder().residents().nodes().loc(item.0);
        let header = items.header(loc);
        keeping.unseal_to_change(&mut items.tiers, shard.ladder().residents(), (item.0, loc));
        &mut items.tiers.bytes_mut(loc, header.item_len())[header.value_offset()..]
    }

    /// Must be called when fields of a hash were given an expiry in place.
    pub fn note_fields(self, db: u8, key: &[u8]) {
        self.contents.note_fields_of(db, key);
    }

    /// Gives `key` a value of `len` bytes that `build` writes, told of the value that was there (none: empty). The expiry
    /// stays as it was.
    ///
    /// # Errors
    /// As [`Self::set`]. `build` was not called then.
    pub fn build(
        &mut self,
        db: u8,
        key: &[u8],
        kind: ValueKind,
        len: usize,
        build: impl FnOnce(&[u8], &mut [u8]),
    ) -> Result<(), StoreError> {
        self.contents.begin();
        self.contents.counters.sets += 1;
        self.build_anew(db, key, kind, len, build)
    }

    fn build_anew(
        &mut self,
        db: u8,
        key: &[u8],
        kind: ValueKind,
        len: usize,
        build: impl FnOnce(&[u8], &mut [u8]),
    ) -> Result<(), StoreError> {
        self.build_bytes(db, key, kind, len, build)?;
        self.contents.keep_unless_lost(db, key, self.contents.items.hash(db, key))?;
        if kind == ValueKind::Hash {
            self.contents.note_fields_of(db, key);
        }
        Ok(())
    }

    fn build_bytes(
        &mut self,
        db: u8,
        key: &[u8],
        kind: ValueKind,
        len: usize,
        build: impl FnOnce(&[u8], &mut [u8]),
    ) -> Result<(), StoreError> {
        self.contents.check_lengths(key.len(), len)?;
        let hash = self.contents.items.hash(db, key);
        let header = Header { value_len: len as u32, key_len: key.len() as u16, db, kind, unchanged: false };
        let tenant = self.contents.tenant_for(db, key);
        self.contents.tenants.wrote(
            tenant,
            hash,
            self.contents.keeping.place_len(header),
            &self.contents.shard,
        );
        let old = self.contents.find_live(db, key, hash);
        let expires_at_ms =
            old.and_then(|id| self.contents.shard.ladder().residents().nodes().expires_at_ms(id));
        let entry = entry(hash, header, expires_at_ms, tenant);
        let Some(old) = old else {
            let (_, loc) = self.contents.enter(&entry, db)?;
            self.contents.supersede(db, hash);
            build(&[], self.contents.write_head(loc, header, key));
            self.contents.keeping.seal(&mut self.contents.items.tiers, loc, header, expires_at_ms);
            self.contents.items.tiers.charge_write(loc.tier, header.item_len());
            self.contents.changes.note(Change::New, db, key);
            return Ok(());
        };
        self.contents.forget_copy(old, hash);
        let (from, was) = (
            self.contents.shard.ladder().residents().nodes().loc(old),
            self.contents.items.header(self.contents.shard.ladder().residents().nodes().loc(old)),
        );
        self.contents.items.tiers.charge_read(from.tier, was.item_len());
        if self.contents.shard.ladder().residents().place_bytes(old)
            != self
                .contents
                .shard
                .ladder()
                .residents()
                .classes()
                .place_bytes(self.contents.keeping.place_len(header))
        {
            self.contents.shard.hold(self.contents.tenants.metadata_bytes());
            self.contents.shard.replace(old, &entry, &mut self.contents.rng);
            self.contents.carry_out();
            if let Entered::Placed { loc: to, .. } = self.contents.entered() {
                self.contents.keeping.prepare(
                    &mut self.contents.items.tiers,
                    self.contents.shard.ladder().residents(),
                    to,
                    header,
                );
                let (item, new) =
                    self.contents.items.tiers.bytes_from_to(from, was.item_len(), to, header.item_len());
                let (head, value) = new.split_at_mut(header.value_offset());
                header.write(head);
                head[HEADER_BYTES..].copy_from_slice(key);
                build(&item[was.value_offset()..], value);
                self.contents.items.tiers.charge_write(to.tier, header.item_len());
                self.contents.give_up_place(old, hash);
                // The old value's seal is broken by now: there is never a choice between two.
                self.contents.keeping.seal(&mut self.contents.items.tiers, to, header, expires_at_ms);
                return Ok(());
            }
        }
        // The place is the same, or there is no second one: by way of a copy.
        let copy = self.contents.items.value(from, was).to_vec();
        let loc = self.contents.rewrite(old, &entry, db)?;
        build(&copy, self.contents.write_head(loc, header, key));
        self.contents.keeping.seal(&mut self.contents.items.tiers, loc, header, expires_at_ms);
        self.contents.items.tiers.charge_write(loc.tier, header.item_len());
        Ok(())
    }

    /// The longest value that takes no more memory than one of `value_len` bytes:
    /// places come in sizes, so a value that will grow may use all of its place.
    pub fn roomy_len(&self, key_len: usize, value_len: usize) -> usize {
        let head = HEADER_BYTES + key_len + self.contents.keeping.tail_bytes();
        let place = self.contents.shard.ladder().residents().classes().place_bytes((head + value_len) as u64)
            as usize;
        (place - head).min(self.contents.value_bytes_max).max(value_len)
    }
}
