//! CXL-flash device: a memory expander on CXL whose capacity is flash behind a DRAM cache (Yang 2023).
//!
//! [`config`] describes the device, [`device::simulate`] runs a trace on it, [`outcome`] is the result. [`atc23`] is the
//! arithmetic of the simulator that was published with the paper.

pub mod atc23;
pub mod cache;
pub mod config;
pub mod device;
pub mod flash;
pub mod hints;
mod mshr;
pub mod outcome;
pub mod pages;
mod windows;

/// Requests of a trace that come later, after more than two years, are taken to come then: times stay far from the end of
/// their 64 bits.
const TIME_NS_MAX: u64 = 1 << 56;
