//! Buffer memory that clients keep in use: incoming payloads, and replies that they have not read.
//!
//! The bytes of jobs in flight are bounded for each disk. What is counted here depends on the
//! clients, of which there may be thousands. Each may always hold a little. Beyond that all share
//! one budget: once it is used up, a request that needs more waits, and holds nothing while it does.
//! A client that holds more than a little and makes no progress while others wait is shut out.

use std::collections::VecDeque;

/// The budget at least, so that the largest request fits into a part of it.
const BYTES_MIN: u64 = 64 << 20;
/// Bytes that every client may hold.
const SMALL_BYTES: u64 = 64 << 10;
/// Checks for progress that make up the time after which a client is shut out.
pub(super) const LOOKS: u64 = 10;

/// Memory that one client holds.
#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    bytes: u64,
    /// The look before which it moved last.
    moved: u64,
    waits: bool,
    is_shut_out: bool,
}

/// What all hold, by the places of their connections.
#[derive(Debug)]
pub(super) struct Buffers {
    holds: Vec<Hold>,
    bytes: u64,
    bytes_max: u64,
    looks: u64,
    /// The waiting connections, and how much more each needs, in the order of arrival.
    waiting: VecDeque<(usize, u64)>,
}

impl Buffers {
    pub(super) fn new(bytes_max: u64) -> Self {
        let bytes_max = bytes_max.max(BYTES_MIN);
        Buffers { holds: Vec::new(), bytes: 0, bytes_max, looks: 0, waiting: VecDeque::new() }
    }

    /// A connection takes this place.
    pub(super) fn enter(&mut self, at: usize) {
        if self.holds.len() <= at {
            self.holds.resize(at + 1, Hold::default());
        }
        self.holds[at] = Hold { moved: self.looks, ..Hold::default() };
    }

    /// The connection leaves this place, and all that it held.
    pub(super) fn leave(&mut self, at: usize) {
        self.set(at, 0);
        if std::mem::take(&mut self.holds[at].waits) {
            self.waiting.retain(|(other, _)| *other != at);
        }
    }

    /// Sets the bytes that a connection holds now.
    pub(super) fn set(&mut self, at: usize, bytes: u64) {
        let hold = &mut self.holds[at];
        self.bytes = self.bytes - hold.bytes + bytes;
        hold.bytes = bytes;
    }

    /// A connection has sent or taken something.
    pub(super) fn moved(&mut self, at: usize) {
        self.holds[at].moved = self.looks;
    }

    fn fits(&self, at: usize, more: u64) -> bool {
        self.holds[at].bytes + more <= SMALL_BYTES || self.bytes + more <= self.bytes_max
    }

    /// Whether a connection may hold `more` bytes; otherwise it waits, and [`Self::next`] returns it later.
    pub(super) fn may_hold(&mut self, at: usize, more: u64) -> bool {
        let fits = self.fits(at, more);
        if !fits && !self.holds[at].waits {
            self.holds[at].waits = true;
            self.waiting.push_back((at, more));
        }
        fits
    }

    /// The connection that has waited longest, once there is room for what it needs. It asks again.
    pub(super) fn next(&mut self) -> Option<usize> {
        let &(at, more) = self.waiting.front()?;
        if !self.fits(at, more) {
            return None;
        }
        self.waiting.pop_front();
        self.holds[at].waits = false;
        Some(at)
    }

    /// Checks for clients without progress while others wait; returns those that it shuts out.
    pub(super) fn look(&mut self) -> Vec<usize> {
        self.looks += 1;
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let looks = self.looks;
        let stands =
            |hold: &Hold| hold.bytes > SMALL_BYTES && looks > hold.moved + LOOKS && !hold.is_shut_out;
        let stalled: Vec<usize> = (0..self.holds.len()).filter(|at| stands(&self.holds[*at])).collect();
        for at in &stalled {
            self.holds[*at].is_shut_out = true;
        }
        stalled
    }

    /// Whether a connection has been shut out.
    pub(super) fn is_shut_out(&self, at: usize) -> bool {
        self.holds[at].is_shut_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_move_gives_way_to_those_who_wait() {
        let mut buffers = Buffers::new(0);
        (0..3).for_each(|at| buffers.enter(at));
        assert!(buffers.may_hold(0, BYTES_MIN));
        buffers.set(0, BYTES_MIN);
        for _ in 0..2 * LOOKS {
            assert!(buffers.look().is_empty(), "nobody waits for it");
        }
        assert!(buffers.may_hold(1, SMALL_BYTES), "a little is everybody's");
        assert!(!buffers.may_hold(1, SMALL_BYTES + 1));
        buffers.moved(0);
        for _ in 0..LOOKS {
            assert!(buffers.look().is_empty());
        }
        assert_eq!(buffers.look(), [0]);
        assert!(buffers.is_shut_out(0) && buffers.next().is_none());
        buffers.leave(0);
        assert_eq!((buffers.next(), buffers.next()), (Some(1), None));
        assert!(buffers.may_hold(1, BYTES_MIN));
        buffers.enter(0);
        assert!(!buffers.is_shut_out(0), "whoever comes next");
    }
}
