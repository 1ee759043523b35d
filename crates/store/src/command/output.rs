//! Reply queue of a client: bytes, and values that stay pinned in the engine until they are sent.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::engine::{Engine, Pin};

/// A value at least this long is sent from where it lies in its tier, if the engine can pin it.
pub const PIN_BYTES_MIN: usize = 32 * 1024;

#[derive(Debug)]
enum OutputPart {
    Bytes(Box<[u8]>),
    Pin(Pin),
}

/// A buffer is given back in part once this much of it was sent.
const SENT_BYTES_KEPT: usize = 32 * 1024;

/// Where a reply began, to take it back.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    parts: usize,
    tail_bytes: usize,
    owned_bytes: usize,
}

/// Replies in the order in which they are sent.
///
/// Most queues are one buffer, [`Output::bytes`]; a pinned value closes that buffer off and the next begins
/// behind it. The owner must call [`Output::clear`] before it drops a queue, or pins keep their memory.
#[derive(Debug, Default)]
pub struct Output {
    parts: VecDeque<OutputPart>,
    /// Behind all parts.
    tail: Vec<u8>,
    /// Bytes of the first part (or, without parts, of the tail) already sent.
    sent: usize,
    /// Bytes in `parts`.
    parts_bytes: usize,
    /// Of these, the bytes of pinned values.
    pinned_bytes: usize,
    /// What was last counted of [`Self::owned_bytes`].
    counted_bytes: usize,
}

impl Output {
    /// The buffer at the queue's end, to append to.
    #[inline]
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Bytes not yet sent, pinned ones counted.
    #[inline]
    pub fn len(&self) -> usize {
        self.parts_bytes + self.tail.len() - self.sent
    }

    /// Bytes of the queue's own memory that are not yet sent: all but pinned values.
    #[inline]
    pub fn owned_bytes(&self) -> usize {
        let all = self.parts_bytes - self.pinned_bytes + self.tail.len();
        if matches!(self.parts.front(), Some(OutputPart::Pin(_))) { all } else { all - self.sent }
    }

    /// Of these, what has come since they were last counted.
    #[inline]
    pub fn uncounted_bytes(&self) -> usize {
        self.owned_bytes().saturating_sub(self.counted_bytes)
    }

    /// Counts the unsent bytes of the queue's own memory, and gives back what was sent of it where that is much. Returns how much they
    /// were before, and are.
    #[inline]
    pub fn count(&mut self) -> (usize, usize) {
        if self.sent >= SENT_BYTES_KEPT {
            self.release_sent();
        }
        let owned_bytes = self.owned_bytes();
        (core::mem::replace(&mut self.counted_bytes, owned_bytes), owned_bytes)
    }

