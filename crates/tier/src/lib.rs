//! Live tiers: memory and block devices, real and simulated, with one contract each.
#![forbid(unsafe_code)]

pub mod backing;
pub mod block;
pub mod device;
