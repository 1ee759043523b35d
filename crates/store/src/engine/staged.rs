//! Items that were read from flash for the request at hand.

use std::collections::BTreeMap;

use tiermem_tier::flash::FlashItem;

/// So many are looked through one by one; more have a table of places, for a request may name thousands of keys.
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

    /// Takes an item out, whose place another may take.
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

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.places.clear();
    }
}
