//! Client-side caching: which clients may hold which keys, and telling them when a key has changed.
//!
//! A tracking client that reads a key is remembered in a table from keys to clients; the first change of the key
//! tells them all and forgets it. The table is bounded in keys and in bytes: what does not fit pushes another key out,
//! round and round in the order of their names, and whoever was remembered for that is told as if it had changed.
//! A client in broadcast mode is told of every change under its prefixes, and needs no table.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::{Clients, Slot, TooMuch};
use crate::engine::Change;
use crate::resp::{Version, Writer};

/// Keys in the table unless `tracking-table-max-keys` says otherwise; Redis's default.
pub const TABLE_KEYS_MAX: usize = 1_000_000;
/// Bytes of the table, whatever the number of keys.
const TABLE_BYTES_MAX: usize = 16 << 20;
/// What a key costs beside its bytes: its place in the tree and its list of clients.
const KEY_OVERHEAD_BYTES: usize = 96;
const CLIENT_BYTES: usize = size_of::<u64>();
/// Where a client that speaks RESP2 is told, on another connection.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// Prefixes of keys.
pub type Prefixes = BTreeSet<Box<[u8]>>;

/// How a client wants to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackingMode {
    /// The client that is told in its place; 0: itself.
    pub redirect: u64,
    /// Of all keys under its prefixes, read or not.
    pub broadcast: bool,
    /// Only keys read behind `CLIENT CACHING YES`.
    pub opt_in: bool,
    /// All keys but those read behind `CLIENT CACHING NO`.
    pub opt_out: bool,
    /// Not of its own changes.
    pub no_loop: bool,
    /// `CLIENT CACHING` was given for the next request.
    pub caching: bool,
    /// The client that is told in its place has gone.
    pub broken: bool,
    /// The prefixes of broadcast mode.
    pub prefixes: Prefixes,
}

/// Who may hold which keys.
#[derive(Debug)]
pub(super) struct Tracking {
    /// Clients in ascending order for each key.
    table: BTreeMap<Box<[u8]>, Vec<u64>>,
    pub(super) bytes: usize,
    keys_max: usize,
    /// The key last pushed out: the next one goes next.
    hand: Box<[u8]>,
    prefixes: BTreeMap<Box<[u8]>, BTreeSet<u64>>,
    clients: BTreeSet<u64>,
}

impl Default for Tracking {
    fn default() -> Self {
        Tracking {
            table: BTreeMap::new(),
            bytes: 0,
            keys_max: TABLE_KEYS_MAX,
            hand: Box::default(),
            prefixes: BTreeMap::new(),
            clients: BTreeSet::new(),
        }
    }
}

impl Tracking {
    pub(super) fn is_used(&self) -> bool {
        !self.clients.is_empty() || !self.table.is_empty()
    }

    fn take(&mut self, key: &[u8]) -> Option<Vec<u64>> {
        let ids = self.table.remove(key)?;
        self.bytes -= key.len() + KEY_OVERHEAD_BYTES + ids.len() * CLIENT_BYTES;
        Some(ids)
    }

    /// The next key to push out while the table is too large.
    fn surplus(&mut self) -> Option<Box<[u8]>> {
        if self.table.len() <= self.keys_max && self.bytes <= TABLE_BYTES_MAX {
            return None;
        }
        let behind = (Bound::Excluded(&*self.hand), Bound::Unbounded);
        let next = self.table.range::<[u8], _>(behind).next().or_else(|| self.table.iter().next());
        self.hand = next?.0.clone();
        Some(self.hand.clone())
    }
}

impl Clients {
    /// Begins or changes a client's tracking. `added` are prefixes beside those it has.
    pub fn start_tracking(&mut self, slot: Slot, mode: TrackingMode, added: Prefixes) -> Result<(), TooMuch> {
        let mut prefixes = self.tracking_mode(slot).map(|it| it.prefixes.clone()).unwrap_or_default();
        let id = self.entry(slot).id;
        for prefix in added {
            if !prefixes.contains(&prefix) {
                self.remember(prefix.len())?;
                self.tracking.prefixes.entry(prefix.clone()).or_default().insert(id);
                prefixes.insert(prefix);
            }
        }
        self.entry_mut(slot).tracking = Some(Box::new(TrackingMode { prefixes, ..mode }));
        self.tracking.clients.insert(id);
        self.update_attention();
        Ok(())
    }

