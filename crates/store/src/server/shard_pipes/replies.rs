//! Reply queue of a connection with pipes: the replies still to be sent, in the order of its requests.

use std::borrow::Cow;
use std::collections::VecDeque;

use tokio::sync::OwnedSemaphorePermit;

use super::pipe::LARGE_BYTES;
use crate::command::Output;
use crate::resp::Version;
use crate::shards::merge::Merge;

/// A reply's place.
#[derive(Debug)]
enum Slot {
    /// It is there, or something that must not overtake those before it.
    Ready(Vec<u8>),
    /// Awaited from this shard.
    One { shard: usize, silent: bool },
    /// Awaited from several.
    Many(Box<Parts>),
}

/// A place in the queue.
#[derive(Debug)]
struct QueuedReply {
    slot: Slot,
    /// What was pushed by a shard that had answered this and nothing behind it.
    pushed: Vec<u8>,
}

impl From<Slot> for QueuedReply {
    fn from(slot: Slot) -> Self {
        QueuedReply { slot, pushed: Vec::new() }
    }
}

/// A reply that several shards have a part in.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) merge: Merge,
    /// The parts that have arrived; the others are empty.
    pub(super) parts: Vec<Vec<u8>>,
    pub(super) missing: usize,
    pub(super) version: Version,
    /// The client wants no reply.
    pub(super) silent: bool,
    /// The right to tell all shards something, which others wait for.
    pub(super) turn: Option<OwnedSemaphorePermit>,
}

/// Replies that have arrived and wait for earlier ones, and replies still awaited.
#[derive(Debug, Default)]
pub(super) struct Replies {
    queue: VecDeque<QueuedReply>,
    /// The number of the first one.
    first: u64,
    held_bytes: usize,
}

impl Replies {
    /// Whether none is awaited.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Bytes that wait for others.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether the reply that goes out next may come from this shard.
    pub(super) fn is_next(&self, shard: usize) -> bool {
        match self.queue.front() {
            Some(QueuedReply { slot: Slot::One { shard: awaited, .. }, .. }) => *awaited == shard,
            _ => true,
        }
    }

    /// What the first place is called.
    pub(super) fn first_number(&self) -> u64 {
        self.first
    }

