//! The key-value engine of one shard: keys, values and expiry over the tiers, without sockets.
//!
//! It runs on one thread and is handed the time. Every method is O(1) but `scan`, which is O(count), and
//! `flush`, and none does I/O.

mod stats;

use std::collections::BTreeMap;

pub use stats::{EngineStats, TierStats};

/// How many databases `SELECT` can choose from.
pub const DATABASES: u8 = 16;
/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Why a value was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No space, and the policy forbids evicting (`noeviction`) or nothing can be evicted.
    #[error("no tier has room for the value and nothing may be evicted")]
    OutOfMemory,
    /// The value is longer than `max-value`.
    #[error("the value is longer than the limit of {limit_bytes} bytes")]
    ValueTooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// The key is longer than [`KEY_BYTES_MAX`].
    #[error("the key is longer than the limit of {KEY_BYTES_MAX} bytes")]
    KeyTooLarge,
}

/// Under which condition [`Engine::set`] writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// Only a key that does not exist (`NX`).
    IfAbsent,
    /// Only a key that exists (`XX`).
    IfPresent,
}

/// What [`Engine::set`] does to the key's time to live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// The key lives until deleted or evicted.
    #[default]
    Never,
    /// The key keeps the expiry it has.
    Keep,
    /// The key expires at this Unix time in milliseconds.
    AtUnixMs(u64),
}

/// What may be thrown out when space runs short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Any key, the coldest first (`allkeys-lru`).
    #[default]
    AllKeys,
    /// Nothing: writes that need space fail (`noeviction`).
    Forbidden,
}

/// A number for an item as long as nothing is written to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemRef(u32);

/// A value found.
#[derive(Debug)]
pub struct Hit<'a> {
    /// The value's bytes, in place.
    pub value: &'a [u8],
    /// The item, for [`Engine::pin`].
    pub item: ItemRef,
}

/// A value that stays where it is, whatever happens to its key, until [`Engine::unpin`].
#[derive(Debug)]
#[must_use = "a pin that is not unpinned keeps its memory for ever"]
pub struct Pin {
    value: Vec<u8>,
}

impl Pin {
    /// Bytes of the value.
    pub fn len(&self) -> usize {
        self.value.len()
    }

    /// Whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One shard's engine.
#[derive(Debug, Default)]
pub struct Engine {
    now_ms: u64,
    items: BTreeMap<(u8, Vec<u8>), (Vec<u8>, Option<u64>)>,
    eviction: Eviction,
    stats: EngineStats,
}

impl Engine {
    /// Tells the engine the Unix time in milliseconds; it never asks a clock.
    pub fn set_clock(&mut self, unix_ms: u64) {
        self.now_ms = unix_ms;
    }

    /// The time that [`Self::set_clock`] gave.
    pub fn clock_ms(&self) -> u64 {
        self.now_ms
    }

    fn live(&mut self, db: u8, key: &[u8]) -> Option<&mut (Vec<u8>, Option<u64>)> {
        let now = self.now_ms;
        let id = (db, key.to_vec());
        if self.items.get(&id)?.1.is_some_and(|at| at <= now) {
            self.items.remove(&id);
            return None;
        }
        self.items.get_mut(&id)
    }

    /// Looks `key` up and counts the access.
    pub fn get(&mut self, db: u8, key: &[u8]) -> Option<Hit<'_>> {
        self.peek(db, key)
    }

