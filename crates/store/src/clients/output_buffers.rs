//! Output buffers of clients, bounded for each client and for all of them: a slow client, which does
//! not read what is pushed to it, is disconnected here (`push` decides).
//!
//! What other clients push to a client gathers in its buffer until the client's task takes it. The
//! task reports its own unsent bytes by [`OutputBuffers::set_unsent`], so both count together.
//!
//! `server/request_budget.rs` decides which client is disconnected because it does not go on sending
//! its request, and `server/connection.rs` which because it is idle. A client that reads its own replies
//! too slowly is not disconnected: its connection stops reading its requests.

use std::rc::Rc;
use std::task::Waker;

use super::Relay;
use super::registry::{Registry, Slot};

/// Most output that may wait for one client in bytes, as Redis's default for subscribers.
pub const PUSH_BYTES_MAX: usize = 32 << 20;
/// Most output that may wait for one client in bytes when all clients together have too much.
pub const TIGHT_OUTPUT_BYTES: usize = 16 * 1024;

#[derive(Debug, Default)]
struct Buffer {
    waker: Option<Waker>,
    pushed: Vec<u8>,
    /// Replies that the connection has not sent.
    unsent: usize,
    /// The store's time in microseconds when it last took some of them, or had none.
    taken_us: u64,
    /// Something was pushed to it since nothing waited for it. A client that waits for replies alone is never dropped for
    /// what others have waiting: its connection stops reading its requests instead.
    was_pushed_to: bool,
    killed: bool,
}

impl Buffer {
    fn waiting_bytes(&self) -> usize {
        self.unsent + self.pushed.len()
    }
}

/// A buffer for each slot, and what they hold together.
#[derive(Debug)]
pub struct OutputBuffers {
    buffers: Vec<Buffer>,
    /// Unsent replies of all clients.
    unsent_bytes: usize,
    pushed_bytes: usize,
    /// Of `unsent_bytes`: those of clients that are killed and have not ended yet.
    ending_bytes: usize,
    total_bytes_max: usize,
    dropped: u64,
    relay: Option<Rc<dyn Relay>>,
}

impl Default for OutputBuffers {
    fn default() -> Self {
        OutputBuffers {
            buffers: Vec::new(),
            unsent_bytes: 0,
            pushed_bytes: 0,
            ending_bytes: 0,
            total_bytes_max: 64 << 20,
            dropped: 0,
            relay: None,
        }
    }
}

impl OutputBuffers {
    /// What a client takes here beside the bytes that wait for it.
    pub(super) const CLIENT_BYTES: usize = size_of::<Buffer>();

    /// A client has connected.
    pub(super) fn enter(&mut self, slot: Slot) {
        if self.buffers.len() <= slot as usize {
            self.buffers.resize_with(slot as usize + 1, Buffer::default);
        }
    }

    /// A client has gone, and so has what waited for it.
    pub(super) fn leave(&mut self, slot: Slot) {
        let gone = std::mem::take(&mut self.buffers[slot as usize]);
        self.unsent_bytes -= gone.unsent;
        self.pushed_bytes -= gone.pushed.len();
        self.ending_bytes -= if gone.killed { gone.unsent } else { 0 };
    }

    /// Whom to tell of clients of other shards that are dropped.
    pub(super) fn set_relay(&mut self, relay: Rc<dyn Relay>) {
        self.relay = Some(relay);
    }

    /// Sets the most output that may wait for all clients together, in bytes.
    pub fn set_total_bytes_max(&mut self, bytes: usize) {
        self.total_bytes_max = bytes;
    }

    /// Sets the waker of a client's task; once, when it first runs.
    pub fn set_waker(&mut self, slot: Slot, waker: &Waker) {
        self.buffers[slot as usize].waker = Some(waker.clone());
    }

    /// Has a client's task run.
    pub(super) fn wake(&self, slot: Slot) {
        if let Some(waker) = &self.buffers[slot as usize].waker {
            waker.wake_by_ref();
        }
    }

    /// Wakes every client's task: a condition common to all of them has changed.
    pub fn wake_all(&self) {
        self.buffers.iter().filter_map(|it| it.waker.as_ref()).for_each(Waker::wake_by_ref);
    }