    /// Ends a client's tracking. What it may hold stays in the table until it changes.
    pub fn stop_tracking(&mut self, slot: Slot) {
        let entry = self.entry_mut(slot);
        let Some(mode) = entry.tracking.take() else { return };
        let id = entry.id;
        for prefix in &mode.prefixes {
            self.unremember(prefix.len());
            if let Some(ids) = self.tracking.prefixes.get_mut(prefix) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.tracking.prefixes.remove(prefix);
                }
            }
        }
        self.tracking.clients.remove(&id);
        if self.tracking.clients.is_empty() {
            // Nobody is left to be told.
            self.tracking = Tracking { keys_max: self.tracking.keys_max, ..Tracking::default() };
        }
        self.update_attention();
    }

    /// How a client is told, if it is.
    pub fn tracking_mode(&self, slot: Slot) -> Option<&TrackingMode> {
        self.entry(slot).tracking.as_deref()
    }

    /// Sets whether `CLIENT CACHING` was given for the next request.
    pub fn set_caching(&mut self, slot: Slot, on: bool) {
        if let Some(mode) = &mut self.entry_mut(slot).tracking {
            mode.caching = on;
        }
    }

    /// Keys in the table at most (`tracking-table-max-keys`); 0 stands for no limit but that of bytes.
    pub fn set_tracked_keys_max(&mut self, keys: usize) {
        self.tracking.keys_max = if keys == 0 { usize::MAX } else { keys };
        self.push_out_surplus();
    }

    /// Keys in the table, and clients that track.
    pub fn tracked(&self) -> (usize, usize) {
        (self.tracking.table.len(), self.tracking.clients.len())
    }

    /// Remembers that a client has read a key.
    pub fn remember_read(&mut self, slot: Slot, key: &[u8]) {
        let id = self.entry(slot).id;
        let tracking = &mut self.tracking;
        if let Some(ids) = tracking.table.get_mut(key) {
            if let Err(at) = ids.binary_search(&id) {
                ids.insert(at, id);
                tracking.bytes += CLIENT_BYTES;
            }
        } else {
            tracking.table.insert(key.into(), vec![id]);
            tracking.bytes += key.len() + KEY_OVERHEAD_BYTES + CLIENT_BYTES;
        }
        self.push_out_surplus();
    }

    fn push_out_surplus(&mut self) {
        while let Some(key) = self.tracking.surplus() {
            self.invalidate_read(&key, 0);
        }
    }

    /// Tells those who may hold a key that it has changed; `author` is the client that changed it.
    pub(super) fn invalidate(&mut self, change: Change, key: &[u8], author: u64) {
        if !self.tracking.is_used() {
            return;
        }
        if let Change::Flushed(_) = change {
            self.tracking.table.clear();
            self.tracking.bytes = 0;
            for id in self.tracking.clients.clone() {
                self.tell_invalid(id, None);
            }
            return;
        }
        let prefixes = self.tracking.prefixes.iter().filter(|(prefix, _)| key.starts_with(prefix));
        let told: Vec<u64> = prefixes.flat_map(|(_, ids)| ids.iter().copied()).collect();
        for id in told {
            if !self.is_spared(id, author) {
                self.tell_invalid(id, Some(key));
            }
        }
        self.invalidate_read(key, author);
    }

    fn invalidate_read(&mut self, key: &[u8], author: u64) {
        for id in self.tracking.take(key).unwrap_or_default() {
            let broadcast = self.mode_of(id).is_none_or(|mode| mode.broadcast);
            if !broadcast && !self.is_spared(id, author) {
                self.tell_invalid(id, Some(key));
            }
        }
    }

    fn mode_of(&self, id: u64) -> Option<&TrackingMode> {
        self.tracking_mode(self.find(id)?)
    }

    fn is_spared(&self, id: u64, author: u64) -> bool {
        id == author && self.mode_of(id).is_some_and(|mode| mode.no_loop)
    }

    /// Sends one invalidation; without a key all are meant.
    fn tell_invalid(&mut self, id: u64, key: Option<&[u8]>) {
        let Some(slot) = self.find(id) else { return };
        let Some(mode) = &self.entry(slot).tracking else { return };
        let redirect = mode.redirect;
        let told = if redirect == 0 { Some(slot) } else { self.find(redirect) };
        let Some(told) = told else {
            return self.tell_redirect_broken(slot, redirect);
        };
        let version = self.entry(told).client_info.version;
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, version);
        match version {
            Version::Resp3 => {
                writer.push(2);
                writer.bulk(b"invalidate");
            }
            Version::Resp2 if redirect != 0 && self.is_subscriber(told) => {
                writer.push(3);
                writer.bulk(b"message");
                writer.bulk(CHANNEL);
            }
            // It has no way to be told.
            Version::Resp2 => return,
        }
        match key {
            Some(key) => {
                writer.array(1);
                writer.bulk(key);
            }
            None => writer.null_array(),
        }
        self.push(told, &bytes);
    }

    fn tell_redirect_broken(&mut self, slot: Slot, redirect: u64) {
        let entry = self.entry_mut(slot);
        if let Some(mode) = &mut entry.tracking {
            mode.broken = true;
        }
        if entry.client_info.version == Version::Resp3 {
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes, Version::Resp3);
            writer.push(2);
            writer.bulk(b"tracking-redir-broken");
            writer.integer(redirect as i64);
            self.push(slot, &bytes);
        }
    }
}
