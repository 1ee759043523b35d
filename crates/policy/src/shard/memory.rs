//! Items in memory: the keys that find them, the ladder that places them, and the bytes that each tier has.

use super::{Entry, Items, Keys};
use crate::ladder::{Ladder, LadderConfig, Loc, NewItem, Ticket};
use crate::{Id, Now};

/// Keys and ladder, which always know the same items.
#[derive(Debug)]
pub struct Memory {
    ladder: Ladder,
    keys: Keys,
    /// Bytes of items by tier.
    item_bytes: Vec<u64>,
    /// Bytes that the driver keeps behind each item, in its place.
    behind_bytes: u64,
}

impl Memory {
    pub(super) fn new(config: LadderConfig, behind_bytes: u64) -> Self {
        let ladder = Ladder::new(config);
        let item_bytes = vec![0; ladder.residents().levels()];
        Memory { ladder, keys: Keys::default(), item_bytes, behind_bytes }
    }

    /// The ladder, to be read.
    #[inline]
    pub(super) fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// The ladder, to use, place and move items. An item that it tells to leave leaves the index by [`Self::remove`].
    #[inline]
    pub(super) fn ladder_mut(&mut self) -> &mut Ladder {
        &mut self.ladder
    }

    /// The keys, which lead to items here and in the log below.
    #[inline]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The keys, for those that the log has.
    #[inline]
    pub(super) fn keys_mut(&mut self) -> &mut Keys {
        &mut self.keys
    }

    /// Bytes of the items in a tier.
    pub fn item_bytes(&self, tier: usize) -> u64 {
        self.item_bytes[tier]
    }

    /// The bytes of a tier's items were counted anew.
    pub(super) fn set_item_bytes(&mut self, tier: u8, bytes: u64) {
        self.item_bytes[usize::from(tier)] = bytes;
    }

    /// The item of this key, its time over or not.
    #[inline]
    pub fn find<I: Items>(&self, hash: u64, key: I::Key<'_>, items: &I) -> Option<Id> {
        self.keys.find(hash, |id| items.has_key(id, self.ladder.residents().nodes().loc(id), key))
    }

    /// The description of an entry for the ladder.
    pub(super) fn new_item(&self, entry: &Entry, rewrites: Option<Id>) -> NewItem {
        let Entry { hash: key, bytes, expires_at_ms, tenant, is_newcomer } = *entry;
        NewItem { key, bytes: bytes + self.behind_bytes, expires_at_ms, rewrites, tenant, is_newcomer }
    }

    /// An item has its place, and is found from now on.
    pub(super) fn insert(&mut self, id: Id, loc: Loc, entry: &Entry) {
        debug_assert_eq!(self.ladder.residents().nodes().loc(id), loc, "an item comes in where its place is");
        self.keys.insert(entry.hash, id);
        self.charge_keys();
        self.item_bytes[usize::from(loc.tier)] += entry.bytes;
    }

    /// Removes an item of `bytes`, which has left the ladder, from the index: it is not found any more.
    pub(super) fn remove(&mut self, id: Id, loc: Loc, hash: u64, bytes: u64) {
        self.keys.remove(hash, id);
        self.uncount(loc, bytes);
    }

    /// Takes out a live item, whose bytes `bytes` tells by its place. Returns where it was, a place that is free now.
    pub(super) fn forget(&mut self, id: Id, hash: u64, bytes: impl FnOnce(Loc) -> u64) -> Loc {
        let loc = self.ladder.residents().nodes().loc(id);
        self.remove(id, loc, hash, bytes(loc));
        self.ladder.transit_mut().remove(id);
        loc
    }

