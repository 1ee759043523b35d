//! Key-value engine of one shard: keys, values and expiry over the tiers, without sockets.
//!
//! It runs on one thread and gets the time as an argument. It owns the bytes. A
//! [`Shard`](tiermem_policy::shard::Shard), which the simulator drives in the same way, decides where each
//! item lies and which are evicted. Every method is O(1) except those that walk over keys, and none does I/O.
//!
//! A look-up: the key's hash finds an item number in the index; the number finds the place in the ladder's
//! node array; the key is compared there, in the item's tier; the ladder records the hit, which writes the
//! node and at most one list; the value is returned in place. Every few requests, before the next one, the
//! ladder runs a step of its background work, and the engine copies the items that it decided to move.
//!
//! # Parts
//!
//! Each part owns its fields and is borrowed apart from the others:
//!
//! ```text
//! Engine             requests: get, set, remove, expiry          mod
//! └─ Contents        operations that cross the parts below       contents, expiry, maintain
//!    ├─ Shard        where items lie and which are evicted       policy::shard
//!    ├─ Memory       bytes of items, and the flash device        memory
//!    ├─ Keeping      seals of items that outlive the process     seal
//!    ├─ KeyCounts    number of keys in each database             key_counts
//!    ├─ TenantAccounts   keys to tenants, tenants' shares        tenants, owners
//!    ├─ Changes      changes to keys, if observed                keyspace_events
//!    ├─ Pins         values that replies have pinned           pin, pinned_values
//!    ├─ StagedItems  read from flash for the current request     staged
//!    ├─ FlashWaiters waiting for space or for durability         flash_waiters
//!    ├─ FlashDescription   name and life of the device           flash_figures
//!    ├─ Losses       lost parts of tiers that outlive the process  lost
//!    └─ Counters     requests and their effects                  counters
//! ```
//!
//! Beside requests an engine has interfaces for one kind of caller each: [`FlashReads`] for code that reads
//! flash ahead of requests, [`FlashTier`] for the server's loop, [`TenantsMut`] for the configuration and
//! the advisor, [`MemoryTiersMut`] for shards that give memory to each other, [`Keyspace`] for commands on
//! keys, [`ValuesInPlace`] for values with an inner order, [`WarmStart`] and [`Restoring`] for the start.

mod advice;
mod capacity;
mod change;
mod config;
mod contents;
mod counters;
mod expiry;
mod flash;
mod flash_figures;
mod flash_reads;
mod flash_waiters;
mod item;
mod key_counts;
mod keys;
mod keyspace_events;
mod losses;
mod lost;
mod maintain;
mod memory;
mod owners;
mod pin;
mod pinned_values;
mod prefetch;
mod seal;
mod snapshot;
mod staged;
mod staged_reads;
mod stats;
mod tenants;
mod tier_stats;
mod types;
mod warm_start;

use crate::flash::Moment;
use crate::tiers::TierError;
use tiermem_base::TierSpec;
pub use tiermem_model::advisor::{Aim, Declared, Division};
use tiermem_policy::Id;

pub use advice::{DivisionStats, TenantAdvice};
pub use capacity::{MemoryTiers, MemoryTiersMut};
pub use change::{ValueMut, ValuesInPlace};
pub use config::{AHEAD_BYTES, EngineConfig};
use contents::Contents;
pub use counters::Counters;
pub use expiry::BetweenRequests;
pub use flash::FlashTier;
pub use flash_figures::FlashFigures;
pub use flash_reads::{FlashKey, FlashReads};
pub use item::HEADER_BYTES;
pub use keys::{Keyspace, RANDOM_SAMPLE};
pub use keyspace_events::{Change, Changes};
pub use losses::LossReport;
pub use lost::LostParts;
pub use owners::{By, Owner, PREFIX_BYTES_MAX};
pub use pin::{Holder, Pin};
pub use pinned_values::PinnedValues;
pub use prefetch::FORESEEN_MAX;
pub use seal::{Keeping, TakenUp};
pub use snapshot::{Gathered, Gathering, Restored, Restoring};
pub use stats::EngineStats;
pub use tenants::{Tenancy, TenantAccounts, TenantStats, TenantTierStats, TenantsMut};
pub use tier_stats::TierStats;
pub use types::{Condition, DATABASES, Eviction, Expiry, KEY_BYTES_MAX, StoreError, ValueKind};
pub use warm_start::WarmStart;

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
    /// The item, for [`PinnedValues::pin`].
    pub item: ItemRef,
}

/// One shard's engine.
#[derive(Debug)]
pub struct Engine {
    contents: Contents,
    /// The tiers as they were configured.
    tiers: Vec<TierSpec>,
}

impl Engine {
    /// Sets the tiers up. Memory is taken as it is used.
    pub fn new(config: EngineConfig) -> Result<Self, TierError> {
        let contents = Contents::new(&config)?;
        let mut engine = Engine { contents, tiers: config.tiers };
        engine.tenants_mut().set_owners(&config.tenancy.owners);
        Ok(engine)
    }