    /// Takes the bytes pushed to a client.
    #[inline]
    pub fn take_pushed(&mut self, slot: Slot) -> Option<Vec<u8>> {
        let buffer = &mut self.buffers[slot as usize];
        if buffer.pushed.is_empty() {
            return None;
        }
        let pushed = std::mem::take(&mut buffer.pushed);
        self.pushed_bytes -= pushed.len();
        Some(pushed)
    }

    /// Whether the client is to be disconnected.
    #[inline]
    pub fn is_killed(&self, slot: Slot) -> bool {
        self.buffers[slot as usize].killed
    }

    /// Disconnects a client; its pushed output is discarded at once.
    pub fn kill(&mut self, slot: Slot) {
        let buffer = &mut self.buffers[slot as usize];
        if !buffer.killed {
            buffer.killed = true;
            self.ending_bytes += buffer.unsent;
        }
        self.pushed_bytes -= buffer.pushed.len();
        buffer.pushed = Vec::new();
        self.wake(slot);
    }

    /// Clients dropped since the last call because they did not read what was pushed to them.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Appends to a client's output and wakes the client, or drops it if its output
    /// exceeds the limit. When all clients together exceed theirs, those with most output
    /// are dropped first: a client that reads is not dropped for one that does not.
    pub(super) fn push(&mut self, slot: Slot, registry: &Registry, bytes: &[u8]) {
        let buffer = &mut self.buffers[slot as usize];
        if buffer.killed {
            return;
        }
        buffer.was_pushed_to = true;
        let own = buffer.waiting_bytes() + bytes.len();
        if own > PUSH_BYTES_MAX {
            return self.drop_client(slot, registry);
        }
        // The bound holds to within this much for each client, and a client that has less is not worth a search.
        while own > TIGHT_OUTPUT_BYTES && self.lasting_bytes() + bytes.len() > self.total_bytes_max {
            let largest = self.largest().filter(|(_, waiting)| *waiting > own);
            let Some((largest, _)) = largest else { return self.drop_client(slot, registry) };
            self.drop_client(largest, registry);
        }
        let buffer = &mut self.buffers[slot as usize];
        let was_empty = buffer.pushed.is_empty();
        buffer.pushed.extend_from_slice(bytes);
        self.pushed_bytes += bytes.len();
        if was_empty {
            self.wake(slot);
        }
    }

    /// Output that waits for clients that are not about to end, in bytes.
    fn lasting_bytes(&self) -> usize {
        self.unsent_bytes + self.pushed_bytes - self.ending_bytes
    }

    /// Of the clients that something was pushed to, the one with most waiting, and how much that is. Every search ends with
    /// a client dropped, so that looking at all of them costs little.
    fn largest(&self) -> Option<(Slot, usize)> {
        let live =
            self.buffers.iter().enumerate().filter(|(_, buffer)| buffer.was_pushed_to && !buffer.killed);
        live.map(|(slot, buffer)| (slot as Slot, buffer.waiting_bytes())).max_by_key(|(_, waiting)| *waiting)
    }

    /// Disconnects a client that does not read what is pushed to it.
    fn drop_client(&mut self, slot: Slot, registry: &Registry) {
        let client = registry.client_info(slot);
        self.drop_for(slot, (client.id, client.home), "it does not read what is pushed to it");
    }

    /// Disconnects the client of this number and home, for what it does not read.
    pub fn drop_for(&mut self, slot: Slot, (id, home): (u64, Option<(usize, u64)>), reason: &str) {
        let bytes = self.buffers[slot as usize].waiting_bytes();
        tracing::warn!(client = id, bytes, "dropped: {reason}");
        self.dropped += 1;
        if let (Some((shard, client)), Some(relay)) = (home, &self.relay) {
            // It may not look at its pipe before the client reads, which it does not.
            relay.drop_client(shard, client);
        }
        self.kill(slot);
    }

