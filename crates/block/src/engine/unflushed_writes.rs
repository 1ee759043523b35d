//! Writes that a flush must wait for though nobody waits for them any more.
//!
//! A write is *owed* from when its client is told that it is done, or, where it writes over something that no seal covers, from when it
//! begins to, until what it stored is in the log. A flush waits for all that are owed when it comes, and not for those that come
//! later: they are counted by generations, and each flush begins a new one.

use std::collections::VecDeque;

/// A generation's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Generation(u64);

/// How many writes are owed, by generations.
#[derive(Debug)]
pub(super) struct Owed {
    /// The oldest generation that is not over, or the current one.
    first: u64,
    /// From the oldest to the current one.
    counts: VecDeque<u32>,
    bytes: u64,
}

impl Default for Owed {
    fn default() -> Self {
        Owed { first: 0, counts: VecDeque::from([0]), bytes: 0 }
    }
}

impl Owed {
    /// A write of so many bytes is owed from now on.
    pub(super) fn enter(&mut self, bytes: u64) -> Generation {
        self.bytes += bytes;
        if let Some(current) = self.counts.back_mut() {
            *current += 1;
        }
        Generation(self.first + self.counts.len() as u64 - 1)
    }

    /// A write is owed no more. Whether generations are over with it.
    pub(super) fn leave(&mut self, generation: Generation, bytes: u64) -> bool {
        self.bytes -= bytes;
        self.counts[(generation.0 - self.first) as usize] -= 1;
        let before = self.first;
        while self.counts.len() > 1 && self.counts[0] == 0 {
            self.counts.pop_front();
            self.first += 1;
        }
        self.first > before
    }

    /// A flush comes: the generation that it must see over, if anything is owed.
    pub(super) fn flush(&mut self) -> Option<Generation> {
        // Nothing may have come since the last flush, whose generation does then for this one too.
        if self.counts.back().is_some_and(|current| *current > 0) {
            self.counts.push_back(0);
        }
        (self.counts.len() > 1).then(|| Generation(self.first + self.counts.len() as u64 - 2))
    }

    /// Whether flushes wait. What is in the log when their generations are over will be promised then.
    pub(super) fn is_awaited(&self) -> bool {
        self.counts.len() > 1
    }

    /// Whether a generation and all before it are over.
    pub(super) fn is_over(&self, generation: Generation) -> bool {
        self.first > generation.0
    }

    /// Bytes of all that are owed.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_waits_for_what_came_before_it_and_for_nothing_else() {
        let mut owed = Owed::default();
        assert_eq!(owed.flush(), None);
        let (a, b) = (owed.enter(10), owed.enter(20));
        assert!(!owed.is_awaited());
        let first = owed.flush().unwrap();
        assert!(owed.is_awaited());
        assert_eq!(owed.flush(), Some(first), "nothing has come since");
        let c = owed.enter(5);
        let second = owed.flush().unwrap();
        assert!(!owed.leave(c, 5), "it ends before those that came before it");
        assert!(!owed.leave(a, 10));
        assert!(!owed.is_over(first));
        assert!(owed.leave(b, 20));
        assert!(owed.is_over(first) && owed.is_over(second));
        assert!(!owed.is_awaited());
        assert_eq!((owed.flush(), owed.bytes()), (None, 0));
    }
}
