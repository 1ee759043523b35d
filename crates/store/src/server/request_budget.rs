//! Request budget: one limit on the memory of unfinished requests, over all connections.
//!
//! A connection asks before it keeps more bytes. If they do not fit, it waits in line and is not
//! read from. Connections that each hold a part could wait for one another for ever, so one of
//! them, the first in line, is *privileged*: it may exceed the limit until its request is complete.
//! The memory held is therefore at most the limit, one largest request, and the read that crossed
//! the limit. A connection that holds memory while others wait, and stops sending, is dropped:
//! `Budget::find_stalled` decides. A client that does not read what is pushed to it is
//! disconnected by `clients/output_buffers.rs`, an idle one by `server/connection.rs`.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::{Duration, Instant};

/// Bytes read from a socket at a time.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// A connection keeps this much without being charged.
pub(super) const FREE_BYTES: usize = 4096;
/// Least bytes that a holder must send within the stall timeout while others wait.
const PROGRESS_BYTES_MIN: usize = 64 * 1024;

/// What a full buffer of `held` bytes grows to, for a request that needs `bytes_min` in all to get on. Doubling
/// keeps the copying linear; a length that is known is not exceeded. Where doubling would leave at most
/// `FREE_BYTES` of that length, all of it is taken at once: else that little would be doubled for.
pub(super) fn next_capacity_bytes(held: usize, bytes_min: usize, request_bytes_max: usize) -> usize {
    let doubled = (held * 2).min(request_bytes_max).max(held + READ_BYTES);
    let known = bytes_min > held + FREE_BYTES && bytes_min <= doubled + FREE_BYTES;
    if known { bytes_min } else { doubled }
}

/// A connection's place in the books; none when it holds nothing.
#[derive(Debug, Default)]
pub(super) struct Share(Option<usize>);

impl Share {
    /// Whether the connection is in the books.
    pub(super) fn is_charged(&self) -> bool {
        self.0.is_some()
    }
}

#[derive(Debug, Default)]
struct Entry {
    held: usize,
    /// What it waits to hold in all.
    wanted: usize,
    waiting: bool,
    stalled: bool,
    /// Bytes that came since `since`.
    progress: usize,
    since: Option<Instant>,
    waker: Option<Waker>,
}

