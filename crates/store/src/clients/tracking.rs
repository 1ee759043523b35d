//! Client-side caching: keys that clients may have cached, and invalidations when a key changes.
//!
//! A table maps each key that a tracking client has read to its clients. The first change of the key sends an
//! invalidation to all of them and removes the entry. The table is bounded in keys and in bytes: a key that does not
//! fit displaces another key, in the cyclic order of their names, and the displaced key's clients get an invalidation
//! as if it had changed. A client in broadcast mode is sent every change under its prefixes and needs no table.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::TooMuch;
use super::channels::Channels;
use super::output_buffers::OutputBuffers;
use super::registry::{Registry, Slot};
use super::state_budget::StateBudget;
use crate::engine::Change;
use crate::resp::{Version, Writer};

/// Keys in the table unless `tracking-table-max-keys` says otherwise; Redis's default.
pub const TABLE_KEYS_MAX: usize = 1_000_000;
/// Most bytes of the table, for any number of keys.
const TABLE_BYTES_MAX: usize = 16 << 20;
/// Cost of a key beside its bytes: its place in the tree and its list of clients.
const KEY_OVERHEAD_BYTES: usize = 96;
const CLIENT_BYTES: usize = size_of::<u64>();
/// Channel of invalidations for a RESP2 client, on another connection.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// Prefixes of keys.
pub type Prefixes = BTreeSet<Box<[u8]>>;

/// Tracking mode of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackingMode {
    /// The client that gets invalidations in its place; 0: itself.
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
    /// The client that gets invalidations in its place has gone.
    pub broken: bool,
    /// The prefixes of broadcast mode.
    pub prefixes: Prefixes,
}

/// What telling a client needs: where it is, what it speaks, and whether it listens to [`CHANNEL`].
#[derive(Debug)]
pub(super) struct Audience<'a> {
    pub registry: &'a Registry,
    pub channels: &'a Channels,
    pub output: &'a mut OutputBuffers,
}

/// Modes of tracking clients, and the table of keys that they may have cached.
#[derive(Debug)]
pub struct Tracking {
    /// Clients by number, in ascending order for each key. They may have gone meanwhile.
    table: BTreeMap<Box<[u8]>, Vec<u64>>,
    bytes: usize,
    /// Clients of all keys together.
    items: usize,
    keys_max: usize,
    /// The key last pushed out: the next one goes next.
    hand: Box<[u8]>,
    prefixes: BTreeMap<Box<[u8]>, BTreeSet<Slot>>,
    modes: BTreeMap<Slot, TrackingMode>,
}

impl Default for Tracking {
    fn default() -> Self {
        Tracking {
            table: BTreeMap::new(),
            bytes: 0,
            items: 0,
            keys_max: TABLE_KEYS_MAX,
            hand: Box::default(),
            prefixes: BTreeMap::new(),
            modes: BTreeMap::new(),
        }
    }
}

impl Tracking {
    pub(super) fn is_used(&self) -> bool {
        !self.modes.is_empty() || !self.table.is_empty()
    }

    /// Begins or changes a client's tracking. `added` are prefixes beside those it has.
    pub(super) fn start(
        &mut self,
        state: &mut StateBudget,
        slot: Slot,
        mode: TrackingMode,
        added: Prefixes,
    ) -> Result<(), TooMuch> {
        let mut prefixes = self.mode(slot).map(|it| it.prefixes.clone()).unwrap_or_default();
        for prefix in added {
            if !prefixes.contains(&prefix) {
                state.take(prefix.len())?;
                self.prefixes.entry(prefix.clone()).or_default().insert(slot);
                prefixes.insert(prefix);
            }
        }
        self.modes.insert(slot, TrackingMode { prefixes, ..mode });
        Ok(())
    }

    /// Ends a client's tracking; whether it did. What it may hold stays in the table until it changes.
    pub(super) fn stop(&mut self, state: &mut StateBudget, slot: Slot) -> bool {
        let Some(mode) = self.modes.remove(&slot) else { return false };
        for prefix in &mode.prefixes {
            state.give_back(prefix.len());
            if let Some(slots) = self.prefixes.get_mut(prefix) {
                slots.remove(&slot);
                if slots.is_empty() {
                    self.prefixes.remove(prefix);
                }
            }
        }
        if self.modes.is_empty() {
            // No client is left to be informed.
            *self = Tracking { keys_max: self.keys_max, ..Tracking::default() };
        }
        true
    }

    /// A client's tracking mode, if it tracks.
    pub fn mode(&self, slot: Slot) -> Option<&TrackingMode> {
        self.modes.get(&slot)
    }

    /// Sets whether `CLIENT CACHING` was given for the next request.
    pub(super) fn set_caching(&mut self, slot: Slot, on: bool) {
        if let Some(mode) = self.modes.get_mut(&slot) {
            mode.caching = on;
        }
    }

