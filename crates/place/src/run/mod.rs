//! Runs of a program with its memory placed by a strategy, and comparison of strategies: trials side by side, their
//! times, where their pages lie, and the bandwidth of each strategy's memory (Fisher 2025, sections 3.3 and 4.2).

pub mod compare;
mod error;
pub mod residency;
pub mod strategy;
pub mod stream_bandwidth;
mod trial;
pub mod welch;

pub use error::RunError;
pub use trial::{Cold, Trial};