/// The books.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    held: usize,
    entries: Vec<Entry>,
    vacant: Vec<usize>,
    line: VecDeque<usize>,
    privileged: Option<usize>,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Budget {
            limit,
            held: 0,
            entries: Vec::new(),
            vacant: Vec::new(),
            line: VecDeque::new(),
            privileged: None,
        }
    }

    /// Changes the limit. A connection that already holds more keeps it.
    pub(super) fn set_limit(&mut self, limit: usize) {
        if limit != self.limit {
            self.limit = limit;
            self.admit();
        }
    }

    /// Bytes held by all.
    pub(super) fn held_bytes(&self) -> usize {
        self.held
    }

    /// What a connection may come to hold without exceeding the limit.
    pub(super) fn room_bytes(&self, share: &Share) -> usize {
        let own = share.0.map_or(0, |id| self.entries[id].held);
        self.limit.saturating_sub(self.held - own)
    }

    /// Connections in line.
    pub(super) fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Whether there is no room left: read in small pieces then.
    pub(super) fn is_tight(&self) -> bool {
        self.held >= self.limit
    }

    fn entry(&mut self, share: &mut Share) -> usize {
        *share.0.get_or_insert_with(|| {
            self.vacant.pop().unwrap_or_else(|| {
                self.entries.push(Entry::default());
                self.entries.len() - 1
            })
        })
    }

    fn set_held(&mut self, id: usize, bytes: usize) {
        let entry = &mut self.entries[id];
        self.held = self.held - entry.held + bytes;
        entry.held = bytes;
    }

    /// Books what a connection holds, whether there is room or not: for bytes that have come already.
    pub(super) fn charge(&mut self, share: &mut Share, bytes: usize) {
        if bytes <= FREE_BYTES {
            return self.release(share);
        }
        let id = self.entry(share);
        let less = bytes < self.entries[id].held;
        self.set_held(id, bytes);
        if less {
            self.admit();
        }
    }

    /// Asks to hold `bytes` in all. `false`: wait until woken, and do not read.
    pub(super) fn grow(&mut self, share: &mut Share, bytes: usize, waker: &Waker) -> bool {
        let id = self.entry(share);
        let held = self.entries[id].held;
        if self.entries[id].waiting {
            self.entries[id].waker = Some(waker.clone());
            return false;
        }
        if bytes <= held {
            return true;
        }
        let fits = self.line.is_empty() && self.held - held + bytes <= self.limit;
        if self.privileged.is_none() && !fits && self.line.is_empty() {
            self.privileged = Some(id);
        }
        if fits || self.privileged == Some(id) {
            self.set_held(id, bytes);
            return true;
        }
        let entry = &mut self.entries[id];
        (entry.waiting, entry.wanted, entry.waker) = (true, bytes, Some(waker.clone()));
        self.line.push_back(id);
        false
    }

    /// Books that a connection holds nothing any more.
    pub(super) fn release(&mut self, share: &mut Share) {
        let Some(id) = share.0.take() else { return };
        self.set_held(id, 0);
        if self.entries[id].waiting {
            self.line.retain(|waiting| *waiting != id);
        }
        if self.privileged == Some(id) {
            self.privileged = None;
        }
        self.entries[id] = Entry::default();
        self.vacant.push(id);
        self.admit();
    }

    /// Notes that a request is complete: the next one of the same client has no privilege.
    pub(super) fn end_privilege(&mut self, share: &Share) {
        if self.privileged.is_some() && self.privileged == share.0 {
            self.privileged = None;
            self.admit();
        }
    }

    /// Admits waiting connections at the head of the line that fit, and one that does not fit if none is privileged.
    fn admit(&mut self) {
        while let Some(id) = self.line.front().copied() {
            let (held, wanted) = (self.entries[id].held, self.entries[id].wanted);
            if self.held - held + wanted > self.limit {
                if self.privileged.is_some() {
                    return;
                }
                self.privileged = Some(id);
            }
            self.line.pop_front();
            self.set_held(id, wanted);
            let entry = &mut self.entries[id];
            (entry.waiting, entry.since, entry.progress) = (false, None, 0);
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }

    /// Records that `bytes` arrived for a holder, and the waker to use if it stalls.
    pub(super) fn progress(&mut self, share: &Share, bytes: usize, waker: &Waker) {
        let Some(entry) = share.0.and_then(|id| self.entries.get_mut(id)) else { return };
        entry.progress += bytes;
        if !entry.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            entry.waker = Some(waker.clone());
        }
    }

    /// Whether the connection held others up and is to be dropped.
    pub(super) fn is_stalled(&self, share: &Share) -> bool {
        share.0.is_some_and(|id| self.entries[id].stalled)
    }

    /// Finds holders without progress while others wait. Call it a few times per `timeout`.
    pub(super) fn find_stalled(&mut self, now: Instant, timeout: Duration) {
        let contended = !self.line.is_empty();
        for entry in self.entries.iter_mut().filter(|entry| entry.held > 0 && !entry.waiting) {
            let since = *entry.since.get_or_insert(now);
            if !contended || entry.progress >= PROGRESS_BYTES_MIN {
                (entry.since, entry.progress) = (Some(now), 0);
            } else if now.saturating_duration_since(since) >= timeout {
                entry.stalled = true;
                entry.waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    fn budget() -> (Budget, Waker) {
        (Budget::new(100 * KIB), Waker::noop().clone())
    }

    #[test]
    fn holders_that_wait_for_one_another_finish_in_turn() {
        let (mut budget, waker) = budget();
        let mut shares = [Share::default(), Share::default(), Share::default()];
        for share in &mut shares {
            assert!(budget.grow(share, 30 * KIB, &waker));
        }
        let [a, b, c] = &mut shares;
        // All want more than there is. The first to ask is privileged, the others wait.
        assert!(budget.grow(a, 60 * KIB, &waker));
        assert!(!budget.grow(b, 60 * KIB, &waker));
        assert!(!budget.grow(c, 60 * KIB, &waker));
        assert_eq!(budget.waiting(), 2);
        assert!(budget.is_tight());
        budget.release(a);
        // 30 held by `c`, 60 given to `b`; `c` would need 120 in all and is privileged.
        assert_eq!(budget.waiting(), 0);
        assert!(budget.grow(b, 60 * KIB, &waker));
        budget.release(b);
        budget.release(c);
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn a_waiting_connection_that_leaves_is_forgotten() {
        let (mut budget, waker) = budget();
        let (mut a, mut b, mut c) = (Share::default(), Share::default(), Share::default());
        assert!(budget.grow(&mut a, 90 * KIB, &waker));
        assert!(budget.grow(&mut b, 90 * KIB, &waker), "privileged");
        assert!(!budget.grow(&mut c, 90 * KIB, &waker));
        budget.release(&mut c);
        assert_eq!(budget.waiting(), 0);
        budget.release(&mut a);
        budget.release(&mut b);
        assert_eq!((budget.held_bytes(), budget.privileged), (0, None));
    }

    #[test]
    fn only_a_holder_that_stands_in_the_way_stalls() {
        let (mut budget, waker) = budget();
        let (mut a, mut b, mut c) = (Share::default(), Share::default(), Share::default());
        let start = Instant::now();
        let timeout = Duration::from_secs(10);
        assert!(budget.grow(&mut a, 90 * KIB, &waker));
        assert!(budget.grow(&mut b, 20 * KIB, &waker));
        budget.find_stalled(start, timeout);
        budget.find_stalled(start + 2 * timeout, timeout);
        assert!(!budget.is_stalled(&a), "nobody waits");
        assert!(!budget.grow(&mut c, 20 * KIB, &waker));
        budget.progress(&b, 80 * KIB, &waker);
        budget.find_stalled(start + 3 * timeout, timeout);
        assert!(budget.is_stalled(&a));
        assert!(!budget.is_stalled(&b), "it goes on");
        assert!(!budget.is_stalled(&c), "it waits");
        budget.release(&mut a);
        assert!(budget.grow(&mut c, 20 * KIB, &waker));
    }

    #[test]
    fn a_buffer_never_exceeds_a_length_that_is_known() {
        const MAX: usize = 64 * 1024 * KIB;
        for bytes_min in [200 * KIB, 1024 * KIB + 32, 5_000_000] {
            for first in FREE_BYTES + 1..READ_BYTES {
                let (mut held, mut copies) = (first, 0);
                // It grows when less than `FREE_BYTES` are left of it, at whichever byte the last read ended.
                while held < bytes_min {
                    let capacity = next_capacity_bytes(held, bytes_min, MAX);
                    assert!(capacity <= bytes_min, "{capacity} of {bytes_min} after {first}");
                    held = if capacity == bytes_min { bytes_min } else { capacity - first % FREE_BYTES };
                    copies += 1;
                }
                assert!(copies <= 10, "{copies} copies");
            }
        }
        // A length that is not known: doubled, up to the largest request, and room for one read at least.
        assert_eq!(next_capacity_bytes(200 * KIB, 0, MAX), 400 * KIB);
        assert_eq!(next_capacity_bytes(MAX - KIB, 0, MAX), MAX - KIB + READ_BYTES);
    }

    #[test]
    fn small_amounts_are_free() {
        let (mut budget, _) = budget();
        let mut share = Share::default();
        budget.charge(&mut share, FREE_BYTES);
        assert_eq!(budget.held_bytes(), 0);
        budget.charge(&mut share, FREE_BYTES + 1);
        assert_eq!(budget.held_bytes(), FREE_BYTES + 1);
        budget.charge(&mut share, 0);
        assert_eq!(budget.held_bytes(), 0);
    }
}
