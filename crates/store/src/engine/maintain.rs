//! Background work of the engine: steps of the shard, and carrying out its decisions.

use tiermem_policy::Id;
use tiermem_policy::index::Found;
use tiermem_policy::ladder::Loc;
use tiermem_policy::log::LogPlace;
use tiermem_policy::shard::{Act, Why};

use super::Change;
use super::contents::Contents;
use super::losses::LosesParts;

impl Contents {
    /// Every request starts here: the debt of the one before is waited off, and a step is made when it is due. Over a flash
    /// tier it is made by [`Self::prepare`]: it may send to flash what this request was seen to have in memory.
    #[inline]
    pub fn begin(&mut self) {
        self.items.tiers.settle();
        self.shard.begin();
        self.pinned_values().give_held();
        if self.shard.is_due() && !self.has_flash() {
            self.step();
        }
    }

    /// Makes a step if one is due: before it is asked where a request's keys lie.
    #[inline]
    pub fn prepare(&mut self) {
        if self.shard.is_due() {
            self.step();
        }
    }

    pub fn step(&mut self) {
        self.shard.step(&mut self.rng);
        self.carry_out();
        self.flash_tier().advance();
    }

    /// Makes room for an item of `item_bytes`, if it is a large one, a piece at a time. Returns
    /// whether the item can be written now, though it may still be refused. A caller with other
    /// requests to serve calls again after them. Without these calls the write itself makes the room.
    pub fn make_room(&mut self, item_bytes: usize) -> bool {
        self.pinned_values().give_held();
        let done = self.shard.make_room(item_bytes as u64, &mut self.rng);
        self.carry_out();
        done
    }

    /// Does what the shard has decided, one thing after the other.
    #[inline]
    pub fn carry_out(&mut self) {
        while let Some(act) = self.shard.next_act(&mut self.items, &mut self.rng) {
            self.carry_out_one(act);
        }
    }

    fn carry_out_one(&mut self, act: Act) {
        match act {
            Act::Move { ticket, from, to, bytes, .. } => {
                let place_bytes =
                    self.shard.ladder().residents().level(usize::from(to.tier)).place_bytes(to.unit);
                assert!(bytes <= place_bytes, "a moved item fits its new place");
                debug_assert!(
                    self.items.tiers.keeps(from.tier) || self.items.header(from).item_len() as u64 == bytes,
                    "all of an item is moved, unless it is lost"
                );
                debug_assert!(
                    self.items.tiers.has_bytes(to.tier, to.byte_offset(), place_bytes),
                    "the new place is inside its tier"
                );
                if self.items.tiers.keeps(to.tier) {
                    self.items.tiers.copy_unsealed(from, to, bytes as usize, place_bytes);
                } else {
                    self.items.tiers.copy(from, to, bytes as usize);
                }
                // An item of which something is lost stays, to be dropped.
                let is_whole = !(self.items.tiers.keeps(from.tier) && self.has_lost_by_now());
                self.shard.moved(ticket, is_whole);
            }
            Act::Settled { from, to, bytes, expires_at_ms } => {
                debug_assert!(
                    self.items.tiers.keeps(to.tier) || self.items.header(to).item_len() as u64 == bytes,
                    "what is settled is as it was copied, unless it is lost"
                );
                self.keeping.seal_moved(&mut self.items.tiers, (from, to), bytes, expires_at_ms);
            }
            Act::Leave { loc, hash, why, below, .. } => self.leave(loc, hash, why, below),
            Act::Append { from, to, hash, replaced, .. } => {
                self.flash_tier().append(from, &to, hash, replaced)
            }
            Act::Gone { hash, place, at, why, has_copy } => {
                self.flash_tier().lose(hash, (place, at), why, has_copy)
            }
            Act::Discard { tier, page } => {
                debug_assert!(
                    self.items.tiers.has_pages(tier, page, 1),
                    "a page that is given back is inside its tier"
                );
                self.items.tiers.discard(tier, page)
            }
            Act::Populate { tier, first, count } => {
                debug_assert!(
                    self.items.tiers.has_pages(tier, first, count),
                    "pages to be written are inside their tier"
                );
                self.items.tiers.populate(tier, first..first + count)
            }
            Act::Seal { .. } | Act::Write { .. } | Act::Read { .. } | Act::Free { .. } => {
                self.flash_tier().carry_out(act)
            }
        }
    }

    /// An item leaves memory at `loc`, and the store if the log does not have it.
    fn leave(&mut self, loc: Loc, hash: u64, why: Why, below: Option<LogPlace>) {
        if why == Why::Lost {
            self.leave_lost(hash);
        } else if why != Why::Replaced {
            let header = self.items.header(loc);
            debug_assert!(
                self.items.tiers.keeps(loc.tier)
                    || self.items.hash(header.db, self.items.key(loc, header)) == hash,
                "the item that the shard took out is the one that lies there"
            );
            self.items.tiers.charge_read(loc.tier, header.value_offset());
            if let Some(place) = below {
                self.retire(hash, place, header.db);
            }
            if why != Why::Stays {
                self.keys.remove(header.db, Some(hash));
                let key = self.items.key(loc, header);
                if why == Why::Expired {
                    self.tenants.removed(header.db, key, hash);
                }
                let change = if why == Why::Expired { Change::Expired } else { Change::Evicted };
                self.changes.note(change, header.db, key);
            }
        }
        self.keeping.unseal(&mut self.items.tiers, loc);
    }

    /// Removes every key of one database or, with `None`, of all. All at once where no other database has keys.
    pub fn flush(&mut self, db: Option<u8>) {
        self.look_for_losses();
        self.changes.note(Change::Flushed(db), db.unwrap_or(0), &[]);
        let others = db.map_or(0, |db| self.keys.sum() - self.keys.of(db));
        if others == 0 {
            self.tenants.forget();
        }
        let is_clear = others == 0 && self.shard.clear();
        self.flash_tier().flush(db.filter(|_| others > 0));
        if is_clear {
            debug_assert_eq!(
                self.shard.ladder().residents().items(),
                0,
                "a shard that is cleared has no items"
            );
            self.keeping.forget(&mut self.items.tiers);
            self.keys.clear(None);
            return;
        }
        let mut ids: Vec<(Id, u64)> = Vec::new();
        self.shard.memory().keys().all(|hash, found| {
            if let Found::Item(id) = found {
                ids.push((id, hash));
            }
        });
        for (id, bits) in ids {
            let loc = self.shard.ladder().residents().nodes().loc(id);
            let header = self.items.header(loc);
            if db.is_none_or(|db| db == header.db) {
                let key = self.items.key(loc, header);
                let hash = self.items.hash(header.db, key);
                self.tenants.removed(header.db, key, hash);
                self.forget(id, bits);
            }
        }
        // What lies on flash alone was counted as well, and is gone.
        self.keys.clear(db);
    }
}
