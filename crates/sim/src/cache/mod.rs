//! Cache simulation: one tier in the terms of the literature ([`flat`]), or the store's ladder ([`tiered`]).

pub mod flat;
pub mod tiered;

pub use flat::{Capacity, FlatCache};
pub use tiered::TieredCache;
