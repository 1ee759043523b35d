//! The registry of connected clients, and every effect that one client has on another.
//!
//! A connection owns its socket, its session and its replies, and nobody else touches them. What reaches *another*
//! connection (a message of a channel, an invalidation, a line for a monitor, a kill, the end of a pause) goes
//! through this registry and through nothing else: it is appended to that client's outbox, or noted on its entry, and
//! the client's task is woken; the task takes its mail when it runs, before it reads. A client of another shard has an entry
//! here too if it has asked for anything here, as a guest ([`crate::shards`]).
//!
//! ```text
//! handler of A --> Clients: who is concerned? (channels, watched, tracking, monitors)
//!                     |--> entry of B: outbox += bytes, wake        B's task: outbox -> its replies -> socket
//!                     `--> entry of C: killed, wake                 C's task: ends
//! ```
//!
//! Memory is bounded three times. What waits for one client, its unsent replies counted, ends at
//! [`PUSH_BYTES_MAX`]: a client that lets it grow further is dropped, as Redis drops slow subscribers. What waits for
//! all clients ends at the server's limit for replies: beyond it, whoever has more than [`TIGHT_OUTPUT_BYTES`] waiting
//! when something is pushed to it is dropped. And what clients make the server remember (names, subscriptions,
//! watched keys, prefixes) is refused beyond [`STATE_BYTES_MAX`] over all of them.
//!
//! Requests pay for none of this unless somebody uses it: [`Clients::attention`] is one byte that says whether any
//! request must be looked at more closely, and [`crate::command::Resolved::execute`] tests it together with the session's mode.

mod channels;
mod client_info;
mod notify;
mod pause;
mod tracking;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

pub use channels::Kind;
pub use client_info::{ClientInfo, Peer};
pub use notify::{Author, Class, NotifyFlags};
pub use pause::PauseKind;
pub use tracking::{Prefixes, TABLE_KEYS_MAX, TrackingMode};

use crate::engine::{Change, Changes};
use crate::resp::Version;
use channels::Channels;
use tracking::Tracking;
use watched::Watched;

/// What may wait for one client, as Redis's default for subscribers.
pub const PUSH_BYTES_MAX: usize = 32 << 20;
/// What may wait for one client when all clients together have too much.
pub const TIGHT_OUTPUT_BYTES: usize = 16 * 1024;
/// What all clients together can have remembered.
pub const STATE_BYTES_MAX: usize = 16 << 20;
/// What remembering costs beside the bytes themselves.
const STATE_OVERHEAD_BYTES: usize = 128;

/// A client's place in the registry while it is connected.
pub type Slot = u32;

/// The server remembers too much for its clients already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

/// What a registry tells those of other shards.
pub trait Relay: std::fmt::Debug {
    /// Something happened to a key, and clients of any shard may want to know.
    fn tell_event(&self, class: Class, event: &str, db: u8, key: &[u8]);
    /// A client that is at home in another shard does not take what it is told here.
    fn drop_client(&self, shard: usize, client: u64);
}

#[derive(Debug, Default)]
struct Entry {
    /// 0 when the place is free.
    id: u64,
    waker: Option<Waker>,
    outbox: Vec<u8>,
    /// Replies that the connection has not sent.
    unsent: usize,
    killed: bool,
    /// A key that it watches has changed.
    dirty: bool,
    /// Database, key, and whether it was there.
    watching: Vec<(u8, Box<[u8]>, bool)>,
    /// Subscriptions to channels and to patterns.
    subscribed: [BTreeSet<std::rc::Rc<[u8]>>; 2],
    tracking: Option<Box<TrackingMode>>,
    client_info: ClientInfo,
}

/// The registry.
#[derive(Debug)]
pub struct Clients {
    entries: Vec<Entry>,
    vacant: Vec<Slot>,
    slots: BTreeMap<u64, Slot>,
    channels: Channels,
    watched: Watched,
    tracking: Tracking,
    monitors: BTreeSet<u64>,
    pause: pause::Pause,
    notify: NotifyFlags,
    guarded: bool,
    attention: u8,
    state_bytes: usize,
    /// Unsent replies of all clients.
    unsent_bytes: usize,
    outbox_bytes: usize,
    output_total_bytes_max: usize,
    dropped: u64,
    /// Other shards, where there are any.
    relay: Option<Box<dyn Relay>>,
}

impl Default for Clients {
    fn default() -> Self {
        Clients {
            entries: Vec::new(),
            vacant: Vec::new(),
            slots: BTreeMap::new(),
            channels: Channels::default(),
            watched: Watched::default(),
            tracking: Tracking::default(),
            monitors: BTreeSet::new(),
            pause: pause::Pause::default(),
            notify: NotifyFlags::default(),
            guarded: false,
            attention: 0,
            state_bytes: 0,
            unsent_bytes: 0,
            outbox_bytes: 0,
            output_total_bytes_max: 64 << 20,
            dropped: 0,
            relay: None,
        }
    }
}

