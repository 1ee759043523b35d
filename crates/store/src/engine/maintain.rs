//! The engine's work beside requests: steps of the ladder, and executing what it decides.

use tiermem_base::TierSpec;
use tiermem_policy::Id;
use tiermem_policy::index::Found;
use tiermem_policy::ladder::{Act, Eviction as LadderEviction, Ticket, Tuning, Why};
use tiermem_tier::region::pages_bytes;

use super::item::HEADER_BYTES;
use super::{Change, Copied, Engine, EngineStats, Eviction, TierStats};

impl Engine {
    /// Every request starts here: the debt of the one before is waited off, and a step is made when it is due. Over a flash
    /// tier it is made by [`Self::prepare`]: it may send to flash what this request was seen to have in memory.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.tiers.settle();
        self.now.requests += 1;
        if self.ladder.is_due(self.now) && !self.has_flash() {
            self.step();
        }
    }

    /// Makes a step if one is due: before it is asked where a request's keys lie.
    #[inline]
    pub fn prepare(&mut self) {
        if self.ladder.is_due(self.now) {
            self.step();
        }
    }

    pub(super) fn step(&mut self) {
        self.settle_all_moves();
        self.ladder.step(self.now, &mut self.rng, &mut self.acts);
        self.execute();
        self.advance_flash();
    }

    /// Makes room for an item of so many bytes, if it is a large one, a piece at a time; whether nothing more is to be done
    /// before it is written, though it may be refused. Whoever serves others as well asks again after them; whoever does not
    /// ask has the writing itself wait for it.
    pub fn make_room(&mut self, item_bytes: usize) -> bool {
        self.report_outlet();
        let done = self.ladder.prepare(item_bytes as u64, self.now, &mut self.rng, &mut self.acts);
        self.execute();
        if !done {
            self.settle_all_moves();
        }
        done
    }

    /// Tells the ladder that all copies are made.
    pub(super) fn settle_all_moves(&mut self) {
        if let Some(last) = self.ladder.last_ticket() {
            self.settle_moves(last);
        }
    }

    /// Does what is due without a request: expired items, and memory for the first ones. Call it when idle, at least every 100 ms.
    pub fn idle(&mut self) {
        self.ladder.idle(self.now, &mut self.acts);
        self.execute();
        self.advance_flash();
        self.tiers.settle();
    }

    /// Executes the ladder's acts in order.
    pub(super) fn execute(&mut self) {
        let mut acts = std::mem::take(&mut self.acts);
        for act in &acts {
            if let Act::Move { from, .. } | Act::Drop { loc: from, .. } = act {
                // A batch waits for its items' memory once, not item by item.
                self.tiers.prefetch(*from, HEADER_BYTES);
            }
        }
        for act in acts.drain(..) {
            match act {
                Act::Move { id, from, to, .. } => {
                    let item_len = self.header(from).item_len();
                    if self.tiers.keeps(to.tier) {
                        self.tiers.copy_unsealed(from, to, item_len, self.ladder.bytes_of_place(to));
                    } else {
                        self.tiers.copy(from, to, item_len);
                    }
                    self.copied.push_back(Copied { id, from, to, item_len: item_len as u64 });
                }
                Act::Drop { id, loc, why, expires_at_ms, last_used } => {
                    let header = self.header(loc);
                    let key = self.tiers.bytes(loc, HEADER_BYTES, usize::from(header.key_len));
                    self.tiers.charge_read(loc.tier, header.value_offset());
                    let hash = self.hasher.hash(header.db, key);
                    let found = self.index.remove(hash, id);
                    debug_assert!(found, "a dropped item is in the index");
                    self.item_bytes[usize::from(loc.tier)] -= header.item_len() as u64;
                    let stays = match why {
                        Why::Evicted => {
                            let sunk = self.offer(header, loc, hash, expires_at_ms, last_used);
                            self.below.sunk[usize::from(loc.tier)] += u64::from(sunk);
                            sunk
                        }
                        Why::Expired => {
                            if header.unchanged {
                                self.forget_expired(header.db, hash);
                            }
                            false
                        }
                    };
                    if !stays {
                        self.uncount(header.db);
                        let key = self.tiers.bytes(loc, HEADER_BYTES, usize::from(header.key_len));
                        if why == Why::Expired {
                            let tenant = self.whose.of(self.divider.tenants(), header.db, key);
                            self.divider.removed(tenant, hash);
                        }
                        let change = if why == Why::Expired { Change::Expired } else { Change::Evicted };
                        self.changes.note(change, header.db, key);
                    }
                    self.unseal_item(loc);
                }
                Act::Discard { tier, page } => self.tiers.discard(tier, page),
                Act::Populate { tier, first, count } => self.tiers.populate(tier, first..first + count),
            }
        }
        self.acts = acts;
    }

    /// Tells the ladder that all copies up to `ticket` are made, which they are as soon as they are executed:
    /// memory is synchronous.
    pub(super) fn settle_moves(&mut self, ticket: Ticket) {
        let (copied, item_bytes, keeping) = (&mut self.copied, &mut self.item_bytes, &mut self.keeping);
        self.ladder.done(ticket, true, |moved| {
            let Some(copy) = copied.pop_front() else { return };
            if moved {
                item_bytes[usize::from(copy.from.tier)] -= copy.item_len;
                item_bytes[usize::from(copy.to.tier)] += copy.item_len;
                keeping.note_moved(copy);
            }
        });
        self.seal_moved();
    }

    /// Removes every key of one database or, with `None`, of all. All at once where no other database has keys.
    pub fn flush(&mut self, db: Option<u8>) {
        self.changes.note(Change::Flushed(db), db.unwrap_or(0), &[]);
        let others = db.map_or(0, |db| self.keys.iter().sum::<u64>() - self.len(db));
        self.flush_on_flash(db.filter(|_| others > 0));
        if others == 0 {
            self.divider.forget();
        }
        if others == 0 && self.ladder.clear() {
            self.forget_kept();
            self.index.clear_into(self.ladder.waste());
            self.charge_index();
            self.copied.clear();
            self.item_bytes.fill(0);
            self.keys.fill(0);
            return;
        }
        let mut ids: Vec<Id> = Vec::new();
        self.index.scan(0, usize::MAX, |_, found| {
            if let Found::Item(id) = found {
                ids.push(id);
            }
        });
        for id in ids {
            let loc = self.ladder.loc(id);
            let header = self.header(loc);
            if db.is_none_or(|db| db == header.db) {
                let key = self.tiers.bytes(loc, HEADER_BYTES, usize::from(header.key_len));
                let hash = self.hasher.hash(header.db, key);
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
        if others == 0 {
            // The flash tier has dropped them all.
            self.forget_log_entries();
        }
    }

    pub(super) fn config_eviction_forbidden(&self) -> bool {
        self.eviction() == Eviction::Forbidden
    }

    /// What may be thrown out when space runs short.
    pub fn eviction(&self) -> Eviction {
        match self.ladder.config().eviction {
            LadderEviction::AllItems => Eviction::AllKeys,
            LadderEviction::Forbidden => Eviction::Forbidden,
        }
    }

    /// What may be changed about the ladder while it runs, as it is.
    pub fn tuning(&self) -> Tuning {
        self.ladder.config().tuning()
    }

    /// Changes it.
    pub fn tune(&mut self, tuning: Tuning) {
        self.ladder.tune(tuning);
    }

    /// Nanoseconds that emulated tiers have charged since the start; the difference over a request is its own.
    pub fn charged_ns(&self) -> f64 {
        self.tiers.charged_total_ns()
    }

    /// Nanoseconds of that which have been waited off.
    pub fn waited_ns(&self) -> f64 {
        self.tiers.waited_ns()
    }

    /// A copy of all counters.
    pub fn stats(&self) -> EngineStats {
        let tier = |(at, spec): (usize, &TierSpec)| {
            let level = self.ladder.level(at);
            TierStats {
                name: spec.name.clone(),
                kind: spec.kind.name().to_owned(),
                capacity_bytes: spec.known_bytes().unwrap_or(0) - pages_bytes(spec) + self.capacity_bytes(at),
                used_bytes: self.ladder.charged_bytes(at),
                item_bytes: self.item_bytes[at],
                items: level.items,
                hits: level.hits,
                promotions: level.promotions,
                demotions: level.demotions + self.below.sunk[at],
                evictions: level.evictions - self.below.sunk[at],
                charged_ns: self.tiers.charged_ns(at) as u64,
            }
        };
        let mut tiers: Vec<_> = self.config.tiers.iter().enumerate().map(tier).collect();
        tiers.extend(self.flash_tier_stats());
        let counters = self.ladder.counters();
        EngineStats {
            gets: self.gets,
            hits: self.get_hits,
            sets: self.sets,
            expired: counters.expired + self.expired_on_access,
            evicted: tiers.iter().map(|tier| tier.evictions).sum(),
            moves_aborted: counters.moves_aborted,
            refused: self.refused,
            keys: self.keys.iter().sum(),
            keys_with_expiry: self.ladder.items_with_expiry(),
            metadata_bytes: self.ladder.metadata_bytes(),
            pinned_bytes: self.pinned_bytes as u64,
            flash: self.flash_figures(),
            tenants: self.tenant_stats(),
            division: self.division_stats(),
            tiers,
        }
    }
}
