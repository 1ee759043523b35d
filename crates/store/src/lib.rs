//! The tiered key-value engine and its Redis-compatible server.
#![forbid(unsafe_code)]

pub mod engine;
pub mod http;
pub mod replay;
