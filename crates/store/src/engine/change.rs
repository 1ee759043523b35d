//! Values that are changed where they lie, and values that are built where they will lie: for those whose bytes have an
//! inner order, such as hashes, and may be too long to be written anew at each change.
//!
//! A change keeps the key's expiry and counts as an access. Who makes one tells the engine with [`Engine::note`]. A move under way is given up, and a value that a reply has
//! pinned is never changed: it is copied first, and the reply goes on with what it had.

use super::item::{HEADER_BYTES, Header};
use super::{Change, Engine, Entered, Hit, ItemRef, StoreError, ValueKind};

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

impl Engine {
    /// Looks `key` up and counts the access, as [`Self::get`], for a caller that reads only parts of the value and has
    /// them charged with [`Self::charge_read`].
    pub fn look_up(&mut self, db: u8, key: &[u8]) -> Option<Hit<'_>> {
        self.begin();
        self.gets += 1;
        let hash = self.items.hasher.hash(db, key);
        let Some(id) = self.find_in_memory(db, key, hash) else { return self.get_staged(db, key, hash) };
        self.note_hit(db, key, hash, id);
        let loc = self.shard.ladder().residents().nodes().loc(id);
        let header = self.header(loc);
        Some(Hit { value: self.value(ItemRef(id)), kind: header.kind, item: ItemRef(id) })
    }

    /// The value of an item that was just looked up; uncharged.
    pub fn value(&self, item: ItemRef) -> &[u8] {
        if let Some(value) = self.staged_value(item) {
            return value;
        }
        let loc = self.shard.ladder().residents().nodes().loc(item.0);
        let header = self.header(loc);
        self.items.tiers.bytes(loc, header.value_offset(), header.value_len as usize)
    }

    /// Charges the reading of a contiguous part, of `len` bytes, of an item that was just looked up.
    pub fn charge_read(&self, item: ItemRef, len: usize) {
        if self.staged_value(item).is_some() {
            return;
        }
        self.items.tiers.charge_read(self.shard.ladder().residents().nodes().loc(item.0).tier, len);
    }

    /// Charges the writing of a contiguous part, of `len` bytes, of an item that was just looked up.
    pub fn charge_write(&self, item: ItemRef, len: usize) {
        self.items.tiers.charge_write(self.shard.ladder().residents().nodes().loc(item.0).tier, len);
    }

    /// The value of `key`, to be changed in place without changing its length; uncharged.
    ///
    /// # Errors
    /// When the value is pinned and there is no room for a copy.
    pub fn value_mut(&mut self, db: u8, key: &[u8]) -> Result<Option<ValueMut<'_>>, StoreError> {
        self.begin();
        let hash = self.items.hasher.hash(db, key);
        let Some(mut id) = self.find_live(db, key, hash) else { return Ok(None) };
        self.sets += 1;
        self.forget_copy(id, hash);
        let header = self.header(self.shard.ladder().residents().nodes().loc(id));
        if !self.shard.item(id).change_in_place() {
            self.build_anew(db, key, header.kind, header.value_len as usize, |old, new| {
                new.copy_from_slice(old);
            })?;
            let Some(copy) = self.find_live(db, key, hash) else { return Ok(None) };
            id = copy;
        } else {
            self.note_write(self.tenant_of(db, key), hash, self.shard.ladder().residents().place_bytes(id));
        }
        let item = ItemRef(id);
        Ok(Some(ValueMut { bytes: self.value_again_mut(item), kind: header.kind, item }))
    }

    /// The bytes that [`Self::value_mut`] gave, once more; nothing but the value itself was changed since.
    pub fn value_again_mut(&mut self, item: ItemRef) -> &mut [u8] {
        let loc = self.shard.ladder().residents().nodes().loc(item.0);
        let header = self.header(loc);
        self.unseal_to_change(item.0, loc);
        &mut self.items.tiers.bytes_mut(loc, header.item_len())[header.value_offset()..]
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
        self.begin();
        self.sets += 1;
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
        self.check_lengths(key.len(), len)?;
        let hash = self.items.hasher.hash(db, key);
        let header = Header { value_len: len as u32, key_len: key.len() as u16, db, kind, unchanged: false };
        let tenant = self.tenant_for(db, key);
        self.note_write(tenant, hash, self.place_len(header));
        let old = self.find_live(db, key, hash);
        let expires_at_ms = old.and_then(|id| self.shard.ladder().residents().nodes().expires_at_ms(id));
        let entry = self.entry(hash, header, expires_at_ms, tenant);
        let Some(old) = old else {
            let (_, loc) = self.enter(&entry, db)?;
            self.supersede(db, hash);
            build(&[], self.write_head(loc, header, key));
            self.seal_item(loc, header, expires_at_ms);
            self.items.tiers.charge_write(loc.tier, header.item_len());
            self.changes.note(Change::New, db, key);
            return Ok(());
        };
        self.forget_copy(old, hash);
        let (from, was) = (
            self.shard.ladder().residents().nodes().loc(old),
            self.header(self.shard.ladder().residents().nodes().loc(old)),
        );
        self.items.tiers.charge_read(from.tier, was.item_len());
        if self.shard.ladder().residents().place_bytes(old)
            != self.shard.ladder().residents().classes().place_bytes(self.place_len(header))
        {
            self.shard.hold(self.divider.metadata_bytes());
            self.shard.replace(old, &entry, &mut self.rng);
            self.carry_out();
            if let Entered::Placed { loc: to, .. } = self.entered() {
                self.prepare_place(to, header);
                let (item, new) = self.items.tiers.bytes_from_to(from, was.item_len(), to, header.item_len());
                let (head, value) = new.split_at_mut(header.value_offset());
                header.write(head);
                head[HEADER_BYTES..].copy_from_slice(key);
                build(&item[was.value_offset()..], value);
                self.items.tiers.charge_write(to.tier, header.item_len());
                self.give_up_place(old, hash);
                // The old value's seal is broken by now: there is never a choice between two.
                self.seal_item(to, header, expires_at_ms);
                return Ok(());
            }
        }
        // The place is the same, or there is no second one: by way of a copy.
        let copy = self.value(ItemRef(old)).to_vec();
        let loc = self.rewrite(old, &entry, db)?;
        build(&copy, self.write_head(loc, header, key));
        self.seal_item(loc, header, expires_at_ms);
        self.items.tiers.charge_write(loc.tier, header.item_len());
        Ok(())
    }

    /// Writes header and key to an item's place and returns the place of its value.
    fn write_head(&mut self, loc: tiermem_policy::ladder::Loc, header: Header, key: &[u8]) -> &mut [u8] {
        self.prepare_place(loc, header);
        let item = self.items.tiers.bytes_mut(loc, header.item_len());
        header.write(item);
        let (head, value) = item.split_at_mut(header.value_offset());
        head[HEADER_BYTES..].copy_from_slice(key);
        value
    }

    /// The longest value that costs no more memory than one of `value_len` bytes does, as far as values go: places come in
    /// sizes, and a value that will grow may as well have all of its own.
    pub fn roomy_len(&self, key_len: usize, value_len: usize) -> usize {
        let head = HEADER_BYTES + key_len + self.keeping.tail_bytes();
        let place = self.shard.ladder().residents().classes().place_bytes((head + value_len) as u64) as usize;
        (place - head).min(self.config.value_bytes_max).max(value_len)
    }

    /// A random number, for choices that a client asks for.
    pub fn draw(&mut self) -> u64 {
        self.rng.next_u64()
    }
}
