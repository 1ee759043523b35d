//! Live tiers: the bytes behind a ladder, and the moves that it decides.
#![forbid(unsafe_code)]

pub mod block;
pub mod device;
pub mod flash;
pub mod region;
mod tiers;

pub use device::{Device, Memory};
pub use tiers::{TierError, Tiers};
