//! Leap: H. Al Maruf, M. Chowdhury, "Effectively prefetching remote memory with Leap", ATC 2020, section 3.2.
//!
//! The last deltas between pages are kept. Their trend is the delta that makes up more than half of the newest ones. It is looked
//! for in windows that double from a part of the history to all of it (algorithm 1), so that a new trend is found soon and a few
//! strays do not hide an old one. A miss fetches pages along the trend, as many as the prefetches since the last miss were
//! useful: one more than the hits, rounded up to a power of two, falling by half at most, to none where there are no hits and the
//! page is not where the trend leads (algorithm 2). With no trend the last one known is tried around the page.
//!
//! It suits one run of any stride at a time, in either direction, with interruptions. It does not suit several runs interleaved:
//! their deltas have no majority.
//!
//! The paper's accesses are faults, so those here are the first demands of pages ([`Demand::is_first`]), and wishes are made at
//! misses alone. What the paper leaves open is decided so: the trend that a page must follow is the one found last, with this
//! very access counted; "around" is a step to the one side and a step to the other, the trend's side first; the first delta is
//! that from page 0, as in its figure. Deltas are taken modulo 2^64.

use super::{Demand, Prefetch};

/// The history and the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeapParameters {
    /// Deltas kept, at least one.
    pub history: u32,
    /// The first window is the history divided by this.
    pub splits: u32,
    /// Pages fetched at a time, at most.
    pub window_max: u32,
}

impl LeapParameters {
    /// A history of 32 and at most 8 pages, as the paper evaluates it; the division is that of its example.
    pub const DEFAULT: Self = LeapParameters { history: 32, splits: 2, window_max: 8 };
}

impl Default for LeapParameters {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Deltas, the last trend, and the hits of the prefetches since the last miss.
#[derive(Clone, Debug)]
pub struct Leap {
    parameters: LeapParameters,
    /// A ring; the newest at `newest`. Grows to `parameters.history`, for which there is room from the start.
    deltas: Vec<i64>,
    newest: usize,
    last: u64,
    /// The delta that was found to be a majority last.
    trend: Option<i64>,
    /// Prefetched pages used since the last miss.
    hits: u32,
    /// Pages wished for at the last miss.
    window: u32,
}

impl Leap {
    /// With these parameters, no access seen.
    pub fn new(mut parameters: LeapParameters) -> Self {
        parameters.history = parameters.history.max(1);
        parameters.splits = parameters.splits.max(1);
        let deltas = Vec::with_capacity(parameters.history as usize);
        Leap { parameters, deltas, newest: 0, last: 0, trend: None, hits: 0, window: 0 }
    }

    /// The delta that was a majority last, if there was one yet.
    pub fn trend(&self) -> Option<i64> {
        self.trend
    }

    fn note(&mut self, page: u64) {
        let delta = page.wrapping_sub(self.last) as i64;
        self.last = page;
        if self.deltas.len() < self.parameters.history as usize {
            self.newest = self.deltas.len();
            self.deltas.push(delta);
        } else {
            self.newest = (self.newest + 1) % self.deltas.len();
            self.deltas[self.newest] = delta;
        }
    }

    /// The newest `count` deltas, of at least as many.
    fn recent(&self, count: usize) -> impl Iterator<Item = i64> {
        let (up_to_newest, eldest) = self.deltas.split_at(self.newest + 1);
        up_to_newest.iter().rev().chain(eldest.iter().rev()).take(count).copied()
    }

    /// Boyer and Moore: when unlike deltas cancel out, the one that is left is the only possible majority.
    fn majority(&self, count: usize) -> Option<i64> {
        let (mut candidate, mut votes) = (0, 0u32);
        for delta in self.recent(count) {
            if votes == 0 {
                candidate = delta;
            }
            votes = if delta == candidate { votes + 1 } else { votes - 1 };
        }
        let share = self.recent(count).filter(|delta| *delta == candidate).count();
        (share > count / 2).then_some(candidate)
    }

    /// Algorithm 1. While the history is filling, a window holds the deltas that there are.
    fn find_trend(&self) -> Option<i64> {
        let history = self.parameters.history as usize;
        let mut window = (history / self.parameters.splits as usize).max(1);
        loop {
            let found = self.majority(window.min(self.deltas.len()));
            if found.is_some() || window >= self.deltas.len() {
                return found;
            }
            window *= 2;
            if window > history {
                return None;
            }
        }
    }

    /// Algorithm 2, `GetPrefetchWindowSize`.
    fn next_window(&mut self, follows: bool) -> u32 {
        let max = self.parameters.window_max;
        let window = match self.hits {
            0 => u32::from(follows).min(max),
            hits => hits.saturating_add(1).checked_next_power_of_two().map_or(max, |window| window.min(max)),
        };
        self.hits = 0;
        self.window = window.max(self.window / 2);
        self.window
    }
}

impl Prefetch for Leap {
    fn demand(&mut self, page: u64, found: Demand, wanted: &mut Vec<u64>) {
        if !found.is_first() {
            return;
        }
        self.note(page);
        if found != Demand::Miss {
            self.hits = self.hits.saturating_add(1);
            return;
        }
        let majority = self.find_trend();
        self.trend = majority.or(self.trend);
        let follows = self.trend == Some(self.deltas[self.newest]);
        let window = self.next_window(follows);
        let Some(trend) = self.trend.filter(|trend| *trend != 0) else { return };
        let steps = (1..=i128::from(window)).map(|step| match (majority.is_some(), step % 2) {
            (true, _) => step,
            (false, 1) => (step + 1) / 2,
            (false, _) => -step / 2,
        });
        // In 128 bits nothing overflows, and pages outside the page numbers are not wished for.
        wanted
            .extend(steps.filter_map(|step| u64::try_from(i128::from(page) + i128::from(trend) * step).ok()));
    }

    fn metadata_bytes(&self) -> u64 {
        (self.deltas.capacity() * size_of::<i64>()) as u64
    }
}
