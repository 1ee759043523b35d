//! Miniature simulation (Waldspurger et al., USENIX ATC'17; Wang 2024, section 3.1.1): the policy itself runs on a sample of the
//! keys, in caches that are smaller by the same factor.

use tiermem_base::Op;
use tiermem_policy::evict::Named;
use tiermem_policy::flat::{Cache, Capacity, Request, cache};

use super::{Model, Unit};

/// Caches of given sizes that run any policy of [`tiermem_policy::evict`].
///
/// Memory: that of the policies' nodes for what the caches hold, and 4 bytes per cache and key number.
#[derive(Debug)]
pub struct Miniature {
    caches: Vec<Small>,
    /// Key numbers so far are below this.
    keys: u32,
    rate: f64,
}

#[derive(Debug)]
struct Small {
    /// The size that it stands for, in the unit of the whole workload.
    size: u64,
    cache: Box<dyn Cache>,
    /// Misses when [`Model::decay`] was last called, and what was left of them.
    counted: u64,
    kept: f64,
}

impl Small {
    fn misses(&self) -> f64 {
        self.kept + (self.cache.counts().misses - self.counted) as f64
    }
}

impl Miniature {
    /// Caches that stand for ones of `sizes` objects or bytes, for the share `rate` of the workload's objects.
    pub fn new(policy: Named, unit: Unit, sizes: &[u64], rate: f64, seed: u64) -> Self {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        let small = |&size: &u64| {
            let units = scaled(size, rate);
            let capacity = match unit {
                Unit::Objects => Capacity::Objects(units),
                Unit::Bytes => Capacity::Bytes(units),
            };
            Small { size, cache: cache(policy, capacity, seed), counted: 0, kept: 0.0 }
        };
        Miniature { caches: sizes.iter().map(small).collect(), keys: 0, rate }
    }
}

/// The size in a sample of a cache of `size`.
fn scaled(size: u64, rate: f64) -> u64 {
    (size as f64 * rate).round().max(1.0) as u64
}

impl Model for Miniature {
    fn access(&mut self, id: u32, size: u32) {
        self.run(&[Request { key: id, size, op: Op::Get }]);
    }

    fn remove(&mut self, id: u32) {
        self.run(&[Request { key: id, size: 0, op: Op::Del }]);
    }

    fn run(&mut self, requests: &[Request]) {
        self.keys = requests.iter().map(|request| request.key + 1).fold(self.keys, u32::max);
        self.caches.iter_mut().for_each(|small| small.cache.run(requests, self.keys));
    }

    fn misses(&self, sizes: &[u64]) -> Vec<f64> {
        let counts: Vec<(u64, f64)> = self.caches.iter().map(|small| (small.size, small.misses())).collect();
        super::interpolate(&counts, sizes)
    }

    fn decay(&mut self, keep: f64) {
        for small in &mut self.caches {
            small.kept = small.misses() * keep;
            small.counted = small.cache.counts().misses;
        }
    }

    fn set_rate(&mut self, _rate: f64) {}

    fn resize(&mut self, sizes: &[u64]) {
        for (small, &size) in self.caches.iter_mut().zip(sizes) {
            small.size = size;
            small.cache.set_capacity(scaled(size, self.rate));
        }
    }

    fn metadata_bytes(&self) -> u64 {
        self.caches.iter().map(|small| small.cache.metadata_bytes() + 4 * u64::from(self.keys)).sum()
    }
}
