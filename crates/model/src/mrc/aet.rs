//! Average eviction time (Hu et al., USENIX ATC'16): LRU from reuse times alone.

use super::{Distances, Model, Unit};

const NEVER: u64 = u64::MAX;
/// Reuse times are told apart to one part in 2^9.
const PRECISION_BITS: u32 = 10;

/// LRU caches of all sizes, from a histogram of reuse times.
///
/// An object that enters moves down the LRU list by one place whenever something older than it was is accessed: at age
/// t with probability P(t), that a reuse time is longer than t. It is evicted at the age T at which ∫P(t)dt from 0 to T
/// reaches the cache's size, and the cache misses what is reused later: the miss ratio is P(T). Constant
/// time per access, but it takes the workload for one in steady state: scans and loops of changing length mislead it.
///
/// Memory: 8 bytes per object and two histograms of at most 230 KB.
#[derive(Clone, Debug)]
pub struct Aet {
    unit: Unit,
    /// How many requests of the workload pass for each that is seen.
    pace: f64,
    /// Requests of the workload so far.
    now: f64,
    last: Vec<u64>,
    reuse_times: Distances,
    /// The reuse times again, each access weighted by its object's size.
    reuse_bytes: Distances,
}

impl Aet {
    /// A model that will see the share `rate` of the workload's objects.
    pub fn new(unit: Unit, rate: f64) -> Self {
        let reuse_times = Distances::new(PRECISION_BITS);
        Aet {
            unit,
            pace: 1.0 / rate,
            now: 0.0,
            last: Vec::new(),
            reuse_bytes: reuse_times.clone(),
            reuse_times,
        }
    }
}

impl Model for Aet {
    fn access(&mut self, id: u32, size: u32) {
        let index = id as usize;
        if index >= self.last.len() {
            self.last.resize(index + 1, NEVER);
        }
        let now = self.now as u64;
        let before = std::mem::replace(&mut self.last[index], now);
        let weight = self.unit.charge(size) as f64;
        if before == NEVER {
            self.reuse_times.record_cold(1.0);
            self.reuse_bytes.record_cold(weight);
        } else {
            self.reuse_times.record(now - before, 1.0);
            self.reuse_bytes.record(now - before, weight);
        }
        self.now += self.pace;
    }

    fn remove(&mut self, id: u32) {
        if let Some(last) = self.last.get_mut(id as usize) {
            *last = NEVER;
        }
    }

    fn misses(&self, sizes: &[u64]) -> Vec<f64> {
        let total = self.reuse_times.total();
        let mut filled = 0.0;
        let mut sizes_left = sizes.iter().peekable();
        let mut misses = Vec::with_capacity(sizes.len());
        let (mut longer, mut longer_bytes) = (total, self.reuse_bytes.total());
        let mut times = self.reuse_times.bins().zip(self.reuse_bytes.bins());
        let mut from = 0u64;
        // Between two reuse times P is constant, so the fill grows linearly.
        while let Some(&&size) = sizes_left.peek() {
            let target = size as f64 * total;
            let Some(((range, weight), (_, bytes))) = times.next() else {
                misses.push(longer);
                sizes_left.next();
                continue;
            };
            let span = (range.1 + 1 - from) as f64;
            let filled_after = filled + span * longer_bytes;
            let mut target = target;
            while filled_after > target {
                // Of the bin's reuses those hit that come no later than the age of eviction.
                let age = (target - filled) / (filled_after - filled) * span;
                misses.push(longer - ((age + 1.0) / span).min(1.0) * weight);
                sizes_left.next();
                match sizes_left.peek() {
                    Some(&&next) => target = next as f64 * total,
                    None => return misses,
                }
            }
            filled = filled_after;
            from = range.1 + 1;
            longer -= weight;
            longer_bytes -= bytes;
        }
        misses
    }

    fn decay(&mut self, keep: f64) {
        self.reuse_times.scale(keep);
        self.reuse_bytes.scale(keep);
    }

    fn set_rate(&mut self, rate: f64) {
        self.pace = 1.0 / rate;
    }

    fn metadata_bytes(&self) -> u64 {
        let last = (self.last.capacity() * size_of::<u64>()) as u64;
        last + self.reuse_times.metadata_bytes() + self.reuse_bytes.metadata_bytes()
    }
}