    /// The flash tier below memory.
    #[inline]
    pub fn flash(&mut self) -> FlashTier<'_> {
        self.contents.flash_tier()
    }

    /// The same, to be read for requests.
    #[inline]
    pub fn flash_reads(&mut self) -> FlashReads<'_> {
        self.contents.flash_reads()
    }

    /// Tenants of keys, and the tenants' shares.
    pub fn tenants(&self) -> &TenantAccounts {
        &self.contents.tenants
    }

    /// The same, to be changed.
    pub fn tenants_mut(&mut self) -> TenantsMut<'_> {
        let Contents { tenants, shard, .. } = &mut self.contents;
        TenantsMut { accounts: tenants, shard }
    }

    /// Recorded changes of keys.
    #[inline]
    pub fn changes(&mut self) -> &mut Changes {
        &mut self.contents.changes
    }

    /// Keys as such.
    #[inline]
    pub fn keyspace(&mut self) -> Keyspace<'_> {
        Keyspace { contents: &mut self.contents }
    }

    /// Values to be changed where they lie.
    #[inline]
    pub fn in_place(&mut self) -> ValuesInPlace<'_> {
        ValuesInPlace { contents: &mut self.contents }
    }

    /// The tiers that are memory.
    #[inline]
    pub fn memory(&self) -> MemoryTiers<'_> {
        MemoryTiers { contents: &self.contents }
    }

    /// The same, to be changed.
    #[inline]
    pub fn memory_mut(&mut self) -> MemoryTiersMut<'_> {
        MemoryTiersMut { contents: &mut self.contents }
    }

    /// Items that outlive the process in place.
    pub fn kept(&self) -> &Keeping {
        &self.contents.keeping
    }

    /// To take it up, and to write it back.
    pub fn warm_start(&mut self) -> WarmStart<'_> {
        self.contents.warm_start()
    }

    /// To take a snapshot in.
    pub fn restoring(&mut self) -> Restoring<'_> {
        Restoring { contents: &mut self.contents }
    }

    /// Tells the engine the Unix time in milliseconds; it never asks a clock. Time does not go back.
    pub fn set_clock(&mut self, unix_ms: u64) {
        self.contents.shard.set_clock(unix_ms);
    }

    /// The same in microseconds: with what misses cost to be measured, that is what they are measured in.
    pub fn set_clock_us(&mut self, unix_us: u64) {
        self.contents.tenants.set_clock_us(unix_us);
        self.set_clock(unix_us / 1000);
    }

    /// The time that [`Self::set_clock`] gave.
    pub fn clock_ms(&self) -> u64 {
        self.contents.shard.now().unix_ms
    }

    /// Requests that the engine has served, which is its time.
    pub fn requests(&self) -> u64 {
        self.contents.shard.now().requests
    }

    /// Looks `key` up and counts the access.
    pub fn get(&mut self, db: u8, key: &[u8]) -> Option<Hit<'_>> {
        let contents = &mut self.contents;
        contents.begin();
        contents.counters.gets += 1;
        let hash = contents.items.hash(db, key);
        let Some(id) = contents.find_in_memory(db, key, hash) else {
            return contents.staged_reads().get(db, key, hash);
        };
        contents.note_hit(db, key, hash, id);
        Some(contents.hit(id))
    }

    /// Looks `key` up and counts the access, as [`Self::get`], for a caller that reads only parts of the value and has
    /// them charged with [`Self::charge_read`].
    pub fn look_up(&mut self, db: u8, key: &[u8]) -> Option<Hit<'_>> {
        let contents = &mut self.contents;
        contents.begin();
        contents.counters.gets += 1;
        let hash = contents.items.hash(db, key);
        let Some(id) = contents.find_in_memory(db, key, hash) else {
            return contents.staged_reads().get(db, key, hash);
        };
        contents.note_hit(db, key, hash, id);
        let loc = contents.shard.ladder().residents().nodes().loc(id);
        let header = contents.items.header(loc);
        Some(Hit { value: contents.items.value(loc, header), kind: header.kind, item: ItemRef(id) })
    }

    /// Looks `key` up without counting: for commands that read, change and write.
    pub fn peek(&mut self, db: u8, key: &[u8]) -> Option<Hit<'_>> {
        let contents = &mut self.contents;
        let hash = contents.items.hash(db, key);
        match contents.find_in_memory(db, key, hash) {
            Some(id) => Some(contents.hit(id)),
            None => contents.staged_reads().peek(db, key, hash),
        }
    }

    /// The value of an item that was just looked up; uncharged.
    pub fn value(&self, item: ItemRef) -> &[u8] {
        let Contents { staged, shard, items, .. } = &self.contents;
        if let Some(value) = staged.value(item) {
            return value;
        }
        let loc = shard.ladder().residents().nodes().loc(item.0);
        items.value(loc, items.header(loc))
    }

    /// Charges the reading of a contiguous part, of `len` bytes, of an item that was just looked up.
    pub fn charge_read(&self, item: ItemRef, len: usize) {
        let Contents { staged, shard, items, .. } = &self.contents;
        if staged.value(item).is_none() {
            items.tiers.charge_read(shard.ladder().residents().nodes().loc(item.0).tier, len);
        }
    }

    /// Values that stay as they are while a reply sends them.
    #[inline]
    pub fn pins(&mut self) -> PinnedValues<'_> {
        self.contents.pinned_values()
    }

    /// The bytes of a pinned value. `None`: others needed their room, and its holder is among [`PinnedValues::take_robbed`].
    pub fn pinned<'a>(&'a self, pin: &'a Pin) -> Option<&'a [u8]> {
        self.contents.pins.bytes_of(pin, &self.contents.items)
    }

    /// Bytes of pinned values that were copied, as others needed their places.
    #[inline]
    pub fn copied_bytes(&self) -> usize {
        self.contents.pins.copied_bytes()
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

    /// Stores a value of any kind under `key`, replacing a value of any kind; otherwise as [`Self::set`].
    pub fn set_kind(
        &mut self,
        db: u8,
        key: &[u8],
        value: (ValueKind, &[u8]),
        condition: Condition,
        expiry: Expiry,
    ) -> Result<bool, StoreError> {
        self.contents.set(db, key, value, condition, expiry)
    }

    /// The longest value, in bytes.
    pub fn value_bytes_max(&self) -> usize {
        self.contents.value_bytes_max
    }

    /// Removes `key`; whether it was there.
    pub fn remove(&mut self, db: u8, key: &[u8]) -> bool {
        let contents = &mut self.contents;
        contents.begin();
        let hash = contents.items.hash(db, key);
        let found = match contents.find_in_memory(db, key, hash) {
            Some(id) => {
                contents.forget_copy(id, hash);
                contents.forget(id, hash);
                true
            }
            None => contents.staged_reads().remove(db, key, hash),
        };
        if found {
            contents.tenants.removed(db, key, hash);
            contents.changes.note(Change::Removed, db, key);
        } else {
            // That it is gone was another's doing, and must not be undone either.
            contents.note_change(hash);
        }
        found
    }

    /// `None`: no such key; `Some(None)`: it does not expire; `Some(Some(at))`: Unix time in ms.
    pub fn expires_at(&mut self, db: u8, key: &[u8]) -> Option<Option<u64>> {
        let contents = &mut self.contents;
        let hash = contents.items.hash(db, key);
        match contents.find_in_memory(db, key, hash) {
            Some(id) => Some(contents.shard.ladder().residents().nodes().expires_at_ms(id)),
            None => contents.staged_reads().expires_at(db, key, hash),
        }
    }

    /// Sets or (with `None`) removes the key's expiry; whether the key is there.
    pub fn set_expires_at(&mut self, db: u8, key: &[u8], at_unix_ms: Option<u64>) -> bool {
        let contents = &mut self.contents;
        contents.begin();
        let hash = contents.items.hash(db, key);
        let Some(id) = contents.find_live(db, key, hash) else { return false };
        contents.forget_copy(id, hash);
        let Contents { shard, items, keeping, changes, .. } = contents;
        let change = if at_unix_ms.is_some() { Change::Expires } else { Change::Persisted };
        if at_unix_ms.is_some() || shard.ladder().residents().nodes().expires_at_ms(id).is_some() {
            changes.note(change, db, key);
        }
        shard.item(id).set_expires_at_ms(at_unix_ms);
        if items.tiers.keeping() != 0 {
            keeping.seal_again(&mut items.tiers, shard.ladder().residents(), id);
        }
        true
    }

    /// Keys in `db`, expired ones that were not yet collected among them.
    pub fn len(&self, db: u8) -> u64 {
        self.contents.keys.of(db)
    }

    /// Removes every key of one database or, with `None`, of all. All at once where no other database has keys.
    pub fn flush(&mut self, db: Option<u8>) {
        self.contents.flush(db);
    }

    /// Makes room for an item of `item_bytes`, if it is a large one, a piece at a time. Returns
    /// whether the item can be written now, though it may still be refused. A caller with other
    /// requests to serve calls again after them. Without these calls the write itself makes the room.
    pub fn make_room(&mut self, item_bytes: usize) -> bool {
        self.contents.make_room(item_bytes)
    }

    /// The work that no request asks for.
    pub fn between_requests(&mut self) -> BetweenRequests<'_> {
        BetweenRequests { contents: &mut self.contents }
    }

    /// Hands to the device what was decided, and writes what a restart must know. Before replies are sent; they wait until
    /// the moment returned [is durable](FlashTier::is_durable).
    #[inline]
    pub fn commit(&mut self) -> Moment {
        let Contents { keeping, items, shard, .. } = &mut self.contents;
        keeping.seal_changed(&mut items.tiers, shard.ladder().residents());
        items.flash.as_mut().map_or_else(Moment::default, |flash| flash.commit())
    }

    /// A random number, for choices that a client asks for.
    pub fn draw(&mut self) -> u64 {
        self.contents.rng.next_u64()
    }

    /// Effects of requests since the start.
    pub fn counters(&self) -> Counters {
        self.contents.counters
    }

    /// All figures.
    pub fn stats(&self) -> EngineStats {
        self.contents.stats(&self.tiers)
    }
}
