//! Unmodified programs and the memory that they use: finding out what they access.
#![forbid(unsafe_code)]

pub mod capture;
pub mod run;