    /// What the next place is called.
    pub(super) fn next_number(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    /// A place for a reply from one shard.
    pub(super) fn await_one(&mut self, shard: usize, silent: bool) {
        self.queue.push_back(Slot::One { shard, silent }.into());
    }

    /// A place for a reply of several parts, some of which may be there.
    pub(super) fn await_many(&mut self, parts: Parts, output: &mut Output) {
        self.held_bytes += parts.parts.iter().map(Vec::len).sum::<usize>();
        let number = self.next_number();
        let complete = parts.missing == 0;
        self.queue.push_back(Slot::Many(Box::new(parts)).into());
        if complete {
            self.complete(number);
            self.deliver(output);
        }
    }

    /// A place for what is there already.
    pub(super) fn hold(&mut self, reply: Vec<u8>, output: &mut Output) {
        self.held_bytes += reply.len();
        self.queue.push_back(Slot::Ready(reply).into());
        self.deliver(output);
    }

    /// Takes a push message of a shard that answered request `answered` last:
    /// it is sent behind that reply, and before the shard's later replies.
    pub(super) fn push(&mut self, answered: Option<u64>, bytes: &[u8], output: &mut Output) {
        let place = answered.and_then(|number| number.checked_sub(self.first));
        match place.and_then(|at| self.queue.get_mut(at as usize)) {
            Some(place) => {
                self.held_bytes += bytes.len();
                place.pushed.extend_from_slice(bytes);
            }
            None => output.bytes().extend_from_slice(bytes),
        }
    }

    /// Takes a reply, or a part of one, that has arrived.
    pub(super) fn arrive(&mut self, number: u64, part: usize, reply: Cow<'_, [u8]>, output: &mut Output) {
        let at = (number - self.first) as usize;
        match &mut self.queue[at].slot {
            Slot::One { silent: false, .. } if at == 0 => {
                // Nothing was pushed behind it yet: its shard answers it only now.
                match reply {
                    Cow::Owned(large) => output.push_bytes(large),
                    Cow::Borrowed(small) => output.bytes().extend_from_slice(small),
                }
                self.queue.pop_front();
                self.first += 1;
            }
            Slot::One { silent, .. } => {
                let reply = if *silent { Vec::new() } else { reply.into_owned() };
                self.held_bytes += reply.len();
                self.queue[at].slot = Slot::Ready(reply);
            }
            Slot::Many(parts) => {
                self.held_bytes += reply.len();
                parts.parts[part] = reply.into_owned();
                parts.missing -= 1;
                if parts.missing == 0 {
                    self.complete(number);
                }
            }
            Slot::Ready(_) => {}
        }
        self.deliver(output);
    }

    /// All parts of a reply are there.
    fn complete(&mut self, number: u64) {
        let at = (number - self.first) as usize;
        let Slot::Many(parts) = &mut self.queue[at].slot else { return };
        // All shards have heard.
        drop(parts.turn.take());
        let reply = if parts.silent { Vec::new() } else { parts.merge.apply(&parts.parts, parts.version) };
        self.held_bytes -= parts.parts.iter().map(Vec::len).sum::<usize>();
        self.held_bytes += reply.len();
        self.queue[at].slot = Slot::Ready(reply);
    }

    /// Moves the replies that are next to the output.
    fn deliver(&mut self, output: &mut Output) {
        while let Some(QueuedReply { slot: Slot::Ready(reply), pushed }) = self.queue.front_mut() {
            self.held_bytes -= reply.len() + pushed.len();
            if reply.len() < LARGE_BYTES {
                output.bytes().extend_from_slice(reply);
            } else {
                output.push_bytes(core::mem::take(reply));
            }
            output.bytes().extend_from_slice(pushed);
            self.queue.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use tiermem_base::{Bytes, TierKind, TierSpec};

    use super::*;
    use crate::engine::{Engine, EngineConfig};

    fn out(output: &mut Output) -> String {
        String::from_utf8(core::mem::take(output.bytes())).unwrap()
    }

    #[test]
    fn replies_go_out_in_the_order_of_requests() {
        let (mut replies, mut output) = (Replies::default(), Output::default());
        let numbers: Vec<u64> = [1, 2, 1]
            .map(|shard| {
                let number = replies.next_number();
                replies.await_one(shard, false);
                number
            })
            .into();
        assert!(replies.is_next(1) && !replies.is_next(2));
        replies.hold(b"own,".to_vec(), &mut output);
        replies.arrive(numbers[1], 0, Cow::Borrowed(b"two,"), &mut output);
        assert_eq!((out(&mut output).as_str(), replies.held_bytes()), ("", 8));
        replies.arrive(numbers[0], 0, Cow::Borrowed(b"one,"), &mut output);
        assert_eq!(out(&mut output), "one,two,");
        replies.arrive(numbers[2], 0, Cow::Borrowed(b"three,"), &mut output);
        assert_eq!((out(&mut output).as_str(), replies.held_bytes()), ("three,own,", 0));
        assert!(replies.is_empty());
    }

    #[test]
    fn what_is_pushed_keeps_its_place_among_its_shards_replies() {
        let (mut replies, mut output) = (Replies::default(), Output::default());
        let numbers: Vec<u64> = [1, 2, 2]
            .map(|shard| {
                let number = replies.next_number();
                replies.await_one(shard, false);
                number
            })
            .into();
        replies.push(None, b"early,", &mut output);
        replies.arrive(numbers[1], 0, Cow::Borrowed(b"two,"), &mut output);
        replies.push(Some(numbers[1]), b"pushed,", &mut output);
        replies.arrive(numbers[2], 0, Cow::Borrowed(b"three,"), &mut output);
        assert_eq!((out(&mut output).as_str(), replies.held_bytes()), ("early,", 17));
        replies.arrive(numbers[0], 0, Cow::Borrowed(b"one,"), &mut output);
        assert_eq!((out(&mut output).as_str(), replies.held_bytes()), ("one,two,pushed,three,", 0));
        replies.push(Some(numbers[2]), b"late", &mut output);
        assert_eq!(out(&mut output), "late");
    }

    #[test]
    fn a_large_reply_goes_out_in_its_own_memory_and_keeps_its_place() {
        let (mut replies, mut output) = (Replies::default(), Output::default());
        let large = vec![b'x'; LARGE_BYTES];
        let numbers = [1, 1, 2].map(|shard| {
            let number = replies.next_number();
            replies.await_one(shard, false);
            number
        });
        replies.arrive(numbers[0], 0, Cow::Owned(large.clone()), &mut output);
        replies.arrive(numbers[2], 0, Cow::Owned(large.clone()), &mut output);
        assert_eq!((output.len(), replies.held_bytes()), (large.len(), large.len()));
        replies.arrive(numbers[1], 0, Cow::Borrowed(b",between,"), &mut output);
        assert_eq!(replies.held_bytes(), 0);
        let tiers = vec![TierSpec::new(TierKind::Dram, Bytes(1 << 20))];
        let mut engine = Engine::new(EngineConfig::new(tiers)).unwrap();
        assert_eq!(output.into_bytes(&mut engine), [&large[..], b",between,", &large[..]].concat());
    }

    #[test]
    fn parts_become_one_reply_and_silence_none() {
        let (mut replies, mut output) = (Replies::default(), Output::default());
        for silent in [false, true] {
            let number = replies.next_number();
            let parts = vec![b":1\r\n".to_vec(), Vec::new(), Vec::new()];
            let version = Version::Resp2;
            replies.await_many(
                Parts { merge: Merge::Sum, parts, missing: 2, version, silent, turn: None },
                &mut output,
            );
            replies.arrive(number, 2, Cow::Borrowed(b":40\r\n"), &mut output);
            replies.hold(b"behind".to_vec(), &mut output);
            assert_eq!(out(&mut output), "");
            replies.arrive(number, 1, Cow::Borrowed(b":1\r\n"), &mut output);
            assert_eq!(out(&mut output), if silent { "behind" } else { ":42\r\nbehind" });
            assert_eq!(replies.held_bytes(), 0);
        }
    }
}
