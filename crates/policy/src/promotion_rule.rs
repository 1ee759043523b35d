//! Promotion rules: which items deserve a faster tier (Wang 2024, sections 5.1.4.1 and 5.1.4.2).

use std::collections::VecDeque;

use crate::Id;

/// How candidates for promotion are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promotion {
    /// Nothing is promoted.
    None,
    /// Each hit in a slow tier makes a candidate when the item was used later than the fast tier's tail: Wang's
    /// naiveTMM (5.1.4.1).
    Naive,
    /// Two hits in a row whose reuse times are below six times the fast tier's windowed mean make a candidate. One reuse
    /// time is a noisy measure of how often an item is used; two, held against a looser bound, find as many hot items
    /// with fewer promotions. The bound is tighter for larger items, whose copies cost more.
    #[default]
    ReuseTwice,
    /// One hit whose reuse time is below the fast tier's windowed mean: Wang's rule.
    ReuseTime,
    /// A hit whose reuse time is below the age at which items leave the fast tier: used as often as its coldest.
    TailAge,
    /// The rule of `ReuseTime`, but candidates are found by walking the slow lists from their heads now and then, Wang's own way.
    /// It costs a byte per item for its last reuse time, and hits that move items in their lists.
    ReuseTimeScan,
}

impl std::str::FromStr for Promotion {
    type Err = String;
    /// Reads the word that configuration and command line use.
    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "reuse-twice" => Ok(Promotion::ReuseTwice),
            "reuse-time" => Ok(Promotion::ReuseTime),
            "reuse-time-scan" => Ok(Promotion::ReuseTimeScan),
            "tail-age" => Ok(Promotion::TailAge),
            "naive" => Ok(Promotion::Naive),
            "none" => Ok(Promotion::None),
            _ => Err(format!(
                "{word:?} is none of reuse-twice, reuse-time, tail-age, reuse-time-scan, naive, none"
            )),
        }
    }
}

impl Promotion {
    /// The share of the mean (of the age at the tail) that a reuse time must be below, where nothing else is said.
    pub fn below(self) -> f64 {
        if self == Promotion::ReuseTwice { 6.0 } else { 1.0 }
    }
}

/// The mean itself, as a factor of [`ReuseWindow::is_below_mean`].
pub const WHOLE: u32 = 256;

/// Parts of a [`ReuseWindow`] that are forgotten one at a time.
const PARTS: usize = 16;

/// The mean reuse time of a tier's hits over a rolling window of requests.
///
/// The window rolls by the shard's requests, not by the tier's own hits: a tier that is no longer hit forgets its
/// old mean, and then anything that is reused may replace what it holds.
#[derive(Clone, Debug)]
pub struct ReuseWindow {
    parts: [(u64, u64); PARTS],
    current: usize,
    total: (u64, u64),
    part_requests: u64,
    part_ends: u64,
}

impl ReuseWindow {
    /// A window over the last `requests` requests.
    pub fn new(requests: u64) -> Self {
        let part_requests = (requests / PARTS as u64).max(1);
        ReuseWindow {
            parts: [(0, 0); PARTS],
            current: 0,
            total: (0, 0),
            part_requests,
            part_ends: part_requests,
        }
    }

    /// Notes a hit at request `now`, `reuse` after the item's hit before.
    #[inline]
    pub fn note(&mut self, reuse: u64) {
        let part = &mut self.parts[self.current];
        part.0 += reuse;
        part.1 += 1;
    }

    /// Forgets hits that have left the window by request `now`. Called at each step.
    pub fn roll(&mut self, now: u64) {
        let mut rolled = 0;
        while now >= self.part_ends && rolled < PARTS {
            let done = self.parts[self.current];
            self.total = (self.total.0 + done.0, self.total.1 + done.1);
            self.current = (self.current + 1) % PARTS;
            let old = std::mem::take(&mut self.parts[self.current]);
            self.total = (self.total.0 - old.0, self.total.1 - old.1);
            self.part_ends += self.part_requests;
            rolled += 1;
        }
        if now >= self.part_ends {
            // Longer than the window without a step: all is forgotten already, only the end is behind.
            self.part_ends = now + self.part_requests;
        }
    }

