//! Bytes of items in memory, and the facts that a shard asks for about them.

use crate::flash::Flash;
use crate::tiers::{Losing, Tiers};
use tiermem_base::hash::KeyHasher;
use tiermem_policy::Id;
use tiermem_policy::ladder::Loc;
use tiermem_policy::log::ITEM_HEADER_BYTES;
use tiermem_policy::shard::{Items, Lying, Sizes};

use super::item::{HEADER_BYTES, Header};

/// The tiers, the flash tier below them, and how keys are hashed.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) tiers: Tiers,
    pub(super) hasher: KeyHasher,
    pub(super) flash: Option<Box<Flash>>,
}

impl Memory {
    #[inline]
    pub(super) fn header(&self, loc: Loc) -> Header {
        Header::read(self.tiers.bytes(loc, 0, HEADER_BYTES))
    }

    /// The hash of a key.
    #[inline]
    pub(super) fn hash(&self, db: u8, key: &[u8]) -> u64 {
        self.hasher.hash(db, key)
    }

    /// The value of the item at `loc`.
    #[inline]
    pub(super) fn value(&self, loc: Loc, header: Header) -> &[u8] {
        self.tiers.bytes(loc, header.value_offset(), header.value_len as usize)
    }

    /// The key of the item at `loc`.
    #[inline]
    pub(super) fn key(&self, loc: Loc, header: Header) -> &[u8] {
        self.tiers.bytes(loc, HEADER_BYTES, usize::from(header.key_len))
    }
}

impl Items for Memory {
    /// A database and a key in it.
    type Key<'a> = (u8, &'a [u8]);

    /// Charges the reading of header and key where they are not the ones: what is found is charged with its value.
    #[inline]
    fn has_key(&self, _: Id, loc: Loc, (db, key): (u8, &[u8])) -> bool {
        let header = self.header(loc);
        let same = usize::from(header.key_len) == key.len()
            && header.db == db
            && self.tiers.bytes(loc, HEADER_BYTES, key.len()) == key;
        if !same {
            self.tiers.charge_read(loc.tier, header.value_offset());
        }
        same
    }

    #[inline]
    fn hash(&self, _: Id, loc: Loc) -> Option<u64> {
        let header = self.header(loc);
        let hash = self.hasher.hash(header.db, self.key(loc, header));
        let is_there = !self.tiers.keeps(loc.tier) || self.tiers.are_there(loc, header.item_len());
        is_there.then_some(hash)
    }

    #[inline]
    fn bytes(&self, _: Id, loc: Loc) -> Sizes {
        let here = self.header(loc).item_len() as u64;
        Sizes { here, below: here - HEADER_BYTES as u64 + u64::from(ITEM_HEADER_BYTES) }
    }

    #[inline]
    fn is_unchanged(&self, _: Id, loc: Loc) -> bool {
        self.header(loc).unchanged
    }

    fn note_changed(&mut self, _: Id, loc: Loc) {
        Header::note_changed(self.tiers.bytes_mut(loc, HEADER_BYTES));
    }

    fn lying_at(&self, segment: u32, sequence: u32, at: u32) -> Option<Lying> {
        self.flash.as_ref()?.lying_at(segment, sequence, at)
    }

    #[inline]
    fn bring_near(&self, _: Id, loc: Loc) {
        self.tiers.prefetch(loc, HEADER_BYTES);
    }
}
