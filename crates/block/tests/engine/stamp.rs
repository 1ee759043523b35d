//! Stamp of 512 bytes of a volume: all values that clients wrote there, and which of them may be read.

use std::ops::Range;

use tiermem_block::nbd::Extent;
use tiermem_block::nbd::wire::STATE_ZERO;

/// Bytes that are written as a whole: one stamp.
pub const STAMP_BYTES: u64 = 512;

/// A write to a stamp. Those to one stamp do not overlap in time.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub value: u64,
    /// The number of its request.
    pub sent: u64,
    /// The volume's acknowledged flushes when it was sent, and when it was done.
    pub epoch_sent: u64,
    pub epoch_done: u64,
    /// The last request that was sent before it was done; the largest number as long as it is not, or failed.
    pub done: u64,
}

impl Entry {
    /// A write from before anything was sent.
    pub fn old(value: u64) -> Self {
        Entry { value, sent: value, epoch_sent: 0, epoch_done: 0, done: 0 }
    }
}

/// A trim of a stamp: zeroes may be there from then on, until it is written anew.
#[derive(Clone, Copy, Debug)]
struct Trim {
    /// The number of its request, and the volume's acknowledged flushes when it was sent.
    sent: u64,
    epoch_sent: u64,
    /// Writes before it.
    behind: usize,
}

/// 512 bytes of a volume, as its clients know it: all that was written, in order.
#[derive(Clone, Debug)]
pub struct Stamp {
    pub history: Vec<Entry>,
    /// The last write that is durable.
    pub durable: usize,
    /// A trim came before this write: until it anything may be there that ever was, or zeroes.
    pub trimmed: usize,
    /// The last request that may see that.
    pub loose_until: u64,
    trims: Vec<Trim>,
}

impl Stamp {
    pub fn new(value: u64) -> Self {
        Stamp { history: vec![Entry::old(value)], durable: 0, trimmed: 0, loose_until: 0, trims: Vec::new() }
    }

    /// Whether a read that was sent as number `began` may give a value.
    pub fn may_read(&self, value: u64, began: u64) -> bool {
        let last = self.history.iter().rposition(|entry| entry.done < began).unwrap_or(0);
        let last = if began <= self.loose_until { 0 } else { last };
        last == 0 && self.loose_until >= began && value == 0
            || self.history[last..].iter().any(|entry| entry.value == value)
    }

    /// Whether a crash may leave this value.
    pub fn may_survive(&self, value: u64) -> bool {
        let is_loose = self.durable < self.trimmed;
        let first = if is_loose { 0 } else { self.durable };
        is_loose && value == 0 || self.history[first..].iter().any(|entry| entry.value == value)
    }

    /// A crash has left this value. It stays until a write or a crash; what a store had not flushed may still be lost.
    pub fn survive(&mut self, value: u64) {
        self.trims.clear();
        if self.durable >= self.trimmed {
            self.history.drain(..self.durable);
            (self.trimmed, self.loose_until) = (0, 0);
        } else {
            self.loose_until = u64::MAX;
        }
        self.history.retain(|entry| entry.value != value);
        self.history.push(Entry::old(value));
        self.history.iter_mut().for_each(|entry| *entry = Entry::old(entry.value));
        self.trimmed = 0;
        if self.loose_until > 0 {
            self.loosen(0, 0);
        }
        self.durable = 0;
    }

    /// It was trimmed, by a request of this number when so many flushes were acknowledged, or cannot be read: anything may be there, until
    /// it is written anew.
    pub fn loosen(&mut self, sent: u64, epoch_sent: u64) {
        (self.trimmed, self.loose_until) = (self.history.len(), u64::MAX);
        self.trims.push(Trim { sent, epoch_sent, behind: self.trimmed });
    }

    /// Whether all that was ever there is what was there at first.
    pub fn is_untouched(&self) -> bool {
        self.history.len() == 1 && self.trims.is_empty()
    }

    /// Of which moments a store may be the image that has this value here, by the requests that were sent, from one to another: not before
    /// that of the value, nor after the next write was done. Or, where only `flushes` tell moments apart, between which of those.
    pub fn moments(&self, value: u64, flushes: bool) -> Vec<(u64, u64)> {
        let written = self.history.iter().enumerate().filter(|(_, entry)| entry.value == value);
        let written = written.map(|(at, entry)| (entry.sent, entry.epoch_sent, at + 1));
        let trims = self.trims.iter().filter(|_| value == 0);
        let trimmed = trims.map(|trim| (trim.sent, trim.epoch_sent, trim.behind));
        let until = |next: usize| {
            // After a trim an older value may be there again, until it is written anew.
            let next = self.history.get(self.trimmed.max(next))?;
            Some(if flushes { next.epoch_done.saturating_sub(1) } else { next.done })
        };
        let moments = written.chain(trimmed).map(|(sent, epoch_sent, next)| {
            let from = if flushes { epoch_sent.saturating_sub(1) } else { sent };
            (from, until(next).unwrap_or(u64::MAX))
        });
        moments.collect()
    }
}

/// The stamps that a range touches.
pub fn stamps_of(range: &Range<u64>) -> Range<usize> {
    (range.start / STAMP_BYTES) as usize..range.end.div_ceil(STAMP_BYTES) as usize
}

/// The value of a stamp's bytes, unless they are a mix.
pub fn value_of(stamped: &[u8]) -> Option<u64> {
    let value = u64::from_le_bytes(stamped[..8].try_into().unwrap());
    (stamped[..stamped.len() - 8] == stamped[8..]).then_some(value)
}

/// Checks a description that was asked for as number `began`: it is of all of the range, and what it says to be zeroes may be read as such.
pub fn assert_described(
    stamps: &[Stamp],
    range: &Range<u64>,
    began: u64,
    allocation: &[Extent],
    cache: &[Extent],
) {
    let total: u64 = cache.iter().map(|part| u64::from(part.len_bytes)).sum();
    assert_eq!(total, range.end - range.start);
    let mut at = range.start;
    for part in allocation {
        let end = at + u64::from(part.len_bytes);
        let is_zero = part.flags & STATE_ZERO != 0;
        for stamp in (at.div_ceil(STAMP_BYTES)..end / STAMP_BYTES).filter(|_| is_zero) {
            let stamp = &stamps[stamp as usize];
            assert!(stamp.may_read(0, began), "byte {at} is no zero, number {began}: {:?}", stamp.history);
        }
        at = end;
    }
    assert_eq!(at, range.end);
}