    /// A live item is used and gets other bytes in its own place, where they fit; that place. It stays as it is where it
    /// belongs to another tenant by now.
    pub(super) fn rewrite_in_place(
        &mut self,
        id: Id,
        entry: &Entry,
        bytes_before: impl FnOnce(Loc) -> u64,
        now: Now,
    ) -> Option<Loc> {
        self.ladder.touch(id, now);
        let tenants = self.ladder.residents().tenants();
        let stays = tenants.is_none_or(|tenants| tenants.owner(id) == entry.tenant);
        let place_bytes = self.new_item(entry, None).bytes;
        if !stays || !self.ladder.transit_mut().rewrite_in_place(id, place_bytes) {
            return None;
        }
        let loc = self.ladder.residents().nodes().loc(id);
        self.recount((loc, bytes_before(loc)), (loc, entry.bytes));
        self.ladder.timers(now).set_expires_at_ms(id, entry.expires_at_ms);
        Some(loc)
    }

    /// An item has other bytes, or stands elsewhere.
    fn recount(&mut self, (from, before): (Loc, u64), (to, after): (Loc, u64)) {
        self.uncount(from, before);
        self.item_bytes[usize::from(to.tier)] += after;
    }

    /// A move between two places has ended, its bytes having arrived or not. Where the item stands at its new place now: when it
    /// expires, told at once, for it may be gone again when that is handed out.
    pub(super) fn end_move(
        &mut self,
        ticket: Ticket,
        arrived: bool,
        (id, from, to, bytes): (Id, Loc, Loc, u64),
    ) -> Option<Option<u64>> {
        let mut has_moved = false;
        self.ladder.done(ticket, arrived, |moved| has_moved = moved);
        if !has_moved {
            return None;
        }
        assert_eq!(self.ladder.residents().nodes().loc(id), to, "a settled item stands where it went");
        self.recount((from, bytes), (to, bytes));
        Some(self.ladder.residents().nodes().expires_at_ms(id))
    }

    fn uncount(&mut self, loc: Loc, bytes: u64) {
        let held = &mut self.item_bytes[usize::from(loc.tier)];
        assert!(*held >= bytes, "what leaves a tier was counted there");
        *held -= bytes;
    }

    /// Charges tier 0 with the index, and with the `driver_bytes` that the driver holds.
    #[inline]
    pub(super) fn charge(&mut self, driver_bytes: u64) {
        self.keys.hold(driver_bytes);
        self.charge_keys();
    }

    /// Charges tier 0 with the `log_bytes` that the log's state takes.
    pub(super) fn charge_log(&mut self, log_bytes: u64) {
        self.keys.hold_log(log_bytes);
        self.charge_keys();
    }

    #[inline]
    fn charge_keys(&mut self) {
        let (bytes, growth_bytes) = self.keys.charged_bytes();
        self.ladder.set_index_bytes(bytes, growth_bytes);
    }

    /// The log has an item no more: where memory has it too, that copy is the only one now. Returns whether it has.
    pub(super) fn note_changed<I: Items>(&self, hash: u64, items: &mut I) -> bool {
        let copy = self.keys.find(hash, |id| items.is_unchanged(id, self.ladder.residents().nodes().loc(id)));
        if let Some(id) = copy {
            items.note_changed(id, self.ladder.residents().nodes().loc(id));
        }
        copy.is_some()
    }

    /// Takes up an item that lies in memory already: see [`super::Shard::restore`].
    pub(super) fn adopt(&mut self, loc: Loc, place_bytes: u64, entry: &Entry, now: Now) -> Option<Id> {
        let id = self.ladder.adopt(loc, place_bytes, &self.new_item(entry, None), now)?;
        self.insert(id, loc, entry);
        Some(id)
    }

