//! Unflushed writes: those that a flush must wait for although no client waits for them any more.
//!
//! A write is *owed* until its data are in the log. It becomes owed when its client is told that it is done, or,
//! where it overwrites units that no seal covers, when it begins to. A flush waits for all writes that are owed
//! when it arrives, and not for later ones: they are counted by generation, and each flush begins a new one.

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
    /// A write of `bytes` is owed from now on.
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
        // If no write has come since the last flush, that flush's generation serves this one too.
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
