//! Exact LRU by stack distances.

use tiermem_base::recency::{Recency, ReuseDistance};

use super::{Distances, Model, Unit};

/// Distances below 2^20 have a bin each, longer ones are told apart to one part in 2^19.
const PRECISION_BITS: u32 = 20;
/// Precision of distances in a sample, where every distance is an estimate anyway.
const PRECISION_BITS_SAMPLED: u32 = 12;

/// LRU caches of all sizes: a histogram of the distances of [`Recency`].
///
/// Memory: 8 to 13 bytes per object, where bytes count 12 to 21, and the histogram.
#[derive(Clone, Debug)]
pub struct LruStack {
    recency: Recency,
    distances: Distances,
    /// The share of the workload's objects that this stack sees.
    rate: f64,
    /// Places distances within the range that a sample leaves open; see [`Self::new`].
    dither: u64,
}

impl LruStack {
    /// An empty stack that will see the share `rate` of the workload's objects.
    ///
    /// Between two accesses to an object of the sample with d − 1 others in between lie, for a locally even density of
    /// distances, anything from (d − 1)/rate to d/rate; the distance is recorded somewhere there.
    pub fn new(unit: Unit, rate: f64) -> Self {
        let precision_bits = if rate < 1.0 { PRECISION_BITS_SAMPLED } else { PRECISION_BITS };
        let recency = match unit {
            Unit::Objects => Recency::of_objects(),
            Unit::Bytes => Recency::of_sizes(),
        };
        LruStack { recency, distances: Distances::new(precision_bits), rate, dither: 0 }
    }

    /// An empty stack that tells distances apart by fewer bits, and so needs less memory ([`Distances::new`]).
    pub fn with_precision(self, precision_bits: u32) -> Self {
        LruStack { distances: Distances::new(precision_bits), ..self }
    }

    /// The distances that were counted.
    pub fn distances(&self) -> &Distances {
        &self.distances
    }

    #[inline]
    fn record(&mut self, found: ReuseDistance) {
        if self.rate >= 1.0 {
            self.distances.record(found.distance, 1.0);
            return;
        }
        // The golden ratio's multiples fill the unit interval evenly.
        self.dither = self.dither.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let within = (self.dither >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = (found.distance as f64 - within * found.own as f64) / self.rate;
        self.distances.record(scaled.ceil() as u64, 1.0);
    }
}

impl Model for LruStack {
    fn access(&mut self, id: u32, size: u32) {
        match self.recency.access(id, size) {
            Some(found) => self.record(found),
            None => self.distances.record_cold(1.0),
        }
    }

    fn remove(&mut self, id: u32) {
        self.recency.remove(id);
    }

    fn misses(&self, sizes: &[u64]) -> Vec<f64> {
        self.distances.misses(sizes)
    }

    fn decay(&mut self, keep: f64) {
        self.distances.scale(keep);
    }

    fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }

    fn metadata_bytes(&self) -> u64 {
        self.recency.metadata_bytes() + self.distances.metadata_bytes()
    }
}