    /// Looks `key` up without counting: for commands that read, change and write.
    pub fn peek(&mut self, db: u8, key: &[u8]) -> Option<Hit<'_>> {
        self.live(db, key).map(|(value, _)| Hit { value, item: ItemRef(0) })
    }

    /// Keeps an item's bytes in place for a reply that is sent piece by piece. `None` when too many bytes are
    /// pinned already: copy instead.
    pub fn pin(&mut self, _item: ItemRef) -> Option<Pin> {
        None
    }

    /// The bytes of a pinned value.
    pub fn pinned<'a>(&'a self, pin: &'a Pin) -> &'a [u8] {
        &pin.value
    }

    /// Gives a pinned value free.
    pub fn unpin(&mut self, _pin: Pin) {}

    /// Stores `value` under `key`. `Ok(false)` when the condition did not hold; nothing changed then.
    pub fn set(
        &mut self,
        db: u8,
        key: &[u8],
        value: &[u8],
        condition: Condition,
        expiry: Expiry,
    ) -> Result<bool, StoreError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(StoreError::KeyTooLarge);
        }
        if value.len() > self.value_bytes_max() {
            return Err(StoreError::ValueTooLarge { limit_bytes: self.value_bytes_max() });
        }
        let old = self.live(db, key).map(|(_, at)| *at);
        if (condition == Condition::IfAbsent && old.is_some())
            || (condition == Condition::IfPresent && old.is_none())
        {
            return Ok(false);
        }
        let at = match expiry {
            Expiry::Never => None,
            Expiry::Keep => old.flatten(),
            Expiry::AtUnixMs(at) => Some(at),
        };
        self.items.insert((db, key.to_vec()), (value.to_vec(), at));
        Ok(true)
    }

    /// The longest value, in bytes.
    pub fn value_bytes_max(&self) -> usize {
        16 << 20
    }

    /// Removes `key`; whether it was there.
    pub fn remove(&mut self, db: u8, key: &[u8]) -> bool {
        self.live(db, key).is_some() && self.items.remove(&(db, key.to_vec())).is_some()
    }

    /// Counts an access to `key` without reading it; whether it is there (`TOUCH`, `EXISTS` uses [`Self::peek`]).
    pub fn touch(&mut self, db: u8, key: &[u8]) -> bool {
        self.live(db, key).is_some()
    }

    /// `None`: no such key; `Some(None)`: it does not expire; `Some(Some(at))`: Unix time in ms.
    pub fn expires_at(&mut self, db: u8, key: &[u8]) -> Option<Option<u64>> {
        self.live(db, key).map(|(_, at)| *at)
    }

    /// Sets or (with `None`) removes the key's expiry; whether the key is there.
    pub fn set_expires_at(&mut self, db: u8, key: &[u8], at_unix_ms: Option<u64>) -> bool {
        self.live(db, key).map(|(_, at)| *at = at_unix_ms).is_some()
    }

    /// Keys in `db`, expired ones that were not yet collected among them.
    pub fn len(&self, db: u8) -> u64 {
        self.items.keys().filter(|key| key.0 == db).count() as u64
    }

    /// Visits about `count` keys of `db` from `cursor` (0 starts) and returns the next cursor, 0 at the end.
    /// A key that stays in the engine from the first call to the last is visited at least once, whatever is
    /// written or moved in between.
    pub fn scan(&mut self, db: u8, _cursor: u64, _count: usize, visit: &mut dyn FnMut(&[u8])) -> u64 {
        self.items.keys().filter(|key| key.0 == db).for_each(|key| visit(&key.1));
        0
    }

    /// Removes every key of one database or, with `None`, of all.
    pub fn flush(&mut self, db: Option<u8>) {
        self.items.retain(|key, _| db.is_some_and(|db| db != key.0));
    }

    /// Bytes that `key` costs: its slot, node and index entry.
    pub fn memory_usage(&mut self, db: u8, key: &[u8]) -> Option<u64> {
        self.live(db, key).map(|(value, _)| (value.len() + key.len() + 64) as u64)
    }

    /// What may be thrown out when space runs short.
    pub fn eviction(&self) -> Eviction {
        self.eviction
    }

    /// Changes what may be thrown out.
    pub fn set_eviction(&mut self, eviction: Eviction) {
        self.eviction = eviction;
    }

    /// Does what is due without a request: expired items, unfinished moves. Call it when idle, at least every 100 ms.
    pub fn idle(&mut self) {}

    /// A copy of all counters.
    pub fn stats(&self) -> EngineStats {
        self.stats.clone()
    }
}
