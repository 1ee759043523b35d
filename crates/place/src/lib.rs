//! Unmodified programs and the memory that they use: finding out what they access, and
//! where that memory lies.
#![forbid(unsafe_code)]

pub mod capture;
pub mod migrate;
pub mod plan;
pub mod run;
