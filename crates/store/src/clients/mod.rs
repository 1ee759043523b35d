//! Registry of connected clients, and every effect that one client has on another.
//!
//! A connection owns its socket, its session and its replies; no other code touches them. Everything that
//! reaches *another* connection (a message of a channel, an invalidation, a line for a monitor, a kill, the
//! end of a pause) goes through this module only: it is appended to that client's output or noted beside
//! it, and the client's task is woken. The task takes its output when it runs, before it reads. A client of
//! another shard has a slot here too once it has sent a request here, as a guest ([`crate::shards`]).
//!
//! ```text
//! handler of A --> Clients: which clients are concerned? (channels, watched, tracking, monitors)
//!                     |--> output of B: pushed += bytes, wake       B's task: pushed -> its replies -> socket
//!                     `--> output of C: killed, wake                C's task: ends
//! ```
//!
//! Each part keeps its own state by [`Slot`] and knows only the siblings that are passed to it:
//!
//! | part | owns |
//! | --- | --- |
//! | [`Registry`] | slots, client numbers, the facts of `CLIENT LIST` |
//! | [`OutputBuffers`] | output that waits for each client, its limits, killed clients |
//! | [`Channels`] | subscriptions |
//! | [`Watched`] | keys watched for a transaction, and clients whose transaction must fail |
//! | [`Tracking`] | client-side caching: modes, prefixes, the table of keys |
//! | `Monitors`, `Pause`, `StateBudget` | monitoring clients; until when requests wait; bytes remembered for clients |
//!
//! [`Clients`] combines the parts: it knows when a client connects
//! and disconnects, and keeps [`Clients::attention`] true.
//!
//! Memory is bounded in three ways. Output waiting for one client, its unsent replies included,
//! ends at [`PUSH_BYTES_MAX`]: a client above it is dropped, as Redis drops slow subscribers.
//! Output waiting for all clients ends at the server's limit for replies: when a push exceeds it
//! and the receiving client has more than [`TIGHT_OUTPUT_BYTES`] waiting, the subscribers with most
//! output are dropped until there is room. State that clients make the server remember (names,
//! subscriptions, watched keys, prefixes) is refused beyond [`STATE_BYTES_MAX`] over all of them.
//!
//! Requests pay for none of this while it is unused: [`Clients::attention`] is one byte that says whether any request
//! must be looked at more closely. [`crate::command::Resolved::execute`] tests it together with the session's mode.

mod channels;
mod client_info;
mod client_info_line;
mod monitors;
mod notify;
mod output_buffers;
mod pause;
mod recent_buffers;
mod registry;
mod state_budget;
mod tracking;
mod watched;

use std::rc::Rc;

pub use channels::{Channels, Kind};
pub use client_info::{ClientInfo, Peer};
pub use client_info_line::describe;
pub use notify::{Author, Class, NotifyFlags};
pub use output_buffers::{OutputBuffers, PUSH_BYTES_MAX, TIGHT_OUTPUT_BYTES};
pub use pause::{Pause, PauseKind};
pub use recent_buffers::{LargestBuffers, RecentBuffers};
pub use registry::{Registry, Slot};
pub use state_budget::{STATE_BYTES_MAX, TooMuch};
pub use tracking::{Prefixes, TABLE_KEYS_MAX, Tracking, TrackingMode};
pub use watched::Watched;

use crate::engine::{Change, Changes};
use monitors::Monitors;
use state_budget::StateBudget;
use tracking::Audience;

/// Messages from this shard's clients to those of other shards.
pub trait Relay: std::fmt::Debug {
    /// Something happened to a key, and clients of any shard may want to know.
    fn tell_event(&self, class: Class, event: &str, db: u8, key: &[u8]);
    /// Drops a client of another shard that does not take its output here.
    fn drop_client(&self, shard: usize, client: u64);
}

/// All clients of a shard.
#[derive(Debug, Default)]
pub struct Clients {
    registry: Registry,
    output: OutputBuffers,
    state: StateBudget,
    channels: Channels,
    watched: Watched,
    tracking: Tracking,
    monitors: Monitors,
    pause: Pause,
    notify: NotifyFlags,
    guarded: bool,
    attention: u8,
    /// Other shards, where there are any.
    relay: Option<Rc<dyn Relay>>,
}

impl Clients {
    /// A client monitors.
    pub const MONITORED: u8 = 1;
    /// Requests are held up.
    pub const PAUSED: u8 = 2;
    /// A client is to be informed of changes to keys.
    pub const OBSERVED: u8 = 4;
    /// The user `default` may not do everything.
    pub const GUARDED: u8 = 8;

