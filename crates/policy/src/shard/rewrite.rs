//! Rewrite of an item: new bytes for a key that is in memory.

use super::{Entered, Entry, Items, Shard};
use crate::Id;
use tiermem_base::Rng;

impl Shard {
    /// Begins to find a place for the new bytes of a live item, which counts as used: its own place where they fit; else another
    /// one in the same tier; and where there is none its own again, after the old bytes have left. Acts follow; then
    /// [`Self::entered`] tells the outcome.
    ///
    /// An item whose key belongs to another tenant by now gets another place, and goes over to that tenant with it.
    pub fn rewrite<I: Items>(&mut self, old: Id, entry: &Entry, items: &I, rng: &mut Rng) {
        let bytes_before = |loc| items.bytes(old, loc).here;
        let memory = self.contents.memory_mut();
        if let Some(loc) = memory.rewrite_in_place(old, entry, bytes_before, self.now) {
            return self.admission.answer(Entered::Placed { id: old, loc, replaces: None });
        }
        let holder = (&mut self.contents, &mut self.under_way);
        self.admission.begin_replacing((old, true), entry, holder, self.now, rng);
    }

    /// Begins to find a second place for a live item, in the same tier if it can be, while the old bytes stay where they are.
    /// Acts follow; then [`Self::entered`] tells.
    pub fn replace(&mut self, old: Id, entry: &Entry, rng: &mut Rng) {
        let holder = (&mut self.contents, &mut self.under_way);
        self.admission.begin_replacing((old, false), entry, holder, self.now, rng);
    }
}