    /// Sets the most keys in the table; with 0 only the limit in bytes holds.
    pub(super) fn set_keys_max(&mut self, audience: &mut Audience<'_>, keys: usize) {
        self.keys_max = if keys == 0 { usize::MAX } else { keys };
        self.push_out_surplus(audience);
    }

    /// Keys in the table, and clients that track.
    pub fn counts(&self) -> (usize, usize) {
        (self.table.len(), self.modes.len())
    }

    /// Clients of the table's keys, one for each key that it may have cached, and prefixes of which clients are told.
    pub fn total_counts(&self) -> (usize, usize) {
        (self.items, self.prefixes.len())
    }

    /// Remembers that a client has read a key.
    pub(super) fn remember_read(&mut self, audience: &mut Audience<'_>, slot: Slot, key: &[u8]) {
        let id = audience.registry.id(slot);
        if let Some(ids) = self.table.get_mut(key) {
            if let Err(at) = ids.binary_search(&id) {
                ids.insert(at, id);
                self.items += 1;
                self.bytes += CLIENT_BYTES;
            }
        } else {
            self.table.insert(key.into(), vec![id]);
            self.items += 1;
            self.bytes += key.len() + KEY_OVERHEAD_BYTES + CLIENT_BYTES;
        }
        self.push_out_surplus(audience);
    }

    fn push_out_surplus(&mut self, audience: &mut Audience<'_>) {
        while let Some(key) = self.surplus() {
            self.invalidate_read(audience, &key, 0);
        }
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

    fn take(&mut self, key: &[u8]) -> Option<Vec<u64>> {
        let ids = self.table.remove(key)?;
        self.items -= ids.len();
        self.bytes -= key.len() + KEY_OVERHEAD_BYTES + ids.len() * CLIENT_BYTES;
        Some(ids)
    }

    /// Sends an invalidation of a key to the clients that may have cached it; `author` is the client that changed it.
    pub(super) fn invalidate(
        &mut self,
        audience: &mut Audience<'_>,
        change: Change,
        key: &[u8],
        author: u64,
    ) {
        if !self.is_used() {
            return;
        }
        if let Change::Flushed(_) = change {
            self.table.clear();
            (self.bytes, self.items) = (0, 0);
            for slot in self.modes.keys().copied().collect::<Vec<_>>() {
                self.tell(audience, slot, None);
            }
            return;
        }
        let prefixes = self.prefixes.iter().filter(|(prefix, _)| key.starts_with(prefix));
        let told: Vec<Slot> = prefixes.flat_map(|(_, slots)| slots.iter().copied()).collect();
        for slot in told {
            if !self.is_spared(audience, slot, author) {
                self.tell(audience, slot, Some(key));
            }
        }
        self.invalidate_read(audience, key, author);
    }

    fn invalidate_read(&mut self, audience: &mut Audience<'_>, key: &[u8], author: u64) {
        for id in self.take(key).unwrap_or_default() {
            let Some(slot) = audience.registry.find(id) else { continue };
            let broadcast = self.mode(slot).is_none_or(|mode| mode.broadcast);
            if !broadcast && !self.is_spared(audience, slot, author) {
                self.tell(audience, slot, Some(key));
            }
        }
    }

    fn is_spared(&self, audience: &Audience<'_>, slot: Slot, author: u64) -> bool {
        audience.registry.id(slot) == author && self.mode(slot).is_some_and(|mode| mode.no_loop)
    }

    /// Sends one invalidation; without a key all are meant.
    fn tell(&mut self, audience: &mut Audience<'_>, slot: Slot, key: Option<&[u8]>) {
        let Some(mode) = self.modes.get_mut(&slot) else { return };
        let redirect = mode.redirect;
        let told = if redirect == 0 { Some(slot) } else { audience.registry.find(redirect) };
        let Some(told) = told else {
            mode.broken = true;
            return audience.tell_redirect_broken(slot, redirect);
        };
        let client_info = audience.registry.client_info(told);
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, client_info.version);
        match client_info.version {
            Version::Resp3 => {
                writer.push(2);
                writer.bulk(b"invalidate");
            }
            Version::Resp2 if redirect != 0 && audience.channels.is_subscriber(told) => {
                writer.push(3);
                writer.bulk(b"message");
                writer.bulk(CHANNEL);
            }
            // A RESP2 connection has no push messages.
            Version::Resp2 => return,
        }
        match key {
            Some(key) => {
                writer.array(1);
                writer.bulk(key);
            }
            None => writer.null_array(),
        }
        audience.output.push(told, audience.registry, &bytes);
    }
}

