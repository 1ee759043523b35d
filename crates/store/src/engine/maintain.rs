//! The engine's work beside requests: steps of the shard, and carrying out what it decides.

use crate::tiers::pages_bytes;
use tiermem_base::TierSpec;
use tiermem_policy::Id;
use tiermem_policy::index::Found;
use tiermem_policy::ladder::{Eviction as LadderEviction, Loc, Tuning};
use tiermem_policy::log::LogPlace;
use tiermem_policy::shard::{self, Act, Why};

use super::{Change, Engine, EngineStats, Eviction, TierStats};

impl Engine {
    /// Every request starts here: the debt of the one before is waited off, and a step is made when it is due. Over a flash
    /// tier it is made by [`Self::prepare`]: it may send to flash what this request was seen to have in memory.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.items.tiers.settle();
        self.shard.begin();
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

    pub(super) fn step(&mut self) {
        self.shard.step(&mut self.rng);
        self.carry_out();
        self.advance_flash();
    }

    /// Makes room for an item of so many bytes, if it is a large one, a piece at a time; whether nothing more is to be done
    /// before it is written, though it may be refused. Whoever serves others as well asks again after them; whoever does not
    /// ask has the writing itself wait for it.
    pub fn make_room(&mut self, item_bytes: usize) -> bool {
        let done = self.shard.make_room(item_bytes as u64, &mut self.rng);
        self.carry_out();
        done
    }

    /// Does what is due without a request: expired items, and memory for the first ones. Call it when idle, at least every 100 ms.
    pub fn idle(&mut self) {
        self.shard.idle();
        self.carry_out();
        self.advance_flash();
        self.items.tiers.settle();
    }

    /// Does what the shard has decided, one thing after the other.
    #[inline]
    pub(super) fn carry_out(&mut self) {
        while let Some(act) = self.shard.next_act(&mut self.items, &mut self.rng) {
            self.carry_out_one(act);
        }
    }

    fn carry_out_one(&mut self, act: Act) {
        match act {
            Act::Move { ticket, from, to, bytes, .. } => {
                let place_bytes = self.shard.ladder().residents().bytes_of_place(to);
                assert!(bytes <= place_bytes, "a moved item fits its new place");
                if self.items.tiers.keeps(to.tier) {
                    self.items.tiers.copy_unsealed(from, to, bytes as usize, place_bytes);
                } else {
                    self.items.tiers.copy(from, to, bytes as usize);
                }
                self.shard.moved(ticket, true);
            }
            Act::Settled { from, to, bytes, expires_at_ms } => {
                self.seal_moved(from, to, bytes, expires_at_ms)
            }
            Act::Leave { loc, hash, why, below, .. } => self.leave(loc, hash, why, below),
            Act::Append { from, to, hash, replaced, .. } => self.append(from, &to, hash, replaced),
            Act::Gone { hash, place, at, why, has_copy } => self.lose(hash, (place, at), why, has_copy),
            Act::Discard { tier, page } => self.items.tiers.discard(tier, page),
            Act::Populate { tier, first, count } => self.items.tiers.populate(tier, first..first + count),
            Act::Seal { .. } | Act::Write { .. } | Act::Read { .. } | Act::Free { .. } => self.ask_flash(act),
        }
    }

    /// An item leaves memory at `loc`, and the store if the log does not have it.
    fn leave(&mut self, loc: Loc, hash: u64, why: Why, below: Option<LogPlace>) {
        if why != Why::Replaced {
            let header = self.header(loc);
            self.items.tiers.charge_read(loc.tier, header.value_offset());
            if let Some(place) = below {
                self.retire(hash, place, header.db);
            }
            if why != Why::Stays {
                self.uncount(header.db);
                let key = self.items.key(loc, header);
                if why == Why::Expired {
                    let tenant = self.whose.of(self.divider.tenants(), header.db, key);
                    self.divider.removed(tenant, hash);
                }
                let change = if why == Why::Expired { Change::Expired } else { Change::Evicted };
                self.changes.note(change, header.db, key);
            }
        }
        self.unseal_item(loc);
    }