    /// Whether all is sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the buffer at the end off.
    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.parts_bytes += self.tail.len();
            // The tail's memory may be lent, and large: it stays.
            self.parts.push_back(OutputPart::Bytes(self.tail.as_slice().into()));
            self.tail.clear();
        }
    }

    /// Gives back the memory of what was sent of the first buffer, once that is half of it: a client that stops reading in the
    /// middle of a large reply would hold all of it, and be counted for the rest. Every byte is moved once in all.
    fn release_sent(&mut self) {
        let sent = self.sent;
        match self.parts.front_mut() {
            Some(OutputPart::Bytes(bytes)) if sent * 2 >= bytes.len() => {
                *bytes = bytes[sent..].into();
                self.parts_bytes -= sent;
            }
            None if sent * 2 >= self.tail.len() => self.tail = self.tail[sent..].to_vec(),
            _ => return,
        }
        self.sent = 0;
    }

    /// Appends a large reply in memory of its own.
    pub fn push_bytes(&mut self, bytes: Vec<u8>) {
        self.end_tail();
        self.parts_bytes += bytes.len();
        self.parts.push_back(OutputPart::Bytes(bytes.into_boxed_slice()));
    }

    /// Appends a copy of a large value: in memory of its own, for a buffer that grew by hundreds of them would be moved again and again.
    pub fn push_copy(&mut self, value: &[u8]) {
        self.push_bytes(value.to_vec());
    }

    /// Appends a pinned value's bytes.
    pub fn push_pin(&mut self, pin: Pin) {
        self.end_tail();
        self.parts_bytes += pin.len();
        self.pinned_bytes += pin.len();
        self.parts.push_back(OutputPart::Pin(pin));
    }

    /// The present end, for [`Self::truncate`].
    pub fn mark(&self) -> Mark {
        Mark { parts: self.parts.len(), tail_bytes: self.tail.len(), owned_bytes: self.owned_bytes() }
    }

    /// Bytes appended since `mark`, pinned values not counted. Nothing may have been sent since.
    pub fn since(&self, mark: Mark) -> usize {
        self.owned_bytes() - mark.owned_bytes
    }

    /// Takes back what was appended since `mark`. Nothing may have been sent since.
    pub fn truncate(&mut self, mark: Mark, engine: &mut Engine) {
        if self.parts.len() == mark.parts {
            self.tail.truncate(mark.tail_bytes);
            return;
        }
        self.tail.clear();
        while self.parts.len() > mark.parts {
            match self.parts.pop_back() {
                Some(OutputPart::Pin(pin)) => {
                    self.parts_bytes -= pin.len();
                    self.pinned_bytes -= pin.len();
                    engine.pins().unpin(pin);
                }
                Some(OutputPart::Bytes(bytes)) => {
                    self.parts_bytes -= bytes.len();
                    // The first part behind the mark is the buffer that was the tail then, unless that was empty.
                    self.tail = bytes.into_vec();
                }
                None => break,
            }
        }
        self.tail.truncate(mark.tail_bytes);
    }

    /// Fills `slices` with what is to be sent next and returns how many it filled. `None`: a pinned value was lost, so that the
    /// rest cannot be sent.
    pub fn slices<'a>(&'a self, engine: &'a Engine, slices: &mut [IoSlice<'a>]) -> Option<usize> {
        let mut filled = 0;
        let mut skip = self.sent;
        let parts = self.parts.iter().map(|part| match part {
            OutputPart::Bytes(bytes) => Some(&**bytes),
            OutputPart::Pin(pin) => engine.pinned(pin),
        });
        for (slice, bytes) in slices.iter_mut().zip(parts.chain(core::iter::once(Some(self.tail.as_slice()))))
        {
            *slice = IoSlice::new(&bytes?[skip..]);
            skip = 0;
            filled += 1;
        }
        Some(filled)
    }

    /// The one buffer to be sent, when nothing is pinned.
    #[inline]
    pub fn plain(&self) -> Option<&[u8]> {
        self.parts.is_empty().then(|| &self.tail[self.sent..])
    }

    /// Strikes off `count` bytes that were sent.
    pub fn advance(&mut self, count: usize, engine: &mut Engine) {
        self.sent += count;
        while let Some(front) = self.parts.front() {
            let len = match front {
                OutputPart::Bytes(bytes) => bytes.len(),
                OutputPart::Pin(pin) => pin.len(),
            };
            if self.sent < len {
                return;
            }
            self.sent -= len;
            self.parts_bytes -= len;
            if let Some(OutputPart::Pin(pin)) = self.parts.pop_front() {
                self.pinned_bytes -= pin.len();
                engine.pins().unpin(pin);
            }
        }
        if self.sent == self.tail.len() {
            self.tail.clear();
            self.sent = 0;
        }
    }

    /// Drops everything unsent and gives all pins free.
    pub fn clear(&mut self, engine: &mut Engine) {
        for part in self.parts.drain(..) {
            if let OutputPart::Pin(pin) = part {
                engine.pins().unpin(pin);
            }
        }
        self.tail = Vec::new();
        (self.sent, self.parts_bytes, self.pinned_bytes) = (0, 0, 0);
    }

    /// All of an unsent queue as bytes.
    pub fn into_bytes(mut self, engine: &mut Engine) -> Vec<u8> {
        if self.parts.is_empty() {
            return self.tail;
        }
        let mut bytes = Vec::with_capacity(self.len());
        for part in self.parts.drain(..) {
            match part {
                OutputPart::Bytes(part) => bytes.extend_from_slice(&part),
                OutputPart::Pin(pin) => {
                    // What was lost is not sent: its client is disconnected.
                    bytes.extend_from_slice(engine.pinned(&pin).unwrap_or_default());
                    engine.pins().unpin(pin);
                }
            }
        }
        bytes.extend_from_slice(&self.tail);
        bytes
    }

    /// Gives back the memory of an empty queue that holds more than `bytes_max`.
    pub fn release_memory(&mut self, bytes_max: usize) {
        if self.is_empty() && self.tail.capacity() > bytes_max {
            self.tail = Vec::new();
        }
    }

    /// Exchanges the memory of an empty queue for `buffer`'s, so that an idle queue owns none; whether it did.
    #[inline]
    pub fn lend(&mut self, buffer: &mut Vec<u8>) -> bool {
        let lent = self.is_empty();
        if lent {
            core::mem::swap(&mut self.tail, buffer);
        }
        lent
    }

    /// Takes the memory lent back into `buffer` and keeps what is unsent in memory of the queue's own.
    #[inline]
    pub fn give_back(&mut self, buffer: &mut Vec<u8>) {
        core::mem::swap(&mut self.tail, buffer);
        if !buffer.is_empty() {
            let from = if self.parts.is_empty() { core::mem::take(&mut self.sent) } else { 0 };
            self.tail.extend_from_slice(&buffer[from..]);
            buffer.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Condition, EngineConfig, Expiry, Holder};
    use tiermem_base::{Bytes, TierKind, TierSpec};

    fn sent(output: &Output, engine: &Engine) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); 16];
        let filled = output.slices(engine, &mut slices).unwrap();
        slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    #[test]
    fn pinned_values_are_sent_and_not_counted_and_copies_are_both() {
        let tiers = vec![TierSpec::new(TierKind::Dram, Bytes(8 << 20))];
        let mut engine = Engine::new(EngineConfig::new(tiers)).unwrap();
        let value = vec![7; PIN_BYTES_MIN];
        engine.set(0, b"key", &value, Condition::Always, Expiry::Never).unwrap();
        let item = engine.peek(0, b"key").unwrap().item;
        let mut output = Output::default();
        output.bytes().extend_from_slice(b"head");
        assert_eq!(output.count(), (0, 4));
        let mark = output.mark();
        output.push_pin(engine.pins().pin(item, Holder::Client(1, None)).unwrap());
        output.bytes().extend_from_slice(b"middle");
        assert_eq!((output.since(mark), output.len()), (6, 10 + value.len()));
        output.push_copy(&value);
        output.bytes().extend_from_slice(b"end");
        assert_eq!((output.since(mark), output.uncounted_bytes()), (9 + value.len(), 9 + value.len()));
        let all = [b"head", &value[..], b"middle", &value[..], b"end"].concat();
        assert_eq!(sent(&output, &engine), all);
        // Sent piece by piece: within the pinned value, then within the copy.
        output.advance(5, &mut engine);
        assert_eq!((sent(&output, &engine), output.owned_bytes()), (all[5..].to_vec(), 9 + value.len()));
        output.advance(all.len() - 5 - 4, &mut engine);
        assert_eq!((output.owned_bytes(), engine.stats().pinned_bytes), (4, 0));
        output.advance(4, &mut engine);
        assert_eq!((output.owned_bytes(), output.count()), (0, (4, 0)));
        output.push_pin(engine.pins().pin(item, Holder::Client(1, None)).unwrap());
        output.push_copy(&value);
        output.clear(&mut engine);
        assert_eq!((output.len(), output.owned_bytes(), engine.stats().pinned_bytes), (0, 0, 0));
    }

    #[test]
    fn memory_of_what_was_sent_is_given_back_in_the_middle_of_a_reply() {
        let tiers = vec![TierSpec::new(TierKind::Dram, Bytes(8 << 20))];
        let mut engine = Engine::new(EngineConfig::new(tiers)).unwrap();
        let held = |output: &Output| {
            let parts = output.parts.iter().map(|part| match part {
                OutputPart::Bytes(bytes) => bytes.len(),
                OutputPart::Pin(_) => 0,
            });
            parts.sum::<usize>() + output.tail.capacity()
        };
        let reply: Vec<u8> = (0..1_000_000_u32).map(|it| it as u8).collect();
        let mut large = Output::default();
        large.push_copy(&reply);
        large.bytes().extend_from_slice(b"end");
        let all = [&reply[..], b"end"].concat();
        let mut small = Output::default();
        small.bytes().extend_from_slice(&all);
        for mut output in [large, small] {
            let mut at = 0;
            while at < all.len() {
                assert_eq!(sent(&output, &engine), all[at..]);
                let step = (all.len() - at).min(100_000);
                output.advance(step, &mut engine);
                at += step;
                assert_eq!(output.count().1, all.len() - at);
                let most = (2 * (all.len() - at)).max(2 * SENT_BYTES_KEPT);
                assert!(at == all.len() || held(&output) <= most, "{} of {at}", held(&output));
            }
            assert!(output.is_empty());
        }
    }
}
