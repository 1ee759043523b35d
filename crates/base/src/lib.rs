//! Base types that every other crate shares: quantities with units, the description of tiers, the seeded random source, hashing,
//! the access record and latency-bandwidth curves.
//!
//! Nothing here does I/O, reads a clock or starts a thread.
#![forbid(unsafe_code)]

pub mod access;
pub mod hash;
pub mod heat;
pub mod intern;
pub mod key_to_shard;
pub mod latency_curve;
pub mod log_bins;
pub mod recency;
pub mod rng;
pub mod tier;
pub mod units;

pub use access::{Access, Op};
pub use heat::Heat;
pub use intern::Interner;
pub use rng::Rng;
pub use tier::{TierKind, TierSpec};
pub use units::{Bandwidth, Bytes, Nanos};