    /// The kinds of requests that must be looked at more closely; 0 almost always.
    #[inline]
    pub fn attention(&self) -> u8 {
        self.attention
    }

    /// Whether changes of keys are to be noted by the engine.
    pub fn wants_changes(&self) -> bool {
        self.attention & Self::OBSERVED != 0
    }

    /// To be called whenever a part may have begun or ceased to be in use.
    fn update_attention(&mut self) {
        let observed = !self.watched.is_empty() || self.tracking.is_used() || self.notify.is_on();
        let bit = |on: bool, bit: u8| if on { bit } else { 0 };
        self.attention = bit(!self.monitors.is_empty(), Self::MONITORED)
            | bit(self.pause.kind().is_some(), Self::PAUSED)
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
        let relay: Rc<dyn Relay> = Rc::new(relay);
        self.output.set_relay(Rc::clone(&relay));
        self.relay = Some(relay);
    }

    /// The connected clients.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The connected clients, to be changed.
    #[inline]
    pub fn registry_mut(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// Output buffers of clients.
    #[inline]
    pub fn output(&self) -> &OutputBuffers {
        &self.output
    }

    /// Output buffers of clients, to be changed.
    #[inline]
    pub fn output_mut(&mut self) -> &mut OutputBuffers {
        &mut self.output
    }

    /// Pub/sub subscriptions.
    pub fn channels(&self) -> &Channels {
        &self.channels
    }

    /// Watched keys and the clients that watch them.
    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Keys that tracking clients may have cached.
    pub fn tracking(&self) -> &Tracking {
        &self.tracking
    }

    /// Notes a client that has connected.
    pub fn enter(&mut self, id: u64, peer: Peer, now_us: u64) -> Slot {
        let slot = self.registry.enter(id, peer, now_us);
        self.output.enter(slot);
        slot
    }

    /// Forgets a client that has gone, and all that concerned it.
    pub fn leave(&mut self, slot: Slot) {
        self.forget_state(slot);
        // No name costs nothing and is not refused.
        self.set_name(slot, &[]).ok();
        self.pause.forget(slot);
        self.output.leave(slot);
        self.registry.leave(slot);
    }

    /// Ends what `RESET` and disconnecting end: subscriptions, watching, tracking, monitoring.
    pub fn forget_state(&mut self, slot: Slot) {
        self.watched.unwatch(&mut self.state, slot);
        self.tracking.stop(&mut self.state, slot);
        for kind in Kind::ALL {
            for name in self.channels.subscriptions(slot, kind) {
                self.channels.unsubscribe(&mut self.state, slot, kind, &name);
            }
        }
        self.monitors.remove(slot);
        self.update_attention();
    }

    /// Names a client; an empty name is none.
    pub fn set_name(&mut self, slot: Slot, name: &[u8]) -> Result<(), TooMuch> {
        let client_info = self.registry.client_info_mut(slot);
        let old = std::mem::take(&mut client_info.name);
        if !old.is_empty() {
            self.state.give_back(old.len());
        }
        if !name.is_empty() {
            self.state.take(name.len())?;
            client_info.name = name.into();
        }
        Ok(())
    }

    /// Subscribes a client. Once is enough.
    pub fn subscribe(&mut self, slot: Slot, kind: Kind, name: &[u8]) -> Result<(), TooMuch> {
        self.channels.subscribe(&mut self.state, slot, kind, name)
    }

    /// Ends a subscription; whether there was one.
    pub fn unsubscribe(&mut self, slot: Slot, kind: Kind, name: &[u8]) -> bool {
        self.channels.unsubscribe(&mut self.state, slot, kind, name)
    }

    /// Sends a message to all subscribers of a channel and returns how many times it was
    /// delivered. A client that is subscribed by name and by pattern gets it once for each.
    pub fn publish(&mut self, channel: &[u8], text: &[u8]) -> usize {
        self.channels.publish(&self.registry, &mut self.output, channel, text)
    }

    /// A client watches a key from now on, which is `present` or not.
    pub fn watch(&mut self, slot: Slot, db: u8, key: &[u8], present: bool) -> Result<(), TooMuch> {
        self.watched.watch(&mut self.state, slot, (db, key), present)?;
        self.update_attention();
        Ok(())
    }

    /// A client watches nothing any more.
    pub fn unwatch(&mut self, slot: Slot) {
        if self.watched.unwatch(&mut self.state, slot) {
            self.update_attention();
        }
    }

    /// Begins or changes a client's tracking. `added` are prefixes beside those it has.
    pub fn start_tracking(&mut self, slot: Slot, mode: TrackingMode, added: Prefixes) -> Result<(), TooMuch> {
        self.tracking.start(&mut self.state, slot, mode, added)?;
        self.update_attention();
        Ok(())
    }

    /// Ends a client's tracking. What it may hold stays in the table until it changes.
    pub fn stop_tracking(&mut self, slot: Slot) {
        if self.tracking.stop(&mut self.state, slot) {
            self.update_attention();
        }
    }

    /// Sets whether `CLIENT CACHING` was given for the next request.
    pub fn set_caching(&mut self, slot: Slot, on: bool) {
        self.tracking.set_caching(slot, on);
    }

    /// The tracking table and the clients that it sends invalidations to.
    fn tracking_and_audience(&mut self) -> (&mut Tracking, Audience<'_>) {
        let Clients { registry, channels, output, tracking, .. } = self;
        (tracking, Audience { registry, channels, output })
    }

    /// Sets the most keys in the tracking table (`tracking-table-max-keys`); with 0 only the limit in bytes holds.
    pub fn set_tracked_keys_max(&mut self, keys: usize) {
        let (tracking, mut audience) = self.tracking_and_audience();
        tracking.set_keys_max(&mut audience, keys);
    }

    /// Remembers that a client has read a key.
    pub fn remember_read(&mut self, slot: Slot, key: &[u8]) {
        let (tracking, mut audience) = self.tracking_and_audience();
        tracking.remember_read(&mut audience, slot, key);
    }

    /// Pauses requests. The stricter kind and the later end of an earlier pause still hold, as in Redis.
    pub fn pause(&mut self, kind: PauseKind, until_us: u64) {
        self.pause.begin(kind, until_us);
        self.update_attention();
    }

    /// Which requests are paused now, and who waits for the end.
    pub fn pauses(&self) -> &Pause {
        &self.pause
    }

    /// Notes that a request of this client waits.
    pub fn wait_for_unpause(&mut self, slot: Slot) {
        self.pause.wait(slot);
    }

    /// Ends a pause whose time is over.
    pub fn end_pause(&mut self, now_us: u64) {
        if self.pause.is_over(now_us) {
            self.unpause();
        }
    }

    /// Ends the pause and wakes the requests that wait for it.
    pub fn unpause(&mut self) {
        for slot in self.pause.end() {
            self.output.wake(slot);
        }
        self.update_attention();
    }

    /// A client begins to monitor.
    pub fn add_monitor(&mut self, slot: Slot) {
        self.monitors.add(slot);
        self.update_attention();
    }

    /// Sends a line to all monitoring clients.
    pub fn tell_monitors(&mut self, line: &[u8]) {
        self.monitors.tell(&self.registry, &mut self.output, line);
    }

    /// The changes of keys that are published.
    pub fn notify_flags(&self) -> NotifyFlags {
        self.notify
    }

    /// Sets which changes of keys are published.
    pub fn set_notify_flags(&mut self, flags: NotifyFlags) {
        self.notify = flags;
        self.update_attention();
    }

    /// Informs all clients concerned of the changes to keys, and of the client that made them.
    pub fn settle(&mut self, changes: &Changes, author: &Author) {
        let mut told = None;
        for (change, db, key) in changes.iter() {
            self.watched.mark(change, db, key);
            // A command that changes a key in several steps makes one change for the clients that cache or watch it.
            if told != Some((db, key)) || matches!(change, Change::Flushed(_)) {
                let (tracking, mut audience) = self.tracking_and_audience();
                tracking.invalidate(&mut audience, change, key, author.client);
                told = Some((db, key));
            }
            if self.notify.is_on() {
                for (class, event) in notify::events(change, author).into_iter().flatten() {
                    self.publish_event(class, event, db, key);
                }
            }
        }
    }

    /// Publishes that something happened to a key, if events of this class are published: here and in all shards.
    pub fn publish_event(&mut self, class: Class, event: &str, db: u8, key: &[u8]) {
        if !self.notify.has(class) {
            return;
        }
        if let Some(relay) = &self.relay {
            relay.tell_event(class, event, db, key);
        }
        self.publish_event_here(class, event, db, key);
    }

    /// Publishes the event to clients of this shard only.
    pub fn publish_event_here(&mut self, class: Class, event: &str, db: u8, key: &[u8]) {
        if !self.notify.has(class) {
            return;
        }
        for (channel, text) in self.notify.messages(event, db, key).into_iter().flatten() {
            self.publish(&channel, &text);
        }
    }

    /// Whether a client only receives messages, and so must not be called idle.
    pub fn only_listens(&self, slot: Slot) -> bool {
        self.channels.is_subscriber(slot) || self.monitors.has(slot)
    }
}

#[cfg(test)]
mod tests;
