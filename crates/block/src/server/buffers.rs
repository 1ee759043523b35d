//! Buffer memory that clients keep in use: incoming payloads, jobs in flight, and replies that they have not read.
//!
//! It depends on the clients, of which there may be thousands. Each may always hold a little. Beyond that all share one budget: once it
//! is used up, a request that needs more waits, and holds nothing while it does. A reply is there at the same moment as the job's part of
//! the budget is given back, whether its connection has looked at it or not.
//! A client that holds more than a little and makes no progress while others wait is shut out.
//!
//! What jobs in flight take is bounded for each disk, and counts for the clients of that disk alone: jobs of a disk that hangs take nothing
//! from the clients of others, and who waits for it is not shut out.

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
    disk: usize,
    /// Payloads that are arriving, and replies in its queue.
    bytes: u64,
    /// Replies that it has not looked at.
    mail_bytes: u64,
    /// Its jobs in flight.
    job_bytes: u64,
    /// The look before which it moved last.
    moved: u64,
    waits: bool,
    is_shut_out: bool,
}

impl Hold {
    /// What lies with the client.
    fn own_bytes(&self) -> u64 {
        self.bytes + self.mail_bytes
    }
}

/// What all hold, by the places of their connections.
#[derive(Debug)]
pub(super) struct Buffers {
    holds: Vec<Hold>,
    /// What lies with all clients.
    bytes: u64,
    /// Jobs in flight, by disk.
    job_bytes: Vec<u64>,
    bytes_max: u64,
    looks: u64,
    /// The waiting connections, and how much more each needs, in the order of arrival.
    waiting: VecDeque<(usize, u64)>,
}

impl Buffers {
    pub(super) fn new(bytes_max: u64) -> Self {
        let bytes_max = bytes_max.max(BYTES_MIN);
        let (holds, job_bytes) = (Vec::new(), Vec::new());
        Buffers { holds, bytes: 0, job_bytes, bytes_max, looks: 0, waiting: VecDeque::new() }
    }

    /// A connection to a disk takes this place.
    pub(super) fn enter(&mut self, at: usize, disk: usize) {
        if self.holds.len() <= at {
            self.holds.resize(at + 1, Hold::default());
        }
        if self.job_bytes.len() <= disk {
            self.job_bytes.resize(disk + 1, 0);
        }
        self.holds[at] = Hold { disk, moved: self.looks, ..Hold::default() };
    }

    /// The connection leaves this place, and all that it held but its jobs in flight.
    pub(super) fn leave(&mut self, at: usize) {
        self.set(at, 0);
        self.mail_taken(at);
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

    /// A job of this size begins.
    pub(super) fn begin(&mut self, at: usize, bytes: u64) {
        let hold = &mut self.holds[at];
        hold.job_bytes += bytes;
        self.job_bytes[hold.disk] += bytes;
    }

    /// A job of this size has ended.
    pub(super) fn end(&mut self, at: usize, bytes: u64) {
        let hold = &mut self.holds[at];
        hold.job_bytes -= bytes;
        self.job_bytes[hold.disk] -= bytes;
    }

    /// A reply that takes so much is there for a connection.
    pub(super) fn mail(&mut self, at: usize, bytes: u64) {
        self.holds[at].mail_bytes += bytes;
        self.bytes += bytes;
    }

    /// A connection has taken its replies, and says with [`Self::set`] what it holds with them.
    pub(super) fn mail_taken(&mut self, at: usize) {
        self.bytes -= std::mem::take(&mut self.holds[at].mail_bytes);
    }

    /// A connection has sent or taken something.
    pub(super) fn moved(&mut self, at: usize) {
        self.holds[at].moved = self.looks;
    }

    fn fits(&self, at: usize, more: u64) -> bool {
        let hold = &self.holds[at];
        hold.own_bytes() + hold.job_bytes + more <= SMALL_BYTES
            || self.bytes + self.job_bytes[hold.disk] + more <= self.bytes_max
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
            |hold: &Hold| hold.own_bytes() > SMALL_BYTES && looks > hold.moved + LOOKS && !hold.is_shut_out;
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
        (0..3).for_each(|at| buffers.enter(at, 0));
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
        buffers.enter(0, 0);
        assert!(!buffers.is_shut_out(0), "whoever comes next");
    }

    #[test]
    fn a_reply_counts_from_when_its_job_begins_until_it_is_sent() {
        let mut buffers = Buffers::new(0);
        (0..2).for_each(|at| buffers.enter(at, 0));
        let half = BYTES_MIN / 2;
        for at in 0..2 {
            assert!(buffers.may_hold(at, half));
            buffers.begin(at, half);
        }
        let is_used_up = |buffers: &mut Buffers| !buffers.may_hold(0, SMALL_BYTES) && !buffers.may_hold(1, 1);
        assert!(is_used_up(&mut buffers), "not even a little, beside what is in flight");
        buffers.end(0, half);
        buffers.mail(0, half);
        assert!(is_used_up(&mut buffers) && buffers.next().is_none(), "nobody has looked at it");
        buffers.mail_taken(0);
        buffers.set(0, half);
        assert!(is_used_up(&mut buffers));
        buffers.set(0, 0);
        assert_eq!((buffers.next(), buffers.next(), buffers.next()), (Some(0), Some(1), None));
        // One that has left leaves its jobs.
        buffers.mail(1, half);
        buffers.leave(1);
        assert!(!buffers.may_hold(0, half + 1));
        buffers.end(1, half);
        assert_eq!((buffers.next(), buffers.bytes), (Some(0), 0));
    }

    #[test]
    fn jobs_of_a_disk_that_hangs_take_nothing_from_others_and_shut_nobody_out() {
        let mut buffers = Buffers::new(0);
        (0..4).for_each(|at| buffers.enter(at, at / 2));
        buffers.begin(0, BYTES_MIN);
        assert!(!buffers.may_hold(1, 2 * SMALL_BYTES) && buffers.may_hold(1, SMALL_BYTES));
        assert!(buffers.may_hold(2, BYTES_MIN));
        assert!((0..2 * LOOKS).all(|_| buffers.look().is_empty()), "its disk does not answer");
    }
}
