//! Page placement of unmodified programs: observing their memory accesses, and deciding where their memory lies.
#![forbid(unsafe_code)]

pub mod capture;
pub mod migrate;
pub mod plan;
pub mod run;
