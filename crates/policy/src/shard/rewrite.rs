//! New bytes for an item that is there.

use super::admit::Old;
use super::{Entered, Entry, Items, Shard};
use crate::Id;
use tiermem_base::Rng;

impl Shard {
    /// Begins to find a place for the new bytes of a live item, which counts as used: its own where they fit; else another one
    /// in the same tier; and where there is none its own again, the old bytes gone. Acts follow; then [`Self::entered`] tells.
    ///
    /// An item whose key belongs to another tenant by now gets another place, and goes over to that tenant with it.
    pub fn rewrite<I: Items>(&mut self, old: Id, entry: &Entry, items: &I, rng: &mut Rng) {
        self.memory.ladder.touch(old, self.now);
        let stays = !self.memory.ladder.config().tenants || self.memory.ladder.tenant_of(old) == entry.tenant;
        let place_bytes = self.memory.new_item(entry, None).bytes;
        if stays && self.memory.ladder.rewrite_in_place(old, place_bytes) {
            let loc = self.memory.ladder.loc(old);
            self.memory.recount((loc, items.bytes(old, loc).here), (loc, entry.bytes));
            self.memory.ladder.set_expires_at_ms(old, entry.expires_at_ms, self.now);
            return self.admission.answer(Entered::Placed { id: old, loc, replaces: None });
        }
        self.begin_replacing(old, entry, true, rng);
    }

    /// Begins to find a second place for a live item, in the same tier if it can be, while the old bytes stay where they are.
    /// Acts follow; then [`Self::entered`] tells.
    pub fn replace(&mut self, old: Id, entry: &Entry, rng: &mut Rng) {
        self.begin_replacing(old, entry, false, rng);
    }

    fn begin_replacing(&mut self, old: Id, entry: &Entry, may_go: bool, rng: &mut Rng) {
        let held = self.memory.ladder.pin(old);
        self.begin_admission(entry, Some(Old { id: old, held, may_go }), rng);
    }

    /// Whether a live item can be changed where it lies, its length staying the same; a move under way is given up then. It
    /// counts as used either way.
    pub fn change_in_place(&mut self, id: Id) -> bool {
        self.memory.ladder.touch(id, self.now);
        let place_bytes = self.memory.ladder.place_bytes(id);
        self.memory.ladder.rewrite_in_place(id, place_bytes)
    }
}
