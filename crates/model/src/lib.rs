//! Models of a workload: miss-ratio curves, heat, division of memory, placement plans, and the cost of memory.
//!
//! Models take accesses and answer questions. Like policies they do no I/O, read no clock and own no randomness but a seeded
//! generator, so that a live engine can ask them on line.
#![forbid(unsafe_code)]

pub mod advisor;
pub mod cost;
pub mod heat;
pub mod mrc;
pub mod partition;
pub mod placement;
