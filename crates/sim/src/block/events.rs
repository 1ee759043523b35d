//! Completions of the devices, in the order in which the live engine takes them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tiermem_policy::extents::cleaner::Token;

/// The cache's device; the store of a volume is the volume's number and 1.
pub const CACHE: u32 = 0;

/// What a device has done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Done {
    /// These units of the cache were read for a request.
    Read { start: u64, end: u64 },
    /// All that this request needs is here.
    Gathered(u32),
    /// All that this request stores is stored.
    Stored(u32),
    /// Units of a volume were read, to be written back.
    Copied { token: Token },
    /// A store has taken what is written back, or not.
    Sent { token: Token, fails: bool },
    /// A store has been flushed, or not.
    Flushed { token: Token, fails: bool },
}

/// A completion of a device at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at_ns: u64,
    device: u32,
    /// In the order of submission.
    number: u64,
    what: Done,
}

/// What is on its way: by time, then by device, then in the order of submission.
#[derive(Debug, Default)]
pub struct Events {
    events: BinaryHeap<Reverse<Event>>,
    begun: u64,
}

impl Events {
    /// A device will have done something at a time.
    pub fn add(&mut self, at_ns: u64, device: u32, what: Done) {
        self.begun += 1;
        self.events.push(Reverse(Event { at_ns, device, number: self.begun, what }));
    }

    /// When the next one is due.
    pub fn next_ns(&self) -> Option<u64> {
        self.events.peek().map(|Reverse(event)| event.at_ns)
    }

    /// The next one that is due by a time.
    pub fn take(&mut self, now_ns: u64) -> Option<Done> {
        self.next_ns().filter(|at_ns| *at_ns <= now_ns)?;
        self.events.pop().map(|Reverse(event)| event.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_one_time_come_by_device_and_then_as_they_were_submitted() {
        let mut events = Events::default();
        let submitted = [(20, 0, 1), (10, 2, 2), (10, 0, 3), (10, 2, 4), (10, 1, 5)];
        for (at_ns, device, request) in submitted {
            events.add(at_ns, device, Done::Stored(request));
        }
        assert_eq!((events.next_ns(), events.take(9)), (Some(10), None));
        let taken: Vec<_> = std::iter::from_fn(|| events.take(10)).collect();
        assert_eq!(taken, [3, 5, 2, 4].map(Done::Stored));
        assert_eq!((events.take(30), events.next_ns()), (Some(Done::Stored(1)), None));
    }
}