impl Audience<'_> {
    /// Informs a client that the one that gets invalidations in its place has gone.
    fn tell_redirect_broken(&mut self, slot: Slot, redirect: u64) {
        let client_info = self.registry.client_info(slot);
        if client_info.version == Version::Resp3 {
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes, Version::Resp3);
            writer.push(2);
            writer.bulk(b"tracking-redir-broken");
            writer.integer(redirect as i64);
            self.output.push(slot, self.registry, &bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Peer;
    use super::*;

    #[derive(Default)]
    struct Others {
        registry: Registry,
        channels: Channels,
        output: OutputBuffers,
        state: StateBudget,
    }

    impl Others {
        fn enter(&mut self, id: u64) -> Slot {
            let slot = self.registry.enter(id, Peer::None, 0);
            self.registry.set_version(slot, Version::Resp3);
            self.output.enter(slot);
            slot
        }

        fn audience(&mut self) -> Audience<'_> {
            Audience { registry: &self.registry, channels: &self.channels, output: &mut self.output }
        }

        fn pushed(&mut self, slot: Slot) -> String {
            let pushed = self.output.take_pushed(slot).unwrap_or_default();
            String::from_utf8_lossy(&pushed).replace("\r\n", " ").trim_end().to_owned()
        }
    }

    #[test]
    fn the_table_of_tracked_keys_is_bounded_in_keys_and_bytes() {
        let (mut tracking, mut others) = (Tracking::default(), Others::default());
        let slots = [others.enter(1), others.enter(2)];
        for slot in slots {
            tracking.start(&mut others.state, slot, TrackingMode::default(), Prefixes::new()).unwrap();
        }
        tracking.set_keys_max(&mut others.audience(), 3);
        for key in ["a", "b", "c", "d"] {
            slots
                .iter()
                .for_each(|slot| tracking.remember_read(&mut others.audience(), *slot, key.as_bytes()));
        }
        assert_eq!((tracking.counts(), tracking.total_counts()), ((3, 2), (6, 0)));
        assert_eq!(slots.map(|slot| others.pushed(slot)), [">2 $10 invalidate *1 $1 a"; 2]);
        tracking.set_keys_max(&mut others.audience(), 0);
        for at in 0..300 {
            tracking.remember_read(&mut others.audience(), slots[0], format!("{at:065000}").as_bytes());
        }
        assert!(tracking.counts().0 < 270 && tracking.bytes <= TABLE_BYTES_MAX);
        assert_eq!(slots.map(|slot| tracking.stop(&mut others.state, slot)), [true; 2]);
        assert_eq!((tracking.counts(), tracking.bytes, tracking.is_used()), ((0, 0), 0, false));
        assert_eq!(tracking.total_counts(), (0, 0));
    }

    #[test]
    fn who_has_gone_is_not_told_and_neither_is_who_has_its_slot_now() {
        let (mut tracking, mut others) = (Tracking::default(), Others::default());
        let (gone, stays) = (others.enter(1), others.enter(2));
        for slot in [gone, stays] {
            tracking.start(&mut others.state, slot, TrackingMode::default(), Prefixes::new()).unwrap();
            tracking.remember_read(&mut others.audience(), slot, b"k");
        }
        assert!(tracking.stop(&mut others.state, gone) && !tracking.stop(&mut others.state, gone));
        others.registry.leave(gone);
        let next = others.enter(3);
        assert_eq!(next, gone, "it has the slot");
        tracking.start(&mut others.state, next, TrackingMode::default(), Prefixes::new()).unwrap();
        tracking.invalidate(&mut others.audience(), Change::Changed, b"k", 0);
        assert_eq!([next, stays].map(|slot| others.pushed(slot)), ["", ">2 $10 invalidate *1 $1 k"]);
    }

    #[test]
    fn prefixes_are_paid_for_once_and_given_back() {
        let (mut tracking, mut others) = (Tracking::default(), Others::default());
        let slot = others.enter(1);
        let mode = TrackingMode { broadcast: true, ..TrackingMode::default() };
        let prefixes = |names: &[&str]| names.iter().map(|name| name.as_bytes().into()).collect::<Prefixes>();
        tracking.start(&mut others.state, slot, mode.clone(), prefixes(&["a"])).unwrap();
        let once = others.state.bytes();
        tracking.start(&mut others.state, slot, mode, prefixes(&["a", "b"])).unwrap();
        assert_eq!(others.state.bytes(), 2 * once);
        for key in ["a1", "b1", "c1"] {
            tracking.invalidate(&mut others.audience(), Change::Changed, key.as_bytes(), 0);
        }
        assert_eq!(others.pushed(slot), ">2 $10 invalidate *1 $2 a1 >2 $10 invalidate *1 $2 b1");
        tracking.stop(&mut others.state, slot);
        assert_eq!(others.state.bytes(), 0);
    }
}
