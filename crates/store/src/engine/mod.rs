//! The key-value engine of one shard: keys, values and expiry over the tiers, without sockets.
//!
//! It runs on one thread and is handed the time. It owns the bytes ([`Tiers`]) and the index from keys to item
//! numbers; where each item lies and who goes is the [`Ladder`]'s decision. Every method is O(1) but `scan`, which
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
mod notes;
mod owners;
mod pin;
mod snapshot;
mod staged;
mod stats;
mod tenants;
mod tier_stats;
mod types;

use std::collections::VecDeque;
use std::sync::Arc;

use tiermem_base::Rng;
use tiermem_base::hash::KeyHasher;
pub use tiermem_model::advisor::{Aim, Declared, Division};
use tiermem_model::advisor::{Divider, Outcome};
use tiermem_policy::index::{Found, Index};
use tiermem_policy::ladder::{Act, Admit, Ladder, Loc, NewItem};
use tiermem_policy::{Id, Now};
use tiermem_tier::{TierError, Tiers};

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
pub use notes::{Change, Changes};
use owners::Whose;
pub use owners::{By, Owner, PREFIX_BYTES_MAX};
pub use pin::Pin;
pub use snapshot::{Gathered, Gathering, Restored};
pub use stats::EngineStats;
pub use tenants::{Tenancy, TenantStats, TenantTierStats};
pub use tier_stats::TierStats;
pub use types::{Condition, DATABASES, Eviction, Expiry, KEY_BYTES_MAX, StoreError, ValueKind};

/// How often an admission may have to wait for moves before it counts as failed; one is the rule.
const ADMIT_TRIES: usize = 8;

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

/// A move whose bytes are copied and which the ladder has not settled yet.
#[derive(Debug)]
struct Copied {
    id: Id,
    from: Loc,
    to: Loc,
    item_len: u64,
}

