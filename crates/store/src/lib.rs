//! Tiered key-value engine and its Redis-compatible server.
//!
//! [`resp`] reads requests and writes replies. [`command`] implements the commands over an [`engine`]; a
//! [`hash`] is one value of it. [`server`] owns sockets, time and buffer memory. [`config`] is the user's
//! configuration, [`http`] the operator's port. [`replay`], [`load_generator`] and [`import`] are clients:
//! they drive any RESP server with one trace, drive it with the traces of several applications, or fill it.
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
pub mod store_time;
pub mod tiers;
pub mod users;
