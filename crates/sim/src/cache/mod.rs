//! Cache simulation: many caches of one tier in one pass over a trace ([`pass`]), or the store's ladder ([`tiered`]).
//!
//! The caches themselves are [`tiermem_policy::flat`]; here are the threads, the windows, and the
//! one policy that must know the future.

pub mod belady;
pub mod dividing;
pub mod dlru;
mod flash_log;
pub mod pass;
mod tenants;
pub mod tiered;

pub use belady::Belady;
pub use dividing::Sharing;
pub use dlru::{Dlru, Prediction};
pub use flash_log::Tail;
pub use pass::{Batch, Batches, run};
pub use tiered::TieredCache;
