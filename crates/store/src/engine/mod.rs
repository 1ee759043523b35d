//! The key-value engine of one shard: keys, values and expiry over the tiers, without sockets.
//!
//! It runs on one thread and is handed the time. It owns the bytes ([`Tiers`]); where each item lies and who goes is
//! decided by a [`Shard`], which the simulator drives in the same way. Every method is O(1) but `scan`, which
//! is O(count), and `flush`, and none does I/O.
//!
//! How a look-up flows: the key's hash finds an item number in the index; the number finds the place in the
//! ladder's node array; the key is compared there, in whichever tier; the ladder is told of the hit, which writes
//! the node and at most one list; the value is returned in place. Every few requests, before the next one, the
//! ladder does a step of its background work and the engine copies what it decided to move.

mod advice;
mod ahead;
mod capacity;
mod change;
mod config;
mod flash;
mod flash_figures;
mod item;
mod keep;
mod keys;
mod maintain;
mod memory;
mod notes;
mod owners;
mod pin;
mod snapshot;
mod staged;
mod stats;
mod tenants;
mod tier_stats;
mod types;

use std::sync::Arc;

use crate::tiers::{TierError, Tiers};
use tiermem_base::Rng;
use tiermem_base::hash::KeyHasher;
pub use tiermem_model::advisor::{Aim, Declared, Division};
use tiermem_model::advisor::{Divider, Outcome};
use tiermem_policy::Id;
use tiermem_policy::index::Found;
use tiermem_policy::ladder::Loc;
use tiermem_policy::shard::{Entered, Entry, Shard};

pub use advice::{DivisionStats, TenantAdvice};
pub use ahead::FORESEEN_MAX;
pub use change::ValueMut;
pub use config::{AHEAD_BYTES, EngineConfig};
pub use flash::Away;
use flash::Below;
pub use flash_figures::FlashFigures;
pub use item::HEADER_BYTES;
use item::Header;
use keep::Keeping;
pub use keep::TakenUp;
use memory::Memory;
pub use notes::{Change, Changes};
use owners::Whose;
pub use owners::{By, Owner, PREFIX_BYTES_MAX};
pub use pin::Pin;
pub use snapshot::{Gathered, Gathering, Restored};
pub use stats::EngineStats;
pub use tenants::{Tenancy, TenantStats, TenantTierStats};
pub use tier_stats::TierStats;
pub use types::{Condition, DATABASES, Eviction, Expiry, KEY_BYTES_MAX, StoreError, ValueKind};

/// A number for an item as long as nothing is written to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemRef(Id);

/// A value found.
#[derive(Debug)]
pub struct Hit<'a> {
    /// The value's bytes, in place.
    pub value: &'a [u8],
    /// What they are.
    pub kind: ValueKind,
    /// The item, for [`Engine::pin`].
    pub item: ItemRef,
}

/// One shard's engine.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    /// What decides where items lie and who goes.
    shard: Shard,
    /// Their bytes.
    items: Memory,
    rng: Rng,
    /// What is under way in tiers whose items outlive the process.
    keeping: Keeping,
    keys: [u64; DATABASES as usize],
    pinned_bytes: usize,
    /// The tier below the others.
    below: Below,
    gets: u64,
    get_hits: u64,
    sets: u64,
    expired_on_access: u64,
    changes: Changes,
    whose: Whose,
    /// What tenants are to have.
    divider: Divider,
    /// By tenant.
    advised: Vec<Option<Arc<TenantAdvice>>>,
    /// Unix time in microseconds.
    now_us: u64,
}

impl Engine {
    /// Sets the tiers up. Memory is taken as it is used.
    pub fn new(config: EngineConfig) -> Result<Self, TierError> {
        // Pages are divided by this factor between size classes.
        let layout = config.ladder.class_factor.to_bits();
        let mut tiers = Tiers::new(&config.tier_specs(), layout, config.spin)?;
        tiers.announce_session(config.session);
        let keeping = Keeping::over(&tiers);
        let shard = Shard::new(config.ladder_config(), keeping.tail_bytes() as u64);
        let mut engine = Engine {
            keeping,
            items: Memory { tiers, hasher: KeyHasher::seeded(config.seed), flash: None },
            rng: Rng::seeded(config.seed),
            keys: [0; DATABASES as usize],
            pinned_bytes: 0,
            below: Below::default(),
            gets: 0,
            get_hits: 0,
            sets: 0,
            expired_on_access: 0,
            changes: Changes::default(),
            whose: Whose::new(config.tenancy.by),
            divider: config.divider(&shard),
            advised: Vec::new(),
            now_us: 0,
            shard,
            config,
        };
        engine.apply_settings();
        let owners = std::mem::take(&mut engine.config.tenancy.owners);
        engine.set_owners(&owners);
        Ok(engine)
    }

