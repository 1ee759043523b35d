//! The tiered key-value engine and its Redis-compatible server.
//!
//! [`resp`] reads requests and writes replies, [`command`] gives the commands their meaning over an [`engine`], in which a
//! [`hash`] is one value, and [`server`] owns sockets, time and memory for buffers. [`config`] is what a user writes,
//! [`http`] what an operator looks at, and [`replay`] the other side: a client that drives any such server with a trace.
#![forbid(unsafe_code)]

pub mod command;
pub mod config;
pub mod engine;
pub mod hash;
pub mod http;
pub mod replay;
pub mod resp;
pub mod server;
pub mod settings;
pub mod stats;