    /// Notes how much of its replies a client has not taken.
    #[inline]
    pub fn set_unsent(&mut self, slot: Slot, bytes: usize, now_us: u64) {
        let buffer = &mut self.buffers[slot as usize];
        if buffer.unsent == 0 || bytes < buffer.unsent {
            buffer.taken_us = now_us;
        }
        self.unsent_bytes = self.unsent_bytes - buffer.unsent + bytes;
        if buffer.killed {
            self.ending_bytes = self.ending_bytes - buffer.unsent + bytes;
        }
        buffer.unsent = bytes;
        buffer.was_pushed_to &= bytes > 0 || !buffer.pushed.is_empty();
    }

    /// A client has nothing to take now, for what it asked for is still to come.
    pub fn excuse(&mut self, slot: Slot, now_us: u64) {
        self.buffers[slot as usize].taken_us = now_us;
    }

    /// The clients that have taken nothing of their replies since a time, and have more of them than a client is left with when
    /// memory is short.
    pub fn stalled_since(&self, us: u64) -> impl Iterator<Item = Slot> {
        let has_stalled = move |it: &Buffer| !it.killed && it.unsent > TIGHT_OUTPUT_BYTES && it.taken_us < us;
        let live = self.buffers.iter().enumerate().filter(move |(_, buffer)| has_stalled(buffer));
        live.map(|(slot, _)| slot as Slot)
    }

    /// Replies and messages that wait for all clients, in bytes.
    #[inline]
    pub fn waiting_bytes(&self) -> usize {
        self.unsent_bytes + self.pushed_bytes
    }