/// One shard's engine.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    ladder: Ladder,
    index: Index,
    tiers: Tiers,
    hasher: KeyHasher,
    rng: Rng,
    now: Now,
    /// Reused by every decision, so that deciding allocates nothing.
    acts: Vec<Act>,
    copied: VecDeque<Copied>,
    /// What is under way in tiers whose items outlive the process.
    keeping: Keeping,
    /// Bytes of header, key and value per tier.
    item_bytes: Vec<u64>,
    keys: [u64; DATABASES as usize],
    pinned_bytes: usize,
    /// The tier below the others.
    below: Below,
    gets: u64,
    get_hits: u64,
    sets: u64,
    refused: u64,
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
        let ladder = Ladder::new(config.ladder_config());
        // Pages are divided by this factor between size classes.
        let layout = config.ladder.class_factor.to_bits();
        let mut tiers = Tiers::new(&config.tier_specs(), layout, config.spin)?;
        tiers.announce_session(config.session);
        let mut engine = Engine {
            keeping: Keeping::over(&tiers),
            tiers,
            hasher: KeyHasher::seeded(config.seed),
            rng: Rng::seeded(config.seed),
            now: Now::default(),
            acts: Vec::with_capacity(256),
            copied: VecDeque::with_capacity(256),
            item_bytes: vec![0; ladder.levels()],
            keys: [0; DATABASES as usize],
            index: Index::default(),
            pinned_bytes: 0,
            below: Below::of(ladder.levels()),
            gets: 0,
            get_hits: 0,
            sets: 0,
            refused: 0,
            expired_on_access: 0,
            changes: Changes::default(),
            whose: Whose::new(config.tenancy.by),
            divider: config.divider(&ladder),
            advised: Vec::new(),
            now_us: 0,
            ladder,
            config,
        };
        engine.apply_settings();
        let owners = std::mem::take(&mut engine.config.tenancy.owners);
        engine.set_owners(&owners);
        Ok(engine)
    }

    /// Tells the engine the Unix time in milliseconds; it never asks a clock. Time does not go back.
    pub fn set_clock(&mut self, unix_ms: u64) {
        self.now.unix_ms = self.now.unix_ms.max(unix_ms);
    }

    /// The same in microseconds: with what misses cost to be measured, that is what they are measured in.
    pub fn set_clock_us(&mut self, unix_us: u64) {
        self.now_us = unix_us;
        self.set_clock(unix_us / 1000);
    }

    /// The time that [`Self::set_clock`] gave.
    pub fn clock_ms(&self) -> u64 {
        self.now.unix_ms
    }

    /// Looks `key` up and counts the access.
    pub fn get(&mut self, db: u8, key: &[u8]) -> Option<Hit<'_>> {
        self.begin();
        self.gets += 1;
        let hash = self.hasher.hash(db, key);
        let Some(id) = self.find_in_memory(db, key, hash) else { return self.get_staged(db, key, hash) };
        self.note_hit(db, key, hash, id);
        Some(self.hit(id))
    }

    /// Counts a look-up that found its item in memory.
    #[inline]
    fn note_hit(&mut self, db: u8, key: &[u8], hash: u64, id: Id) {
        self.get_hits += 1;
        let tenant = self.note_look_up(db, key, hash, Outcome::Memory(id));
        self.ladder.hit_of(Some(tenant), id, self.now);
    }

    /// Looks `key` up without counting: for commands that read, change and write.
    pub fn peek(&mut self, db: u8, key: &[u8]) -> Option<Hit<'_>> {
        let hash = self.hasher.hash(db, key);
        match self.find_in_memory(db, key, hash) {
            Some(id) => Some(self.hit(id)),
            None => self.peek_staged(db, key, hash),
        }
    }

    /// The value of a live item, charged as one range from its header to its end.
    fn hit(&self, id: Id) -> Hit<'_> {
        let loc = self.ladder.loc(id);
        let header = self.header(loc);
        self.tiers.charge_read(loc.tier, header.item_len());
        let value = self.tiers.bytes(loc, header.value_offset(), header.value_len as usize);
        Hit { value, kind: header.kind, item: ItemRef(id) }
    }

    #[inline]
    fn header(&self, loc: Loc) -> Header {
        Header::read(self.tiers.bytes(loc, 0, HEADER_BYTES))
    }

    /// The item of this key, expired or not.
    #[inline]
    fn find(&self, db: u8, key: &[u8], hash: u64) -> Option<Id> {
        self.index.find(hash, |id| {
            let loc = self.ladder.loc(id);
            let header = self.header(loc);
            let same = usize::from(header.key_len) == key.len()
                && header.db == db
                && self.tiers.bytes(loc, HEADER_BYTES, key.len()) == key;
            if !same {
                self.tiers.charge_read(loc.tier, header.value_offset());
            }
            same
        })
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
        if self.ladder.expires_at_ms(id).is_some_and(|at_ms| at_ms <= self.now.unix_ms) {
            self.forget_copy(id, hash);
            self.changes.note(Change::Expired, db, key);
            self.note_gone(db, key, hash);
            self.forget(id, hash);
            self.expired_on_access += 1;
            return None;
        }
        Some(id)
    }

    /// Takes an item out of index, ladder and accounts.
    fn forget(&mut self, id: Id, hash: u64) {
        let loc = self.ladder.loc(id);
        let header = self.header(loc);
        self.item_bytes[usize::from(loc.tier)] -= header.item_len() as u64;
        self.uncount(header.db);
        let found = self.index.remove(hash, id);
        debug_assert!(found, "a live item is in the index");
        self.unseal_item(loc);
        self.ladder.remove(id);
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
        let hash = self.hasher.hash(db, key);
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
            Expiry::Keep => old.and_then(|id| self.ladder.expires_at_ms(id)),
        };
        self.note_write(tenant, hash, self.place_len(header));
        let loc = match old {
            Some(old) => {
                self.forget_copy(old, hash);
                self.rewrite(old, hash, header, expires_at_ms, tenant)?
            }
            None => {
                let loc = self.enter(hash, header, expires_at_ms, None, tenant)?.1;
                self.supersede(db, hash);
                loc
            }
        };
        self.prepare_place(loc, header);
        let item = self.tiers.bytes_mut(loc, header.item_len());
        header.write(item);
        item[HEADER_BYTES..header.value_offset()].copy_from_slice(key);
        item[header.value_offset()..].copy_from_slice(value);
        self.seal_item(loc, header, expires_at_ms);
        self.tiers.charge_write(loc.tier, header.item_len());
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

    /// A place for a new item, which is in index and accounts then.
    fn enter(
        &mut self,
        hash: u64,
        header: Header,
        expires_at_ms: Option<u64>,
        rewrites: Option<Id>,
        tenant: u16,
    ) -> Result<(Id, Loc), StoreError> {
        self.report_outlet();
        let item = NewItem { key: hash, bytes: self.place_len(header), expires_at_ms, rewrites, tenant };
        let Some((id, loc)) = self.admit(&item) else {
            self.refused += 1;
            return Err(StoreError::OutOfMemory);
        };
        self.index.insert(hash, id);
        self.charge_index();
        self.item_bytes[usize::from(loc.tier)] += header.item_len() as u64;
        self.keys[usize::from(header.db)] += 1;
        Ok((id, loc))
    }

    /// Asks the ladder for a place until it has one or says that there is none.
    fn admit(&mut self, item: &NewItem) -> Option<(Id, Loc)> {
        let mut tries = 0;
        while tries < ADMIT_TRIES {
            let answer = self.ladder.admit(item, self.now, &mut self.rng, &mut self.acts);
            self.execute();
            tries += usize::from(answer != Admit::Again);
            match answer {
                Admit::Again => self.settle_all_moves(),
                Admit::Ready { id, loc } => return Some((id, loc)),
                Admit::After(ticket) => self.settle_moves(ticket),
                Admit::Full => return None,
            }
        }
        None
    }

    /// A place for the new bytes of a live item: its own where they fit, else a new one in the same tier.
    fn rewrite(
        &mut self,
        old: Id,
        hash: u64,
        header: Header,
        expires_at_ms: Option<u64>,
        tenant: u16,
    ) -> Result<Loc, StoreError> {
        self.ladder.touch(old, self.now);
        if self.stays_with(old, tenant) && self.ladder.rewrite_in_place(old, self.place_len(header)) {
            let loc = self.ladder.loc(old);
            let account = &mut self.item_bytes[usize::from(loc.tier)];
            *account = *account + header.item_len() as u64
                - Header::read(self.tiers.bytes(loc, 0, HEADER_BYTES)).item_len() as u64;
            self.ladder.set_expires_at_ms(old, expires_at_ms, self.now);
            return Ok(loc);
        }
        // Held, so that finding a place for the new bytes does not throw out the old ones.
        let held = self.ladder.pin(old);
        let entered = self.enter(hash, header, expires_at_ms, Some(old), tenant);
        self.ladder.unpin(held);
        match entered {
            Ok((_, loc)) => {
                self.forget(old, hash);
                Ok(loc)
            }
            // Taking the old value out would not help.
            Err(full)
                if self.config_eviction_forbidden() || !self.ladder.could_hold(self.place_len(header)) =>
            {
                Err(full)
            }
            Err(_) => {
                // It may be the old item itself that stands in the way.
                self.forget(old, hash);
                self.enter(hash, header, expires_at_ms, None, tenant).map(|(_, loc)| loc)
            }
        }
    }

    /// The longest value, in bytes.
    pub fn value_bytes_max(&self) -> usize {
        self.config.value_bytes_max
    }

    /// Removes `key`; whether it was there.
    pub fn remove(&mut self, db: u8, key: &[u8]) -> bool {
        self.begin();
        let hash = self.hasher.hash(db, key);
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
        let hash = self.hasher.hash(db, key);
        match self.find_in_memory(db, key, hash) {
            Some(id) => Some(self.ladder.expires_at_ms(id)),
            None => self.staged_expiry(db, key, hash),
        }
    }

    /// Sets or (with `None`) removes the key's expiry; whether the key is there.
    pub fn set_expires_at(&mut self, db: u8, key: &[u8], at_unix_ms: Option<u64>) -> bool {
        self.begin();
        let hash = self.hasher.hash(db, key);
        let found = self.find_live(db, key, hash);
        if let Some(id) = found {
            self.forget_copy(id, hash);
            let change = if at_unix_ms.is_some() { Change::Expires } else { Change::Persisted };
            if at_unix_ms.is_some() || self.ladder.expires_at_ms(id).is_some() {
                self.changes.note(change, db, key);
            }
            self.ladder.set_expires_at_ms(id, at_unix_ms, self.now);
            if self.tiers.keeping() != 0 {
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
        let next = self.index.scan(cursor, count.max(1), |hash, found| match found {
            Found::Item(id) => {
                let loc = self.ladder.loc(id);
                let header = self.header(loc);
                let expired = self.ladder.expires_at_ms(id).is_some_and(|at_ms| at_ms <= self.now.unix_ms);
                self.tiers.charge_read(loc.tier, header.value_offset());
                if header.db == db && !expired {
                    visit(self.tiers.bytes(loc, HEADER_BYTES, usize::from(header.key_len)), header.kind);
                }
            }
            Found::Log(_) => self.visit_staged(db, hash, visit),
        });
        next.unwrap_or(0)
    }

    /// Bytes that `key` costs: its place and its share of the metadata.
    pub fn memory_usage(&mut self, db: u8, key: &[u8]) -> Option<u64> {
        let id = self.find_live(db, key, self.hasher.hash(db, key))?;
        let items = self.ladder.items().max(1);
        Some(self.ladder.place_bytes(id) + self.ladder.metadata_bytes().div_ceil(items).min(64))
    }
}