impl Clients {
    /// Somebody monitors.
    pub const MONITORED: u8 = 1;
    /// Requests are held up.
    pub const PAUSED: u8 = 2;
    /// Somebody wants to know what happens to keys.
    pub const OBSERVED: u8 = 4;
    /// The user `default` may not do everything.
    pub const GUARDED: u8 = 8;

    /// Which requests must be looked at more closely; 0 almost always.
    #[inline]
    pub fn attention(&self) -> u8 {
        self.attention
    }

    /// Whether changes of keys are to be noted by the engine.
    pub fn wants_changes(&self) -> bool {
        self.attention & Self::OBSERVED != 0
    }

    fn update_attention(&mut self) {
        let observed = !self.watched.is_empty() || self.tracking.is_used() || self.notify.is_on();
        let bit = |on: bool, bit: u8| if on { bit } else { 0 };
        self.attention = bit(!self.monitors.is_empty(), Self::MONITORED)
            | bit(self.pause.is_on(), Self::PAUSED)
            | bit(observed, Self::OBSERVED)
            | bit(self.guarded, Self::GUARDED);
    }

    /// Sets whether requests of the user `default` must be looked at.
    pub fn set_guarded(&mut self, guarded: bool) {
        self.guarded = guarded;
        self.update_attention();
    }

    /// Names what reaches other shards.
    pub fn set_relay(&mut self, relay: impl Relay + 'static) {
        self.relay = Some(Box::new(relay));
    }

    /// What may wait for all clients together, in bytes.
    pub fn set_output_total_bytes_max(&mut self, bytes: usize) {
        self.output_total_bytes_max = bytes;
    }