    /// Tells the engine the Unix time in milliseconds; it never asks a clock. Time does not go back.
    pub fn set_clock(&mut self, unix_ms: u64) {
        self.shard.set_clock(unix_ms);
    }

    /// The same in microseconds: with what misses cost to be measured, that is what they are measured in.
    pub fn set_clock_us(&mut self, unix_us: u64) {
        self.now_us = unix_us;
        self.set_clock(unix_us / 1000);
    }

    /// The time that [`Self::set_clock`] gave.
    pub fn clock_ms(&self) -> u64 {
        self.shard.now().unix_ms
    }

    /// Looks `key` up and counts the access.
    pub fn get(&mut self, db: u8, key: &[u8]) -> Option<Hit<'_>> {
        self.begin();
        self.gets += 1;
        let hash = self.items.hasher.hash(db, key);
        let Some(id) = self.find_in_memory(db, key, hash) else { return self.get_staged(db, key, hash) };
        self.note_hit(db, key, hash, id);
        Some(self.hit(id))
    }

    /// Counts a look-up that found its item in memory.
    #[inline]
    fn note_hit(&mut self, db: u8, key: &[u8], hash: u64, id: Id) {
        self.get_hits += 1;
        let tenant = self.note_look_up(db, key, hash, Outcome::Memory(id));
        self.shard.item(id).hit(Some(tenant));
    }

    /// Looks `key` up without counting: for commands that read, change and write.
    pub fn peek(&mut self, db: u8, key: &[u8]) -> Option<Hit<'_>> {
        let hash = self.items.hasher.hash(db, key);
        match self.find_in_memory(db, key, hash) {
            Some(id) => Some(self.hit(id)),
            None => self.peek_staged(db, key, hash),
        }
    }

    /// The value of a live item, charged as one range from its header to its end.
    fn hit(&self, id: Id) -> Hit<'_> {
        let loc = self.shard.ladder().residents().nodes().loc(id);
        let header = self.header(loc);
        self.items.tiers.charge_read(loc.tier, header.item_len());
        let value = self.items.tiers.bytes(loc, header.value_offset(), header.value_len as usize);
        Hit { value, kind: header.kind, item: ItemRef(id) }
    }

    #[inline]
    fn header(&self, loc: Loc) -> Header {
        self.items.header(loc)
    }

    /// The item of this key, expired or not.
    #[inline]
    fn find(&self, db: u8, key: &[u8], hash: u64) -> Option<Id> {
        self.shard.memory().find(hash, (db, key), &self.items)
    }

    /// The item of this key, unless its time is over; one that was read from flash is in memory then.
    #[inline]
    fn find_live(&mut self, db: u8, key: &[u8], hash: u64) -> Option<Id> {
        match self.find_in_memory(db, key, hash) {
            None if self.has_staged(db, key, hash) => self.unstage_into_memory(db, key, hash),
            found => found,
        }
    }

    /// One key less.
    #[inline]
    fn uncount(&mut self, db: u8) {
        let keys = &mut self.keys[usize::from(db)];
        *keys = keys.saturating_sub(1);
    }

    /// The item of this key in memory, unless its time is over; then it is removed.
    #[inline]
    fn find_in_memory(&mut self, db: u8, key: &[u8], hash: u64) -> Option<Id> {
        let id = self.find(db, key, hash)?;
        if self.shard.is_expired(id) {
            self.forget_copy(id, hash);
            self.changes.note(Change::Expired, db, key);
            self.note_gone(db, key, hash);
            self.forget(id, hash);
            self.expired_on_access += 1;
            return None;
        }
        Some(id)
    }

    /// Takes an item out of shard and accounts.
    fn forget(&mut self, id: Id, hash: u64) {
        let db = self.header(self.shard.ladder().residents().nodes().loc(id)).db;
        self.uncount(db);
        self.give_up_place(id, hash);
    }

    /// Takes an item out whose key stays.
    fn give_up_place(&mut self, id: Id, hash: u64) {
        let loc = self.shard.forget(id, hash, &self.items);
        self.unseal_item(loc);
    }

    /// Stores `value` under `key`. `Ok(false)` when the condition did not hold; nothing changed then.
    pub fn set(
        &mut self,
        db: u8,
        key: &[u8],
        value: &[u8],
        condition: Condition,
        expiry: Expiry,
    ) -> Result<bool, StoreError> {
        self.set_kind(db, key, (ValueKind::String, value), condition, expiry)
    }

    /// Stores a value of any kind under `key`, whatever was there; otherwise as [`Self::set`].
    pub fn set_kind(
        &mut self,
        db: u8,
        key: &[u8],
        (kind, value): (ValueKind, &[u8]),
        condition: Condition,
        expiry: Expiry,
    ) -> Result<bool, StoreError> {
        self.check_lengths(key.len(), value.len())?;
        self.begin();
        let hash = self.items.hasher.hash(db, key);
        let old = if condition == Condition::Always && expiry != Expiry::Keep {
            // What was there does not matter, and is not read from flash.
            self.find_in_memory(db, key, hash)
        } else {
            self.find_live(db, key, hash)
        };
        if (condition == Condition::IfAbsent && old.is_some())
            || (condition == Condition::IfPresent && old.is_none())
        {
            return Ok(false);
        }
        self.sets += 1;
        let tenant = self.tenant_for(db, key);
        let header =
            Header { value_len: value.len() as u32, key_len: key.len() as u16, db, kind, unchanged: false };
        let expires_at_ms = match expiry {
            Expiry::Never => None,
            Expiry::AtUnixMs(at_ms) => Some(at_ms),
            Expiry::Keep => old.and_then(|id| self.shard.ladder().residents().nodes().expires_at_ms(id)),
        };
        self.note_write(tenant, hash, self.place_len(header));
        let entry = self.entry(hash, header, expires_at_ms, tenant);
        let loc = match old {
            Some(old) => {
                self.forget_copy(old, hash);
                self.rewrite(old, &entry, db)?
            }
            None => {
                let loc = self.enter(&entry, db)?.1;
                self.supersede(db, hash);
                loc
            }
        };
        self.prepare_place(loc, header);
        let item = self.items.tiers.bytes_mut(loc, header.item_len());
        header.write(item);
        item[HEADER_BYTES..header.value_offset()].copy_from_slice(key);
        item[header.value_offset()..].copy_from_slice(value);
        self.seal_item(loc, header, expires_at_ms);
        self.items.tiers.charge_write(loc.tier, header.item_len());
        let expires = matches!(expiry, Expiry::AtUnixMs(_));
        self.changes.note(Change::Written { new: old.is_none(), expires }, db, key);
        Ok(true)
    }

    fn check_lengths(&self, key_len: usize, value_len: usize) -> Result<(), StoreError> {
        if key_len > KEY_BYTES_MAX {
            return Err(StoreError::KeyTooLarge);
        }
        if value_len > self.config.value_bytes_max {
            return Err(StoreError::ValueTooLarge { limit_bytes: self.config.value_bytes_max });
        }
        Ok(())
    }

    /// What a shard is told of an item.
    fn entry(&self, hash: u64, header: Header, expires_at_ms: Option<u64>, tenant: u16) -> Entry {
        Entry { hash, bytes: header.item_len() as u64, expires_at_ms, tenant }
    }

    /// A place for a new item, whose key counts then.
    fn enter(&mut self, entry: &Entry, db: u8) -> Result<(Id, Loc), StoreError> {
        self.shard.hold(self.divider.metadata_bytes());
        self.shard.enter(entry, &mut self.rng);
        self.carry_out();
        match self.entered() {
            Entered::Placed { id, loc, .. } => {
                self.keys[usize::from(db)] += 1;
                Ok((id, loc))
            }
            Entered::Full { .. } | Entered::Waits => Err(StoreError::OutOfMemory),
        }
    }

    /// A place for the new bytes of a live item: its own where they fit, else a new one in the same tier.
    fn rewrite(&mut self, old: Id, entry: &Entry, db: u8) -> Result<Loc, StoreError> {
        self.shard.hold(self.divider.metadata_bytes());
        self.shard.rewrite(old, entry, &self.items, &mut self.rng);
        self.carry_out();
        match self.entered() {
            Entered::Placed { loc, replaces, .. } => {
                replaces.into_iter().for_each(|old| self.give_up_place(old, entry.hash));
                Ok(loc)
            }
            Entered::Full { old_left } => {
                if old_left {
                    self.uncount(db);
                }
                Err(StoreError::OutOfMemory)
            }
            Entered::Waits => Err(StoreError::OutOfMemory),
        }
    }

    /// What became of an admission: memory is synchronous, so none waits.
    #[inline]
    fn entered(&mut self) -> Entered {
        let entered = self.shard.entered();
        debug_assert_ne!(entered, Entered::Waits, "moves have arrived when they are carried out");
        entered
    }

    /// The longest value, in bytes.
    pub fn value_bytes_max(&self) -> usize {
        self.config.value_bytes_max
    }

    /// Removes `key`; whether it was there.
    pub fn remove(&mut self, db: u8, key: &[u8]) -> bool {
        self.begin();
        let hash = self.items.hasher.hash(db, key);
        let found = match self.find_in_memory(db, key, hash) {
            Some(id) => {
                self.forget_copy(id, hash);
                self.forget(id, hash);
                true
            }
            None => self.remove_staged(db, key, hash),
        };
        if found {
            self.note_gone(db, key, hash);
            self.changes.note(Change::Removed, db, key);
        }
        found
    }

    /// Counts an access to `key` without reading it; whether it is there (`TOUCH`; `EXISTS` uses [`Self::peek`]).
    pub fn touch(&mut self, db: u8, key: &[u8]) -> bool {
        self.get(db, key).is_some()
    }

    /// `None`: no such key; `Some(None)`: it does not expire; `Some(Some(at))`: Unix time in ms.
    pub fn expires_at(&mut self, db: u8, key: &[u8]) -> Option<Option<u64>> {
        let hash = self.items.hasher.hash(db, key);
        match self.find_in_memory(db, key, hash) {
            Some(id) => Some(self.shard.ladder().residents().nodes().expires_at_ms(id)),
            None => self.staged_expiry(db, key, hash),
        }
    }

    /// Sets or (with `None`) removes the key's expiry; whether the key is there.
    pub fn set_expires_at(&mut self, db: u8, key: &[u8], at_unix_ms: Option<u64>) -> bool {
        self.begin();
        let hash = self.items.hasher.hash(db, key);
        let found = self.find_live(db, key, hash);
        if let Some(id) = found {
            self.forget_copy(id, hash);
            let change = if at_unix_ms.is_some() { Change::Expires } else { Change::Persisted };
            if at_unix_ms.is_some() || self.shard.ladder().residents().nodes().expires_at_ms(id).is_some() {
                self.changes.note(change, db, key);
            }
            self.shard.item(id).set_expires_at_ms(at_unix_ms);
            if self.items.tiers.keeping() != 0 {
                self.seal_again(id);
            }
        }
        found.is_some()
    }

    /// Keys in `db`, expired ones that were not yet collected among them.
    pub fn len(&self, db: u8) -> u64 {
        self.keys.get(usize::from(db)).copied().unwrap_or(0)
    }

    /// Visits about `count` keys of `db` from `cursor` (0 starts) and returns the next cursor, 0 at the end.
    /// A key that stays in the engine from the first call to the last is visited at least once, whatever is
    /// written or moved in between: the cursor is a position in the index's hash order, which nothing rearranges.
    pub fn scan(
        &mut self,
        db: u8,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(&[u8], ValueKind),
    ) -> u64 {
        let next = self.shard.memory().entries(cursor, count.max(1), |hash, found| match found {
            Found::Item(id) => {
                let loc = self.shard.ladder().residents().nodes().loc(id);
                let header = self.header(loc);
                let expired = self.shard.is_expired(id);
                self.items.tiers.charge_read(loc.tier, header.value_offset());
                if header.db == db && !expired {
                    visit(
                        self.items.tiers.bytes(loc, HEADER_BYTES, usize::from(header.key_len)),
                        header.kind,
                    );
                }
            }
            Found::Log(_) => self.visit_staged(db, hash, visit),
        });
        next.unwrap_or(0)
    }

    /// Bytes that `key` costs: its place and its share of the metadata.
    pub fn memory_usage(&mut self, db: u8, key: &[u8]) -> Option<u64> {
        let id = self.find_live(db, key, self.items.hasher.hash(db, key))?;
        let items = self.shard.ladder().residents().items().max(1);
        Some(
            self.shard.ladder().residents().place_bytes(id)
                + self.shard.ladder().metadata_bytes().div_ceil(items).min(64),
        )
    }
}
