//! Cache simulation: many caches of one tier in one pass over a trace ([`pass`]), or the store's ladder ([`tiered`]), in one
//! shard or several.
//!
//! The caches themselves are [`tiermem_policy::flat`]; here are the threads, the windows, and the
//! one policy that must know the future.

pub mod belady;
pub mod dividing;
pub mod dlru;
mod figures;
mod flash_log;
pub mod pass;
mod sharded;
mod tenants;
pub mod tiered;

pub use belady::Belady;
pub use dividing::Sharing;
pub use dlru::{Dlru, Prediction};
pub use figures::Figures;
pub use flash_log::Tail;
pub use pass::{Batch, Batches, run};
pub use sharded::ShardedCache;
pub use tiered::{TieredCache, grow_tail};
