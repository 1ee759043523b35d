//! Seeded generators of synthetic traces.
//!
//! Each is an endless iterator of accesses whose stream follows from its settings alone: the same on every machine, for every
//! version of the compiler and the system's mathematics library. Generated accesses are one microsecond apart.

mod elementary;
mod mix;
mod permute;
mod phase;
mod scan;
mod sizes;
mod streams;
mod uniform;
pub mod ycsb;
mod zipf;

pub use mix::{Mix, TENANT_KEY_SHIFT, Tenant};
pub use permute::Permutation;
pub use phase::Phase;
pub use scan::Scan;
pub(crate) use sizes::mix as mix_bits;
pub use sizes::{SIZE_FORMS, SizeDistribution, Sizes};
pub use streams::Streams;
pub use uniform::Uniform;
pub use ycsb::{Workload, Ycsb};
pub use zipf::{Zipf, ZipfRanks};

/// The largest exponent of a Zipf distribution that the generators take.
pub const ALPHA_MAX: f64 = 3.0;
/// The largest number of objects: ranks must be exact as `f64`, with room for halves.
pub const OBJECTS_MAX: u64 = 1 << TENANT_KEY_SHIFT;
/// The time between two generated accesses.
pub const STEP_NS: u64 = 1_000;
