//! Feed: distributes the requests of one trace over the connections, each key always to the same one.
//!
//! A connection that needs work reads the trace and puts requests of other connections into
//! their queues. A queue is bounded: when the trace reaches a full one, all connections
//! wait for that connection, so that none gets far ahead of the order in the trace.

use std::collections::VecDeque;
use std::error::Error;
use std::task::Waker;

use tiermem_base::Access;

/// Requests that wait for one connection at most.
const QUEUE_MAX: usize = 256;

/// The form of a trace.
pub type Source = Box<dyn Iterator<Item = Result<Access, Box<dyn Error + Send + Sync>>>>;

/// The trace and what was read of it ahead.
pub struct Feed {
    trace: Source,
    queues: Vec<VecDeque<Access>>,
    /// The request that found its queue full, with the queue's number.
    held: Option<(usize, Access)>,
    ended: bool,
    error: Option<Box<dyn Error + Send + Sync>>,
    waiting: Vec<Option<Waker>>,
}

/// The next work of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A request to send.
    Request(Access),
    /// Nothing now; the waker will be called when it is worth asking again.
    Wait,
    /// Nothing, ever.
    End,
}

impl Feed {
    /// A feed for `connections` connections.
    pub fn new(trace: Source, connections: usize) -> Self {
        Feed {
            trace,
            queues: vec![VecDeque::with_capacity(QUEUE_MAX); connections],
            held: None,
            ended: false,
            error: None,
            waiting: vec![None; connections],
        }
    }

    /// The next request of connection `number`.
    pub fn next(&mut self, number: usize, waker: &Waker) -> Next {
        if let Some(access) = self.queues[number].pop_front() {
            if self.held.is_some_and(|(owner, _)| owner == number)
                && let Some((_, held)) = self.held.take()
            {
                self.queues[number].push_back(held);
                self.wake_all();
            }
            return Next::Request(access);
        }
        while !self.ended && self.held.is_none() {
            match self.trace.next() {
                Some(Ok(access)) => {
                    let owner = self.owner(access.key);
                    if owner == number {
                        return Next::Request(access);
                    }
                    if self.queues[owner].len() < QUEUE_MAX {
                        self.queues[owner].push_back(access);
                    } else {
                        self.held = Some((owner, access));
                    }
                    if let Some(waker) = self.waiting[owner].take() {
                        waker.wake();
                    }
                }
                end => {
                    self.error = end.and_then(Result::err);
                    self.ended = true;
                    self.wake_all();
                }
            }
        }
        if self.ended {
            return Next::End;
        }
        self.waiting[number] = Some(waker.clone());
        Next::Wait
    }

    /// The error that ended the trace, if one did.
    pub fn take_error(&mut self) -> Option<Box<dyn Error + Send + Sync>> {
        self.error.take()
    }

    /// Fibonacci hashing: neighbouring keys go to different connections.
    fn owner(&self, key: u64) -> usize {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(hash) * self.queues.len() as u128) >> 64) as usize
    }

    fn wake_all(&mut self) {
        self.waiting.iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(keys: Vec<u64>, connections: usize) -> Feed {
        Feed::new(Box::new(keys.into_iter().map(|key| Ok(Access::get(0, key, 1)))), connections)
    }

    #[test]
    fn every_request_comes_out_once_in_its_keys_order() {
        let count = 10_000;
        let trace = (0..count).map(|n| Ok(Access::get(n, n % 97, 1)));
        let mut feed = Feed::new(Box::new(trace), 3);
        let mut last_of_key = std::collections::HashMap::new();
        let mut seen = [0; 3];
        let mut ended = [false; 3];
        // Connection 0 asks ten times as often as the others, so queues fill up.
        for turn in 0.. {
            let number = if turn % 12 < 10 { 0 } else { turn % 12 - 9 };
            match feed.next(number, Waker::noop()) {
                Next::Request(access) => {
                    seen[number] += 1;
                    let before = last_of_key.insert(access.key, (number, access.time_ns));
                    assert!(before.is_none_or(|(owner, time)| owner == number && time < access.time_ns));
                }
                Next::Wait => assert!(feed.held.is_some()),
                Next::End => ended[number] = true,
            }
            if ended == [true; 3] {
                break;
            }
        }
        assert_eq!(seen.iter().sum::<u64>(), count);
        assert!(seen.iter().all(|seen| *seen > 2000), "{seen:?}");
    }

    #[test]
    fn a_full_queue_holds_the_others_back() {
        let probe = feed(vec![], 2);
        let [mine, other] = [0, 1].map(|owner| (0..).find(|key| probe.owner(*key) == owner).unwrap_or(0));
        let mut feed = feed([vec![other; QUEUE_MAX + 1], vec![mine]].concat(), 2);
        assert_eq!(feed.next(0, Waker::noop()), Next::Wait);
        assert_eq!(feed.next(1, Waker::noop()), Next::Request(Access::get(0, other, 1)));
        assert_eq!(feed.next(0, Waker::noop()), Next::Request(Access::get(0, mine, 1)));
        assert_eq!(feed.next(0, Waker::noop()), Next::End);
    }

    #[test]
    fn an_error_ends_the_trace_and_is_kept() {
        let records: Vec<Result<Access, _>> = vec![Ok(Access::get(0, 1, 1)), Err("broken".into())];
        let mut feed = Feed::new(Box::new(records.into_iter()), 1);
        assert!(matches!(feed.next(0, Waker::noop()), Next::Request(_)));
        assert_eq!(feed.next(0, Waker::noop()), Next::End);
        assert_eq!(feed.take_error().map(|error| error.to_string()), Some("broken".to_owned()));
    }
}
