//! Histogram of stack distances.

use serde::{Deserialize, Serialize};
use tiermem_base::log_bins::LogBins;

/// A histogram of stack distances with weights.
///
/// Its bins are those of [`LogBins`], 8 bytes each, and are made when needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distances {
    precision_bits: u32,
    bins: Vec<f64>,
    /// Weight of accesses to what was not in the stack.
    cold: f64,
}

impl Distances {
    /// An empty histogram; `precision_bits` from 1 to 24.
    pub fn new(precision_bits: u32) -> Self {
        Distances { precision_bits: precision_bits.clamp(1, 24), bins: Vec::new(), cold: 0.0 }
    }

    /// Counts an access at `distance`: a cache of that size or larger would have hit.
    #[inline]
    pub fn record(&mut self, distance: u64, weight: f64) {
        let bin = self.bin(distance);
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0.0);
        }
        self.bins[bin] += weight;
    }

    /// Counts an access that every cache would miss.
    #[inline]
    pub fn record_cold(&mut self, weight: f64) {
        self.cold += weight;
    }

    /// Adds what another histogram of the same precision has counted.
    pub fn merge(&mut self, other: &Distances) {
        debug_assert_eq!(self.precision_bits, other.precision_bits);
        if other.bins.len() > self.bins.len() {
            self.bins.resize(other.bins.len(), 0.0);
        }
        self.bins.iter_mut().zip(&other.bins).for_each(|(bin, more)| *bin += more);
        self.cold += other.cold;
    }

    /// Multiplies all weights: what was seen counts less from now on.
    pub fn scale(&mut self, factor: f64) {
        self.bins.iter_mut().for_each(|bin| *bin *= factor);
        self.cold *= factor;
    }

    /// Weight of all accesses.
    pub fn total(&self) -> f64 {
        self.cold + self.bins.iter().sum::<f64>()
    }

    /// The weight that caches of these ascending `sizes` miss. Within a bin distances count as evenly spread.
    pub fn misses(&self, sizes: &[u64]) -> Vec<f64> {
        let total = self.total();
        let mut below = 0.0;
        let mut bin = 0;
        let miss = |&size: &u64| {
            while bin < self.bins.len() && self.range(bin).1 <= size {
                below += self.bins[bin];
                bin += 1;
            }
            let mut hits = below;
            if bin < self.bins.len() {
                let (lowest, highest) = self.range(bin);
                if size >= lowest {
                    hits += self.bins[bin] * (size - lowest + 1) as f64 / (highest - lowest + 1) as f64;
                }
            }
            (total - hits).max(0.0)
        };
        sizes.iter().map(miss).collect()
    }

    /// Each bin's lowest and highest distance and its weight, ascending, empty ones too.
    pub fn bins(&self) -> impl Iterator<Item = ((u64, u64), f64)> + '_ {
        self.bins.iter().enumerate().map(|(bin, &weight)| (self.range(bin), weight))
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        (self.bins.capacity() * size_of::<f64>()) as u64
    }

    fn log_bins(&self) -> LogBins {
        LogBins::new(self.precision_bits)
    }

    #[inline]
    fn bin(&self, distance: u64) -> usize {
        self.log_bins().bin(distance)
    }

    /// The lowest and the highest distance of a bin.
    fn range(&self, bin: usize) -> (u64, u64) {
        self.log_bins().range(bin)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn small_distances_are_exact(
            seen in prop::collection::vec((1u64..64, 1u32..4), 0..200),
            mut sizes in prop::collection::vec(0u64..80, 0..20),
        ) {
            sizes.sort_unstable();
            let mut distances = Distances::new(6);
            distances.record_cold(2.0);
            seen.iter().for_each(|&(distance, weight)| distances.record(distance, f64::from(weight)));
            let expected: Vec<f64> = sizes
                .iter()
                .map(|&size| 2.0 + seen.iter().filter(|seen| seen.0 > size).map(|seen| f64::from(seen.1)).sum::<f64>())
                .collect();
            prop_assert_eq!(distances.misses(&sizes), expected);
        }
    }

    #[test]
    fn bins_follow_each_other() {
        let distances = Distances::new(4);
        for bin in 0..200 {
            assert_eq!(distances.range(bin).1 + 1, distances.range(bin + 1).0);
        }
    }
}
