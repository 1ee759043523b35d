//! Keys: which item or which place in the log a key's hash leads to, and what the index takes of tier 0.

use crate::Id;
use crate::deferred_free::DeferredFree;
use crate::index::{Found, Index};
use crate::log::LogPlace;

/// The index, and what tier 0 is charged with in addition to the ladder's own state.
#[derive(Debug, Default)]
pub struct Keys {
    index: Index,
    /// Bytes of metadata that the driver holds, and the log.
    driver_bytes: u64,
    log_bytes: u64,
}

impl Keys {
    /// Visits about `count` entries from `cursor` on, with the first 40 bits of their hashes. Returns where to go on; `None` at the
    /// end. What stays from the first call to the last is visited once, whatever comes and goes meanwhile.
    pub fn entries(&self, cursor: u64, count: usize, visit: impl FnMut(u64, Found)) -> Option<u64> {
        self.index.scan(cursor, count, visit)
    }

    /// Visits all entries, with the first 40 bits of their hashes.
    pub fn all(&self, mut visit: impl FnMut(u64, Found)) {
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            cursor = self.entries(at, usize::MAX, &mut visit);
        }
    }

    /// The part of the index that an expected look-up reads first, to bring it near: then call [`Self::foresee_entry`].
    #[inline]
    pub fn foresee_segment(&self, hash: u64) -> &impl Sized {
        self.index.segment(hash)
    }

    /// The part that it reads next: then call [`Self::foresee_item`].
    #[inline]
    pub fn foresee_entry(&self, hash: u64) -> Option<&impl Sized> {
        self.index.home(hash)
    }

    /// The item that it will probably find: half the hash must do, for the keys to compare are not near yet. Its node is the
    /// next to be read, and then its bytes.
    #[inline]
    pub fn foresee_item(&self, hash: u64) -> Option<Id> {
        self.index.find(hash, |_| true)
    }

    /// Where the log has an item with these 40 bits of its hash.
    #[inline]
    pub fn place_below(&self, hash: u64) -> Option<LogPlace> {
        self.index.find_log(hash)
    }

    /// Items that the log has.
    pub fn items_below(&self) -> u64 {
        self.index.log_len()
    }

    /// The item in memory of this hash that `is_it` tells to be the one.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl FnMut(Id) -> bool) -> Option<Id> {
        self.index.find(hash, is_it)
    }

    /// Whether this item is found under this hash.
    pub(super) fn has(&self, hash: u64, id: Id) -> bool {
        self.index.find(hash, |other| other == id).is_some()
    }

    /// An item in memory is found from now on.
    pub(super) fn insert(&mut self, hash: u64, id: Id) {
        debug_assert!(!self.has(hash, id), "an item comes in once");
        self.index.insert(hash, id);
    }

    /// Removes an item's entry: it is not found any more.
    pub(super) fn remove(&mut self, hash: u64, id: Id) {
        let found = self.index.remove(hash, id);
        assert!(found, "an item that goes is in the index");
    }

    /// The log has an item at `place` from now on; where it had another one with the same 40 bits.
    pub(super) fn put_below(&mut self, hash: u64, place: LogPlace) -> Option<LogPlace> {
        self.index.put_log(hash, place)
    }

    /// The log has nothing for this hash any more; where that was.
    pub(super) fn remove_below(&mut self, hash: u64) -> Option<LogPlace> {
        self.index.remove_log(hash)
    }

    /// The log has what this index says. Before anything enters.
    pub(super) fn begin_with(&mut self, index: Index) {
        assert!(self.index.is_empty(), "nothing was there before the log");
        self.index = index;
    }

    /// Sets the bytes of metadata that the driver holds.
    #[inline]
    pub(super) fn hold(&mut self, driver_bytes: u64) {
        self.driver_bytes = driver_bytes;
    }

    /// Sets the bytes that the log's state takes.
    pub(super) fn hold_log(&mut self, log_bytes: u64) {
        self.log_bytes = log_bytes;
    }

    /// Bytes that tier 0 is to be charged with, and by how many more the index may grow at once.
    #[inline]
    pub(super) fn charged_bytes(&self) -> (u64, u64) {
        (self.index.bytes() + self.log_bytes + self.driver_bytes, self.index.growth_bytes())
    }

    /// Forgets all keys, above and below, at once. The bytes that the driver and the log hold are still charged.
    pub(super) fn clear_into(&mut self, deferred_free: &mut DeferredFree) {
        self.index.clear_into(deferred_free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Four that have their first 40 bits in common with another, and four that have not.
    fn hash(number: u64) -> u64 {
        (number % 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) & !0xff_ffff | number
    }

    proptest! {
        /// Over any sequence of insertions and removals, in memory and in the log: what is found, where the log has it and what a
        /// walk meets equal those of a list, and the charge is the bytes of the index and of what is held beside it.
        #[test]
        fn equals_lists_of_what_is_where(
            ops in prop::collection::vec((0u8..8, 0u64..8, 0u32..1000), 1..150), count in 1usize..9,
        ) {
            let (mut keys, mut held) = (Keys::default(), (0, 0));
            let (mut here, mut below) = (BTreeSet::<(u64, Id)>::new(), BTreeMap::<u64, LogPlace>::new());
            for (number, (what, key, figure)) in ops.into_iter().enumerate() {
                let (hash, id) = (hash(key), Id(number as u32));
                // Of the log's entries there is one for the first 40 bits.
                let first_bits = hash >> 24;
                let any = here.iter().find(|entry| entry.0 == hash).copied();
                match (what, any) {
                    (0..3, _) => {
                        keys.insert(hash, id);
                        here.insert((hash, id));
                    }
                    (3, Some((_, id))) => {
                        keys.remove(hash, id);
                        here.remove(&(hash, id));
                    }
                    (4 | 5, _) => {
                        let place = LogPlace::new(figure, 1);
                        prop_assert_eq!(keys.put_below(hash, place), below.insert(first_bits, place));
                    }
                    (6, _) => prop_assert_eq!(keys.remove_below(hash), below.remove(&first_bits)),
                    (7, _) => {
                        held = (u64::from(figure), u64::from(figure) * 3);
                        keys.hold(held.0);
                        keys.hold_log(held.1);
                    }
                    _ => {}
                }
                for &(hash, id) in &here {
                    prop_assert_eq!(keys.find(hash, |other| other == id), Some(id));
                }
                prop_assert_eq!(keys.find(hash, |other| !here.iter().any(|&(_, id)| id == other)), None);
                prop_assert_eq!(keys.place_below(hash), below.get(&first_bits).copied());
                prop_assert_eq!(keys.items_below(), below.len() as u64);
                prop_assert_eq!(keys.charged_bytes().0, keys.index.bytes() + held.0 + held.1);
            }
            let (mut met, mut met_below, mut cursor) = (BTreeSet::new(), BTreeMap::new(), Some(0));
            while let Some(from) = cursor {
                cursor = keys.entries(from, count, |hash, found| {
                    let is_new = match found {
                        Found::Item(id) => met.insert((hash >> 24, id)),
                        Found::Log(place) => met_below.insert(hash >> 24, place).is_none(),
                    };
                    assert!(is_new, "an entry is visited once");
                });
            }
            prop_assert_eq!(met, here.iter().map(|&(hash, id)| (hash >> 24, id)).collect::<BTreeSet<_>>());
            prop_assert_eq!(met_below, below);
            keys.clear_into(&mut DeferredFree::default());
            prop_assert_eq!((keys.entries(0, usize::MAX, |_, _| panic!("nothing is left")), keys.items_below()), (None, 0));
            prop_assert_eq!(keys.charged_bytes().0, keys.index.bytes() + held.0 + held.1, "what is held is held on");
        }
    }
}