    /// Removes all items and the whole index, at once. `false`, and nothing done, while a place is pinned.
    pub(super) fn clear(&mut self) -> bool {
        if !self.ladder.clear() {
            return false;
        }
        assert_eq!(self.ladder.residents().items(), 0, "keys and ladder know the same items");
        self.keys.clear_into(self.ladder.deferred_free());
        self.charge_keys();
        self.item_bytes.fill(0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::{Act, Admit, PAGE_BYTES};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use tiermem_base::Rng;

    /// Carries out the ladder's decisions: dropped items leave, and every other move arrives.
    fn carry_out(acts: &mut Vec<Act>, memory: &mut Memory, all: &mut BTreeMap<Id, Entry>) {
        let mut moves = Vec::new();
        for act in acts.drain(..) {
            match act {
                Act::Drop { id, loc, .. } => {
                    let entry = all.remove(&id).unwrap();
                    memory.remove(id, loc, entry.hash, entry.bytes);
                }
                Act::Move { ticket, id, from, to, .. } => moves.push((ticket, id, from, to)),
                Act::Discard { .. } | Act::Populate { .. } => {}
            }
        }
        for (ticket, id, from, to) in moves {
            // An item that has left meanwhile does not arrive.
            let bytes = all.get(&id).map_or(0, |entry| entry.bytes);
            let arrives = ticket.0 % 2 == 0;
            let expiry = memory.end_move(ticket, arrives, (id, from, to, bytes));
            assert!(arrives || expiry.is_none(), "what did not arrive stands where it was");
        }
    }

    proptest! {
        /// Over any sequence of entries, uses, rewrites, moves and departures: the bytes told of each tier are those of its
        /// items, and keys lead to the items that are there and to no others.
        #[test]
        fn tiers_have_the_bytes_of_their_items(
            ops in prop::collection::vec((0u8..10, any::<prop::sample::Index>(), 1u64..60_000), 1..200),
        ) {
            let capacities = [4 * PAGE_BYTES, 8 * PAGE_BYTES];
            let config = LadderConfig { charge_metadata: false, step_requests: 1, ..LadderConfig::with_capacities(&capacities) };
            let mut memory = Memory::new(config, 16);
            let (mut now, mut rng, mut acts) = (Now::default(), Rng::seeded(1), Vec::new());
            let mut all = BTreeMap::<Id, Entry>::new();
            for (number, (what, pick, bytes)) in ops.into_iter().enumerate() {
                now.requests += 1;
                let bytes = if what < 3 { bytes } else { bytes % 3000 + 1 };
                let any = (!all.is_empty()).then(|| *all.keys().nth(pick.index(all.len())).unwrap());
                match (what, any) {
                    (0..5, _) => {
                        let entry = Entry { hash: (number as u64) << 24, bytes, expires_at_ms: None, tenant: 0, is_newcomer: true };
                        let item = memory.new_item(&entry, None);
                        prop_assert_eq!(item.bytes, bytes + 16);
                        let answer = memory.ladder_mut().admit(&item, now, &mut rng, &mut acts);
                        carry_out(&mut acts, &mut memory, &mut all);
                        if let Admit::Ready { id, loc } = answer {
                            memory.insert(id, loc, &entry);
                            all.insert(id, entry);
                        }
                    }
                    (5 | 6, Some(id)) => _ = memory.ladder_mut().hit(None, id, now),
                    (7, Some(id)) => {
                        let before = all[&id];
                        let entry = Entry { bytes: before.bytes - before.bytes % 4 + 1, ..before };
                        if memory.rewrite_in_place(id, &entry, |_| before.bytes, now).is_some() {
                            all.insert(id, entry);
                        }
                    }
                    (8, Some(id)) => {
                        let entry = all.remove(&id).unwrap();
                        memory.forget(id, entry.hash, |_| entry.bytes);
                    }
                    _ => memory.ladder_mut().step(now, &mut rng, &mut acts),
                }
                carry_out(&mut acts, &mut memory, &mut all);
                let mut of_tiers = [0; 2];
                for (&id, entry) in &all {
                    of_tiers[usize::from(memory.ladder().residents().nodes().loc(id).tier)] += entry.bytes;
                    prop_assert_eq!(memory.keys().find(entry.hash, |other| other == id), Some(id));
                }
                prop_assert_eq!([0, 1].map(|tier| memory.item_bytes(tier)), of_tiers);
                let mut entries = 0;
                memory.keys().entries(0, usize::MAX, |_, _| entries += 1);
                prop_assert_eq!(entries, all.len());
            }
            prop_assert!(memory.clear());
            prop_assert_eq!([0, 1].map(|tier| memory.item_bytes(tier)), [0; 2]);
            prop_assert_eq!(memory.keys().entries(0, usize::MAX, |_, _| panic!("nobody is there")), None);
        }
    }
}
