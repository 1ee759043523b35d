//! The tiered key-value engine and its Redis-compatible server.
//!
//! [`resp`] reads requests and writes replies, [`command`] gives the commands their meaning over an [`engine`], in which a
//! [`hash`] is one value, and [`server`] owns sockets, time and memory for buffers. [`config`] is what a user writes,
//! [`http`] what an operator looks at, and [`replay`], [`load_generator`] and [`import`] the other side: clients that drive any such
//! server with a trace, with those of several applications at once, and fill it.
#![forbid(unsafe_code)]

pub mod clients;
pub mod command;
pub mod config;
pub mod engine;
pub mod flash;
mod glob;
pub mod hash;
pub mod host;
pub mod http;
pub mod import;
pub mod load_generator;
pub mod replay;
pub mod resp;
pub mod server;
pub mod settings;
pub mod shards;
pub mod snapshot;
pub mod stats;
pub mod tiers;
pub mod users;