    /// Removes every key of one database or, with `None`, of all. All at once where no other database has keys.
    pub fn flush(&mut self, db: Option<u8>) {
        self.changes.note(Change::Flushed(db), db.unwrap_or(0), &[]);
        let others = db.map_or(0, |db| self.keys.iter().sum::<u64>() - self.len(db));
        if others == 0 {
            self.divider.forget();
        }
        let is_clear = others == 0 && self.shard.clear();
        self.flush_flash(db.filter(|_| others > 0));
        if is_clear {
            self.forget_kept();
            self.keys.fill(0);
            return;
        }
        let mut ids: Vec<Id> = Vec::new();
        self.shard.memory().entries(0, usize::MAX, |_, found| {
            if let Found::Item(id) = found {
                ids.push(id);
            }
        });
        for id in ids {
            let loc = self.shard.ladder().residents().nodes().loc(id);
            let header = self.header(loc);
            if db.is_none_or(|db| db == header.db) {
                let key = self.items.key(loc, header);
                let hash = self.items.hasher.hash(header.db, key);
                let tenant = self.whose.of(self.divider.tenants(), header.db, key);
                self.divider.removed(tenant, hash);
                self.forget(id, hash);
            }
        }
        // What lies on flash alone was counted as well, and is gone.
        match db {
            Some(db) => self.keys[usize::from(db)] = 0,
            None => self.keys.fill(0),
        }
    }

    /// What may be thrown out when space runs short.
    pub fn eviction(&self) -> Eviction {
        match self.shard.ladder().config().eviction {
            LadderEviction::AllItems => Eviction::AllKeys,
            LadderEviction::Forbidden => Eviction::Forbidden,
        }
    }

    /// What may be changed about the ladder while it runs, as it is.
    pub fn tuning(&self) -> Tuning {
        self.shard.ladder().config().tuning()
    }

    /// Changes it.
    pub fn tune(&mut self, tuning: Tuning) {
        self.shard.configure(shard::Change::Tuning(tuning));
    }

    /// Nanoseconds that emulated tiers have charged since the start; the difference over a request is its own.
    pub fn charged_ns(&self) -> f64 {
        self.items.tiers.charged_total_ns()
    }

    /// Nanoseconds of that which have been waited off.
    pub fn waited_ns(&self) -> f64 {
        self.items.tiers.waited_ns()
    }

    /// A copy of all counters.
    pub fn stats(&self) -> EngineStats {
        let sunk = |at| self.shard.log().map_or(0, |log| log.sunk(at));
        let tier = |(at, spec): (usize, &TierSpec)| {
            let level = self.shard.ladder().residents().level(at).counters();
            TierStats {
                name: spec.name.clone(),
                kind: spec.kind.name().to_owned(),
                capacity_bytes: spec.known_bytes().unwrap_or(0) - pages_bytes(spec) + self.capacity_bytes(at),
                used_bytes: self.shard.ladder().charged_bytes(at),
                item_bytes: self.shard.memory().item_bytes(at),
                items: level.items,
                hits: level.hits,
                promotions: level.promotions,
                demotions: level.demotions + sunk(at),
                evictions: level.evictions - sunk(at),
                charged_ns: self.items.tiers.charged_ns(at) as u64,
            }
        };
        let mut tiers: Vec<_> = self.config.tiers.iter().enumerate().map(tier).collect();
        tiers.extend(self.flash_tier_stats());
        let counters = self.shard.ladder().transit().counters();
        EngineStats {
            gets: self.gets,
            hits: self.get_hits,
            sets: self.sets,
            expired: counters.expired + self.expired_on_access,
            evicted: tiers.iter().map(|tier| tier.evictions).sum(),
            moves_aborted: counters.moves_aborted,
            refused: self.shard.refused(),
            keys: self.keys.iter().sum(),
            keys_with_expiry: self.shard.ladder().residents().nodes().items_with_expiry(),
            metadata_bytes: self.shard.ladder().metadata_bytes(),
            pinned_bytes: self.pinned_bytes as u64,
            flash: self.flash_figures(),
            tenants: self.tenant_stats(),
            division: self.division_stats(),
            tiers,
        }
    }
}