    /// Whether `reuse` is below the mean times `factor` in 1/256 ([`WHOLE`]: 1); everything is when the tier was not hit within the
    /// window.
    #[inline]
    pub fn is_below_mean(&self, reuse: u64, factor: u32) -> bool {
        let part = self.parts[self.current];
        let (sum, hits) = (self.total.0 + part.0, self.total.1 + part.1);
        hits == 0 || (u128::from(reuse) * u128::from(hits)) << 8 < u128::from(sum) * u128::from(factor)
    }
}

/// An item that may deserve a faster tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The item.
    pub id: Id,
    /// After how many ticks it was used again; 0 where that was not asked.
    pub reuse: u32,
}

/// Items that a hit has found worth promoting, until a step looks at them. Bounded: when it is full the oldest
/// candidate gives way, for the newest is the likelier to be hit again.
#[derive(Clone, Debug)]
pub struct Candidates {
    ring: VecDeque<Candidate>,
    capacity: usize,
}

impl Candidates {
    /// Room for `capacity` candidates, allocated at once.
    pub fn new(capacity: usize) -> Self {
        Candidates { ring: VecDeque::with_capacity(capacity), capacity }
    }

    /// Adds a candidate.
    #[inline]
    pub fn push(&mut self, candidate: Candidate) {
        if self.ring.len() == self.capacity {
            self.ring.pop_front();
        }
        if self.ring.back().map(|last| last.id) != Some(candidate.id) {
            self.ring.push_back(candidate);
        }
    }

    /// The oldest candidate.
    pub fn pop(&mut self) -> Option<Candidate> {
        self.ring.pop_front()
    }

    /// If the newest candidate is `old`, it is `new` from now on: an item rewritten under another number.
    pub fn rename_last(&mut self, old: Id, new: Id) {
        if let Some(last) = self.ring.back_mut().filter(|last| last.id == old) {
            last.id = new;
        }
    }

    /// Candidates waiting.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
}

/// A reuse time in one byte: a binary float with three bits of mantissa, so at most an eighth too small.
pub mod packed_reuse {
    /// Packs a time; 0 stays 0, which means that none is known.
    pub fn pack(reuse: u64) -> u8 {
        if reuse < 8 {
            return reuse as u8;
        }
        let exponent = 63 - reuse.leading_zeros();
        let mantissa = (reuse >> (exponent - 3)) as u8 & 7;
        ((exponent - 2) as u8).min(30) << 3 | mantissa
    }

    /// The smallest time that packs to `packed`.
    pub fn unpack(packed: u8) -> u64 {
        if packed < 8 {
            return u64::from(packed);
        }
        let exponent = u32::from(packed >> 3) + 2;
        (8 | u64::from(packed & 7)) << (exponent - 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_window_forgets() {
        let mut window = ReuseWindow::new(160);
        assert!(window.is_below_mean(u64::MAX, WHOLE));
        for now in 0..160 {
            window.roll(now);
            window.note(100);
        }
        assert!(window.is_below_mean(99, WHOLE) && !window.is_below_mean(100, WHOLE));
        for now in 160..320 {
            window.roll(now);
            window.note(10);
        }
        assert!(window.is_below_mean(9, WHOLE) && !window.is_below_mean(16, WHOLE));
        window.roll(10_000);
        assert!(window.is_below_mean(u64::MAX, WHOLE));
        window.roll(10_001);
        window.note(5);
        assert!(window.is_below_mean(4, WHOLE) && !window.is_below_mean(5, WHOLE));
    }

    #[test]
    fn a_full_ring_keeps_the_newest() {
        let mut ring = Candidates::new(2);
        for id in [1, 1, 2, 3] {
            ring.push(Candidate { id: Id(id), reuse: 7 });
        }
        let mut next = || ring.pop().map(|candidate| candidate.id);
        assert_eq!((next(), next(), next()), (Some(Id(2)), Some(Id(3)), None));
    }

    proptest! {
        #[test]
        fn packing_loses_at_most_an_eighth(reuse in 0u64..1 << 32) {
            let back = packed_reuse::unpack(packed_reuse::pack(reuse));
            prop_assert!(back <= reuse && reuse - back <= reuse / 8);
        }

        #[test]
        fn packing_keeps_order(a in 0u64..1 << 32, b in 0u64..1 << 32) {
            prop_assert!(a > b || packed_reuse::pack(a) <= packed_reuse::pack(b));
        }
    }
}