    /// Notes a client that has connected.
    pub fn enter(&mut self, id: u64, peer: Peer, now_us: u64) -> Slot {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            (self.entries.len() - 1) as Slot
        });
        self.slots.insert(id, slot);
        self.entries[slot as usize] =
            Entry { id, client_info: ClientInfo::new(id, peer, now_us), ..Entry::default() };
        slot
    }

    /// Forgets a client that has gone, and all that concerned it.
    pub fn leave(&mut self, slot: Slot) {
        self.set_unsent(slot, 0);
        self.forget_state(slot);
        self.set_name(slot, &[]).ok();
        let entry = std::mem::take(&mut self.entries[slot as usize]);
        self.outbox_bytes -= entry.outbox.len();
        self.slots.remove(&entry.id);
        self.pause.forget(entry.id);
        self.vacant.push(slot);
    }

    /// What `RESET` and leaving end: subscriptions, watching, tracking, monitoring.
    pub fn forget_state(&mut self, slot: Slot) {
        self.unwatch(slot);
        self.stop_tracking(slot);
        for kind in Kind::ALL {
            for name in self.subscriptions(slot, kind) {
                self.unsubscribe(slot, kind, &name);
            }
        }
        self.monitors.remove(&self.entries[slot as usize].id);
        self.update_attention();
    }

    fn entry(&self, slot: Slot) -> &Entry {
        &self.entries[slot as usize]
    }

    fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    /// The place of a client that is connected.
    pub fn find(&self, id: u64) -> Option<Slot> {
        self.slots.get(&id).copied()
    }

    /// Clients that are connected and at home here, in the order in which they came.
    pub fn connected(&self) -> impl Iterator<Item = Slot> {
        self.slots.values().copied().filter(|slot| self.client_info(*slot).home.is_none())
    }

    /// How a client's task is woken; set once, when it first runs.
    pub fn set_waker(&mut self, slot: Slot, waker: &Waker) {
        self.entry_mut(slot).waker = Some(waker.clone());
    }

    /// What waits for a client, which is the connection's now.
    #[inline]
    pub fn take_mail(&mut self, slot: Slot) -> Option<Vec<u8>> {
        let entry = &mut self.entries[slot as usize];
        if entry.outbox.is_empty() {
            return None;
        }
        let mail = std::mem::take(&mut entry.outbox);
        self.outbox_bytes -= mail.len();
        Some(mail)
    }

    /// Whether the client is to be disconnected.
    #[inline]
    pub fn is_killed(&self, slot: Slot) -> bool {
        self.entries[slot as usize].killed
    }

    /// Disconnects a client; what waits for it is thrown away at once.
    pub fn kill(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot as usize];
        entry.killed = true;
        self.outbox_bytes -= entry.outbox.len();
        entry.outbox = Vec::new();
        if let Some(waker) = &entry.waker {
            waker.wake_by_ref();
        }
    }

    /// Clients dropped since the last call because they did not read what was pushed to them.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Appends to a client's outbox and wakes it, or drops it if it has too much waiting.
    fn push(&mut self, slot: Slot, bytes: &[u8]) {
        let all = self.unsent_bytes + self.outbox_bytes + bytes.len();
        let entry = &mut self.entries[slot as usize];
        if entry.killed {
            return;
        }
        let own = entry.unsent + entry.outbox.len() + bytes.len();
        if own > PUSH_BYTES_MAX || (own > TIGHT_OUTPUT_BYTES && all > self.output_total_bytes_max) {
            tracing::warn!(client = entry.id, bytes = own, "dropped: it does not read what is pushed to it");
            self.dropped += 1;
            if let (Some((shard, client)), Some(relay)) = (entry.client_info.home, &self.relay) {
                // It may not look at its pipe before the client reads, which it does not.
                relay.drop_client(shard, client);
            }
            self.kill(slot);
            return;
        }
        if entry.outbox.is_empty()
            && let Some(waker) = &entry.waker
        {
            waker.wake_by_ref();
        }
        entry.outbox.extend_from_slice(bytes);
        self.outbox_bytes += bytes.len();
    }

    fn push_to(&mut self, id: u64, bytes: &[u8]) {
        if let Some(slot) = self.find(id) {
            self.push(slot, bytes);
        }
    }

    /// Notes how much of its replies a client has not taken.
    #[inline]
    pub fn set_unsent(&mut self, slot: Slot, bytes: usize) {
        let entry = &mut self.entries[slot as usize];
        self.unsent_bytes = self.unsent_bytes - entry.unsent + bytes;
        entry.unsent = bytes;
    }

    /// Replies and messages that wait for all clients, in bytes.
    #[inline]
    pub fn waiting_bytes(&self) -> usize {
        self.unsent_bytes + self.outbox_bytes
    }

    /// Takes or gives back memory for what clients have remembered.
    fn remember(&mut self, bytes: usize) -> Result<(), TooMuch> {
        let bytes = bytes + STATE_OVERHEAD_BYTES;
        if self.state_bytes + bytes > STATE_BYTES_MAX {
            return Err(TooMuch);
        }
        self.state_bytes += bytes;
        Ok(())
    }

    fn unremember(&mut self, bytes: usize) {
        self.state_bytes -= bytes + STATE_OVERHEAD_BYTES;
    }

    /// Names a client; an empty name is none.
    pub fn set_name(&mut self, slot: Slot, name: &[u8]) -> Result<(), TooMuch> {
        let old = std::mem::take(&mut self.entry_mut(slot).client_info.name);
        if !old.is_empty() {
            self.unremember(old.len());
        }
        if !name.is_empty() {
            self.remember(name.len())?;
            self.entry_mut(slot).client_info.name = name.into();
        }
        Ok(())
    }

    /// Sets the protocol of what is pushed to a client.
    pub fn set_version(&mut self, slot: Slot, version: Version) {
        self.entry_mut(slot).client_info.version = version;
    }

    /// What is told of a client.
    #[inline]
    pub fn client_info_mut(&mut self, slot: Slot) -> &mut ClientInfo {
        &mut self.entries[slot as usize].client_info
    }

    /// What is told of a client.
    pub fn client_info(&self, slot: Slot) -> &ClientInfo {
        &self.entry(slot).client_info
    }

    /// A client begins to monitor.
    pub fn add_monitor(&mut self, slot: Slot) {
        self.monitors.insert(self.entry(slot).id);
        self.update_attention();
    }

    /// Sends a line to all who monitor.
    pub fn tell_monitors(&mut self, line: &[u8]) {
        for id in self.monitors.iter().copied().collect::<Vec<_>>() {
            self.push_to(id, line);
        }
    }

    /// Which changes of keys are published.
    pub fn notify_flags(&self) -> NotifyFlags {
        self.notify
    }

    /// Sets which changes of keys are published.
    pub fn set_notify_flags(&mut self, flags: NotifyFlags) {
        self.notify = flags;
        self.update_attention();
    }

    /// Tells everyone concerned what happened to keys, and through whom.
    pub fn settle(&mut self, changes: &Changes, author: &Author) {
        let mut told = None;
        for (change, db, key) in changes.iter() {
            self.mark_watchers(change, db, key);
            // What one command does to a key in several steps is one change to those who hold it.
            if told != Some((db, key)) || matches!(change, Change::Flushed(_)) {
                self.invalidate(change, key, author.client);
                told = Some((db, key));
            }
            if self.notify.is_on() {
                for (class, event) in notify::events(change, author).into_iter().flatten() {
                    self.publish_event(class, event, db, key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
