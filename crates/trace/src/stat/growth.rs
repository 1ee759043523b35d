//! Growth of the working set along a trace: how many keys have been seen, and how many are in use at a time.

use serde::Serialize;

/// Windows that are told apart at most; when they are full, pairs of neighbours become one.
const WINDOWS_MAX: usize = 128;

/// The working set of a stretch of the trace. Fields are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GrowthPoint {
    /// Accesses of the trace until the end of the stretch.
    pub requests: u64,
    /// The time of its last access.
    pub time_ns: u64,
    /// Keys seen since the start of the trace.
    pub keys_total: u64,
    /// The sum of their sizes, each at its first access.
    pub bytes_total: u64,
    /// Keys accessed in the stretch.
    pub keys_in_use: u64,
    /// The sum of their sizes, each at its first access in the stretch.
    pub bytes_in_use: u64,
    /// Keys accessed for the first time.
    pub keys_new: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    keys: u64,
    bytes: u64,
}

impl Cell {
    fn add(&mut self, other: Cell) {
        self.keys += other.keys;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Follows a trace of unknown length in constant memory, some 260 KiB.
///
/// `cells[w][p]` counts the keys whose first access in window w came after a last one in window p - 1, or after none for
/// p = 0. When two windows become one, a key of both has its previous access within the new window and leaves the
/// count, so that what is counted stays exact however often windows are joined.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    cells: Vec<Cell>,
    /// The time of the last access of each window.
    times_ns: Vec<u64>,
    /// Accesses in a window: a power of two.
    width: u64,
    requests: u64,
}

const ROW: usize = WINDOWS_MAX + 1;

impl Growth {
    pub(super) fn new() -> Self {
        Growth {
            cells: vec![Cell::default(); WINDOWS_MAX * ROW],
            times_ns: Vec::with_capacity(WINDOWS_MAX),
            width: 1,
            requests: 0,
        }
    }

    /// The next access of the trace, whether its key is followed or not; before [`Self::key`].
    #[inline]
    pub(super) fn access(&mut self, time_ns: u64) {
        if self.requests.is_multiple_of(self.width) {
            if self.requests == self.width * WINDOWS_MAX as u64 {
                self.join_pairs();
            }
            if self.requests.is_multiple_of(self.width) {
                self.times_ns.push(time_ns);
            }
        }
        if let Some(time) = self.times_ns.last_mut() {
            *time = time_ns;
        }
        self.requests += 1;
    }

    /// The key of this access was last accessed by the access of number `last`, counted from 0.
    #[inline]
    pub(super) fn key(&mut self, last: Option<u64>, size: u32) {
        let window = ((self.requests - 1) / self.width) as usize;
        let previous = last.map_or(0, |last| (last / self.width) as usize + 1);
        if previous <= window {
            self.cells[window * ROW + previous].add(Cell { keys: 1, bytes: u64::from(size) });
        }
    }

    #[cold]
    fn join_pairs(&mut self) {
        let old = std::mem::replace(&mut self.cells, vec![Cell::default(); WINDOWS_MAX * ROW]);
        for (at, cell) in old.into_iter().enumerate() {
            let (window, previous) = (at / ROW / 2, (at % ROW).div_ceil(2));
            if previous <= window {
                self.cells[window * ROW + previous].add(cell);
            }
        }
        self.times_ns = self.times_ns.chunks(2).filter_map(|pair| pair.last().copied()).collect();
        self.width *= 2;
    }

    /// The picture; counts are divided by `rate`, the share of keys that are followed.
    pub(super) fn points(&self, rate: f64) -> Vec<GrowthPoint> {
        let scaled = |count: u64| if rate == 1.0 { count } else { (count as f64 / rate).round() as u64 };
        let mut total = Cell::default();
        let mut points = Vec::with_capacity(self.times_ns.len());
        for ((row, &time_ns), window) in self.cells.chunks(ROW).zip(&self.times_ns).zip(1u64..) {
            let mut in_use = Cell::default();
            row.iter().for_each(|cell| in_use.add(*cell));
            total.add(row[0]);
            points.push(GrowthPoint {
                requests: (window * self.width).min(self.requests),
                time_ns,
                keys_total: scaled(total.keys),
                bytes_total: scaled(total.bytes),
                keys_in_use: scaled(in_use.keys),
                bytes_in_use: scaled(in_use.bytes),
                keys_new: scaled(row[0].keys),
            });
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn observed(keys: &[u32]) -> Vec<GrowthPoint> {
        let mut growth = Growth::new();
        let mut last = BTreeMap::new();
        for (key, now) in keys.iter().zip(0u64..) {
            growth.access(now * 10);
            growth.key(last.insert(*key, now), *key);
        }
        growth.points(1.0)
    }

    /// A naive twin, from sets of keys.
    fn naive(keys: &[u32], width: usize) -> Vec<GrowthPoint> {
        let mut seen = BTreeSet::new();
        let mut points = Vec::new();
        for (number, window) in keys.chunks(width).enumerate() {
            let in_use: BTreeSet<u32> = window.iter().copied().collect();
            let before = seen.len();
            seen.extend(&in_use);
            let bytes = |keys: &BTreeSet<u32>| keys.iter().map(|key| u64::from(*key)).sum();
            let end = number * width + window.len();
            points.push(GrowthPoint {
                requests: end as u64,
                time_ns: (end as u64 - 1) * 10,
                keys_total: seen.len() as u64,
                bytes_total: bytes(&seen),
                keys_in_use: in_use.len() as u64,
                bytes_in_use: bytes(&in_use),
                keys_new: (seen.len() - before) as u64,
            });
        }
        points
    }

    proptest! {
        #[test]
        fn joined_windows_count_as_if_they_had_been_one(keys in prop::collection::vec(0u32..60, 1..1500)) {
            let points = observed(&keys);
            prop_assert!(points.len() <= WINDOWS_MAX && (keys.len() < 128 || points.len() >= WINDOWS_MAX / 2));
            let width = keys.len().div_ceil(WINDOWS_MAX).next_power_of_two();
            prop_assert_eq!(points, naive(&keys, width));
        }
    }

    #[test]
    fn nothing_has_no_points() {
        assert_eq!(observed(&[]), []);
    }
}
