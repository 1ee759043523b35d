//! Miss-ratio curves: the miss ratio of a cache as a function of its size.
//!
//! A [`Model`] is fed the accesses of a workload, or of a spatial sample of it, and then tells how much caches of given
//! sizes would have missed. Some models yield all sizes at once (a stack distance says which caches hit), some follow
//! a few sizes that they were made for.

mod aet;
mod curve;
mod distances;
mod distinct;
mod estimate;
mod in_parallel;
mod kind;
pub mod klru;
pub mod krr;
mod lru;
mod miniature;
mod sampled_trace;
mod survey;
mod windowed_sample;

pub use aet::Aet;
pub use curve::{Curve, Point};
pub use distances::Distances;
pub use distinct::Distinct;
pub use in_parallel::curves_in_parallel;
pub use kind::Kind;
pub use lru::LruStack;
pub use miniature::Miniature;
pub use survey::Survey;
pub use windowed_sample::Online;

use tiermem_base::Op;
use tiermem_policy::flat::Request;

/// The unit of a cache's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Objects, whatever their size.
    Objects,
    /// Bytes of values.
    Bytes,
}

impl Unit {
    /// The room that an object of `size` bytes takes of a cache.
    #[inline]
    pub fn charge(self, size: u32) -> u64 {
        match self {
            Unit::Objects => 1,
            Unit::Bytes => u64::from(size),
        }
    }
}

/// A model of how much caches of different sizes miss.
///
/// Objects have dense numbers ([`tiermem_base::Interner`]); state per object is kept in arrays, so memory is that of
/// the largest number seen. The caller may use the number of a removed object again.
pub trait Model {
    /// An access to object `id`, which has `size` bytes from now on. A miss brings the object in.
    fn access(&mut self, id: u32, size: u32);
    /// A stretch of accesses and removals, in the same way; some models take them faster together.
    fn run(&mut self, requests: &[Request]) {
        for request in requests {
            match request.op {
                Op::Del => self.remove(request.key),
                _ => self.access(request.key, request.size),
            }
        }
    }
    /// The object is deleted; its next access misses at every size.
    fn remove(&mut self, id: u32);
    /// Misses so far at caches of these ascending `sizes`, counted in objects or bytes of the whole workload. Where the
    /// model sees a sample of the workload, these are the sample's misses.
    fn misses(&self, sizes: &[u64]) -> Vec<f64>;
    /// Multiplies all that was counted so far by `keep`, so that newer accesses weigh more; what is in the caches stays.
    fn decay(&mut self, keep: f64);
    /// From now on the share `rate` of the workload's objects is seen; what was counted keeps its meaning. Simulated caches
    /// cannot change their size, and stay as they are.
    fn set_rate(&mut self, rate: f64);
    /// From now on caches of these ascending `sizes` are of interest. It is of use to models that follow caches of given sizes
    /// and can change them, as many as before; the others ignore it (the default).
    fn resize(&mut self, sizes: &[u64]) {
        let _ = sizes;
    }
    /// Bytes held.
    fn metadata_bytes(&self) -> u64;
}

/// Misses at `sizes` from those at the sizes of some caches, ascending: linear in between, constant beyond.
fn interpolate(counts: &[(u64, f64)], sizes: &[u64]) -> Vec<f64> {
    let at = |&size: &u64| {
        let right = counts.partition_point(|count| count.0 < size);
        match (right.checked_sub(1).and_then(|left| counts.get(left)), counts.get(right)) {
            (None, None) => 0.0,
            (Some(only), None) | (None, Some(only)) => only.1,
            (Some(left), Some(right)) => {
                let share = (size - left.0) as f64 / (right.0 - left.0) as f64;
                left.1 + share * (right.1 - left.1)
            }
        }
    };
    sizes.iter().map(at).collect()
}