    /// Of one client: replies that its connection has not sent, and what was pushed to it, in bytes.
    pub fn waiting_for(&self, slot: Slot) -> (usize, usize) {
        let buffer = &self.buffers[slot as usize];
        (buffer.unsent, buffer.pushed.len())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::super::{Class, ClientInfo, Peer};
    use super::*;

    #[derive(Debug, Default)]
    struct Told(RefCell<Vec<(usize, u64)>>);

    impl Relay for Told {
        fn tell_event(&self, _: Class, _: &str, _: u8, _: &[u8]) {}

        fn drop_client(&self, shard: usize, client: u64) {
            self.0.borrow_mut().push((shard, client));
        }
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Clients 1, 2, ... in slots 0, 1, ...
    fn registry(clients: u64) -> Registry {
        let mut registry = Registry::default();
        for id in 1..=clients {
            registry.enter(id, Peer::None, 0);
        }
        registry
    }

    #[test]
    fn replies_and_pushed_bytes_share_a_clients_bound() {
        let (mut output, clients) = (OutputBuffers::default(), registry(2));
        (0..2).for_each(|slot| output.enter(slot));
        output.set_unsent(0, PUSH_BYTES_MAX - 1, 0);
        output.push(0, &clients, b"x");
        assert!(!output.is_killed(0) && output.waiting_for(0) == (PUSH_BYTES_MAX - 1, 1));
        output.push(0, &clients, b"x");
        assert!(output.is_killed(0) && !output.is_killed(1));
        assert_eq!((output.take_dropped(), output.waiting_bytes()), (1, PUSH_BYTES_MAX - 1));
        output.push(0, &clients, b"more");
        assert_eq!(
            (output.take_pushed(0), output.take_dropped()),
            (None, 0),
            "nothing waits for who is killed"
        );
        output.leave(0);
        output.enter(0);
        assert!(!output.is_killed(0) && output.waiting_bytes() == 0);
    }

    #[test]
    fn who_has_taken_nothing_of_its_replies_has_stalled() {
        let mut output = OutputBuffers::default();
        (0..4).for_each(|slot| output.enter(slot));
        let large = 2 * TIGHT_OUTPUT_BYTES;
        (0..3).for_each(|slot| output.set_unsent(slot, large, 10));
        output.set_unsent(3, TIGHT_OUTPUT_BYTES, 10);
        // The first takes a little, and the second asks for more and takes nothing.
        output.set_unsent(0, large - 1, 20);
        output.set_unsent(1, 2 * large, 20);
        assert_eq!(output.stalled_since(10).count(), 0);
        assert_eq!(output.stalled_since(20).collect::<Vec<_>>(), [1, 2]);
        output.kill(1);
        assert_eq!(output.stalled_since(21).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn many_slow_readers_share_one_bound() {
        let (mut output, clients) = (OutputBuffers::default(), 100);
        let registry = registry(clients.into());
        output.set_total_bytes_max(10 << 20);
        (0..clients).for_each(|slot| output.enter(slot));
        for _ in 0..10 {
            (0..clients).for_each(|slot| output.push(slot, &registry, &vec![b'x'; 1 << 20]));
            assert!(output.waiting_bytes() <= (10 << 20) + clients as usize * TIGHT_OUTPUT_BYTES);
        }
        assert!((0..clients).any(|slot| output.is_killed(slot)));
    }

    #[test]
    fn who_has_most_waiting_is_dropped_for_the_bound_of_all() {
        let (mut output, clients) = (OutputBuffers::default(), registry(4));
        let mib = vec![b'x'; 1 << 20];
        output.set_total_bytes_max(10 << 20);
        (0..4).for_each(|slot| output.enter(slot));
        // One that waits for replies alone, two that do not read, and one that is a message behind.
        output.set_unsent(0, 6 << 20, 0);
        (0..2).for_each(|_| output.push(1, &clients, &mib));
        output.push(2, &clients, &mib);
        output.push(3, &clients, &mib);
        let killed = |output: &OutputBuffers| [0, 1, 2, 3].map(|slot| output.is_killed(slot));
        assert_eq!(killed(&output), [false; 4], "all together have what they may");
        output.push(3, &clients, b"it is the one that something is pushed to");
        assert_eq!(killed(&output), [false, true, false, false]);
        // Output that the task of a killed client has not given up yet does not count against the others.
        let taken = output.take_pushed(2).unwrap().len();
        output.set_unsent(2, taken, 0);
        output.kill(2);
        (0..3).for_each(|_| output.push(3, &clients, &mib[..1 << 19]));
        assert_eq!(killed(&output), [false, true, true, false]);
        output.leave(2);
        // A client that has taken all its output is an ordinary one again, also when more is pushed later.
        let _ = (output.take_pushed(3), output.set_unsent(3, 0, 0), output.set_unsent(3, 3 << 20, 0));
        output.leave(1);
        output.enter(1);
        output.push(1, &clients, &mib);
        output.push(1, &clients, b"above the bound");
        assert_eq!(killed(&output), [false, true, false, false], "there is nobody else to drop");
        (0..4).for_each(|slot| output.leave(slot));
        assert_eq!((output.waiting_bytes(), output.ending_bytes), (0, 0));
    }

    #[test]
    fn a_task_is_woken_once_for_all_that_waits_and_when_it_is_killed() {
        let (mut output, woken) = (OutputBuffers::default(), Arc::new(Woken::default()));
        let clients = registry(1);
        output.enter(0);
        output.push(0, &clients, b"before it ran");
        output.set_waker(0, &Waker::from(Arc::clone(&woken)));
        output.push(0, &clients, b" and behind");
        assert_eq!(woken.0.load(Ordering::Relaxed), 0, "it takes all that waits when it runs");
        assert_eq!(output.take_pushed(0).as_deref(), Some(&b"before it ran and behind"[..]));
        output.push(0, &clients, b"a");
        output.push(0, &clients, b"b");
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        output.kill(0);
        assert_eq!((woken.0.load(Ordering::Relaxed), output.waiting_bytes()), (2, 0));
    }

    #[test]
    fn the_home_of_a_guest_is_told_that_it_is_dropped() {
        let (mut output, told) = (OutputBuffers::default(), Rc::new(Told::default()));
        output.set_relay(Rc::clone(&told) as Rc<dyn Relay>);
        (0..2).for_each(|slot| output.enter(slot));
        let mut clients = registry(2);
        *clients.client_info_mut(0) = ClientInfo { home: Some((3, 44)), ..ClientInfo::new(1, Peer::None, 0) };
        let much = vec![0; PUSH_BYTES_MAX + 1];
        output.push(0, &clients, &much);
        output.push(1, &clients, &much);
        assert_eq!(*told.0.borrow(), [(3, 44)]);
    }
}
