//! Online miss-ratio curve of a running system, over a spatial sample of its keys.

use std::collections::BinaryHeap;

use tiermem_base::Interner;
use tiermem_base::hash::{Sample, sample_hash};

use super::curve::{Curve, Point};
use super::{Kind, Model, Unit};

/// A curve kept on line over a spatial sample of the keys, newer requests weighing more.
///
/// With [`Self::with_rate`] the sample is a share of the keys; with [`Self::with_keys`] it never holds more than a fixed number
/// of keys (fixed-size SHARDS, FAST'15, section 3.3): when one too many comes, the one of the largest hash leaves, the rate falls
/// to that hash, and all counts are scaled to the new rate.
///
/// Memory, per key of the sample: 21 to 43 bytes for its number, 24 where the size is fixed, and what the model takes (LRU, klru
/// and krr 4 to 21 bytes); beyond that the model's histogram or buckets. Cost per request that is not in the sample: one hash.
pub struct Online {
    unit: Unit,
    sizes: Vec<u64>,
    sample: Sample,
    keys: Interner,
    keys_max: usize,
    /// Sampled keys by their hashes, largest first; only where their number is bounded.
    by_hash: BinaryHeap<(u64, u64)>,
    model: Box<dyn Model + Send>,
    /// Weight of all requests, sampled or not.
    requests: f64,
}

impl Online {
    /// A curve of `kind` at ascending `sizes`, from the share `rate` of the keys.
    pub fn with_rate(kind: Kind, unit: Unit, sizes: &[u64], rate: f64) -> Self {
        let sample = Sample::with_rate(rate);
        Online {
            unit,
            sizes: sizes.to_vec(),
            model: kind.model(unit, sizes, sample.rate(), 0),
            sample,
            keys: Interner::new(),
            keys_max: usize::MAX,
            by_hash: BinaryHeap::new(),
            requests: 0.0,
        }
    }

    /// A curve of `kind` at ascending `sizes`, from at most `keys_max` keys. `None` for kinds that are simulated: a cache
    /// that has been filled cannot be scaled.
    pub fn with_keys(kind: Kind, unit: Unit, sizes: &[u64], keys_max: usize) -> Option<Self> {
        if matches!(kind, Kind::Miniature(_)) {
            return None;
        }
        let whole = Self::with_rate(kind, unit, sizes, 1.0);
        Some(Online { keys_max: keys_max.max(1), ..whole })
    }

    /// A look-up or a write of `key`, whose value has `size` bytes.
    #[inline]
    pub fn access(&mut self, key: u64, size: u32) {
        self.requests += 1.0;
        let hash = sample_hash(key);
        if self.sample.holds(hash) {
            self.sampled(key, hash, size);
        }
    }

    /// `key` is deleted.
    pub fn remove(&mut self, key: u64) {
        if let Some(id) = self.keys.remove(key) {
            self.model.remove(id);
            if self.keys_max != usize::MAX {
                self.by_hash.retain(|entry| entry.1 != key);
            }
        }
    }

    /// Ends a window: what was counted so far weighs `keep` (0 to 1) times as much as before. With 0 the curve begins
    /// anew, with warm caches.
    pub fn end_window(&mut self, keep: f64) {
        let keep = keep.clamp(0.0, 1.0);
        self.requests *= keep;
        self.model.decay(keep);
    }

    /// The curve. Its requests are weights. Its misses are related to the number of requests expected in the sample; requests
    /// that came in excess of that count as hits (the correction of SHARDS).
    pub fn curve(&self) -> Curve {
        let expected = (self.requests * self.sample.rate()).max(f64::MIN_POSITIVE);
        let point = |(&size, misses): (&u64, f64)| Point {
            size,
            miss_ratio: (misses / expected).clamp(0.0, 1.0),
            error: 0.0,
        };
        let points = self.sizes.iter().zip(self.model.misses(&self.sizes)).map(point).collect();
        Curve { unit: self.unit, requests: self.requests, points }
    }

    /// The share of the keys that the sample holds now.
    pub fn rate(&self) -> f64 {
        self.sample.rate()
    }

    /// Keys of the sample.
    pub fn keys_sampled(&self) -> usize {
        self.keys.len()
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let heap = self.by_hash.capacity() * size_of::<(u64, u64)>();
        self.keys.metadata_bytes() + heap as u64 + self.model.metadata_bytes()
    }

    fn sampled(&mut self, key: u64, hash: u64, size: u32) {
        let (id, new) = self.keys.intern(key);
        self.model.access(id, size);
        if new && self.keys_max != usize::MAX {
            self.by_hash.push((hash, key));
            while self.keys.len() > self.keys_max {
                self.shrink();
            }
        }
    }

    /// Takes the key of the largest hash out, and everything at or above that hash with it for good.
    fn shrink(&mut self) {
        let Some((hash, key)) = self.by_hash.pop() else { return };
        if let Some(id) = self.keys.remove(key) {
            self.model.remove(id);
        }
        let before = self.sample.rate();
        self.sample = Sample::below(hash);
        let after = self.sample.rate();
        self.model.decay(after / before);
        self.model.set_rate(after);
    }
}

impl std::fmt::Debug for Online {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Online")
            .field("unit", &self.unit)
            .field("rate", &self.rate())
            .field("keys_sampled", &self.keys_sampled())
            .finish_non_exhaustive()
    }
}
