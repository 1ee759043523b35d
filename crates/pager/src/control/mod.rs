//! Control of a run or an attachment while it goes on: a socket in the register's folder, for this user alone.
//!
//! A client sends one line of text, `status` or `set dram=SIZE evict=NAME prefetch=NAME`, and gets one line of JSON: `{"status": {...}}` or
//! `{"error": "..."}`. Each connection has a thread, so that one that stalls delays nobody; lines, connections and waits are bounded.

mod answer;
mod client;
mod request;
mod server;

pub use answer::Status;
pub use client::{AskError, ask};
pub use request::{Change, Request, RequestError, on_or_off};
pub use server::{Control, PoolMemory};
