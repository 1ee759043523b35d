//! Staged items: read from flash for the current request.

use std::collections::BTreeMap;

use crate::flash::FlashItem;
use tiermem_policy::Id;

use super::{Hit, ItemRef, ValueKind};

/// Item references from here on name staged items.
const STAGED: u32 = u32::MAX - (1 << 20);

/// Up to this number the items are searched one by one; more have
/// a table of places, as a request may name thousands of keys.
const LINEAR_MAX: usize = 16;

/// An item that was read.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) hash: u64,
    pub(super) item: FlashItem,
}

/// The items, told apart by the 40 bits of their hashes that an index entry knows: there is one on flash of each.
#[derive(Debug, Default)]
pub(super) struct StagedItems {
    items: Vec<Staged>,
    /// By those bits; empty while there are few items.
    places: BTreeMap<u64, usize>,
    /// Where the search for a random key begins that a request waits for.
    random_from: Option<u64>,
}

impl StagedItems {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn push(&mut self, staged: Staged) {
        self.items.push(staged);
        if !self.places.is_empty() || self.items.len() > LINEAR_MAX {
            // The table is made when it is first worth it, and kept up from then on.
            let new = if self.places.is_empty() { 0 } else { self.items.len() - 1 };
            for (at, staged) in self.items.iter().enumerate().skip(new) {
                self.places.insert(staged.hash >> 24, at);
            }
        }
    }

    /// The place of the item with these bits.
    pub(super) fn find(&self, hash: u64) -> Option<usize> {
        if self.places.is_empty() {
            return self.items.iter().position(|staged| staged.hash >> 24 == hash >> 24);
        }
        self.places.get(&(hash >> 24)).copied()
    }

    pub(super) fn get(&self, at: usize) -> Option<&Staged> {
        self.items.get(at)
    }

    /// The item that stands here, as a look-up found it.
    pub(super) fn hit(&self, at: usize) -> Option<Hit<'_>> {
        let item = &self.items.get(at)?.item;
        let kind = ValueKind::from_byte(item.header.kind);
        Some(Hit { value: item.value(), kind, item: ItemRef(Id(STAGED + at as u32)) })
    }

    /// The value of a staged item; `None` for items in memory.
    #[inline]
    pub(super) fn value(&self, item: ItemRef) -> Option<&[u8]> {
        let at = item.0.0.checked_sub(STAGED)?;
        Some(self.items.get(at as usize)?.item.value())
    }

    /// Forgets the item of this hash.
    #[inline]
    pub(super) fn forget(&mut self, hash: u64) {
        if !self.items.is_empty()
            && let Some(at) = self.find(hash)
            && self.items[at].hash == hash
        {
            self.remove(at);
        }
    }

    /// Removes an item; the last item may take its place.
    pub(super) fn remove(&mut self, at: usize) -> Staged {
        let staged = self.items.swap_remove(at);
        if !self.places.is_empty() {
            self.places.remove(&(staged.hash >> 24));
            if let Some(moved) = self.items.get(at) {
                self.places.insert(moved.hash >> 24, at);
            }
        }
        staged
    }

    /// Where the search for a random key begins: where it began when what lies there was asked for, or here.
    pub(super) fn begin_random_search(&mut self, fresh: u64) -> u64 {
        *self.random_from.get_or_insert(fresh)
    }

    /// The next search begins elsewhere.
    pub(super) fn end_random_search(&mut self) {
        self.random_from = None;
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.places.clear();
    }
}
