//! What the commands mean: a static table, one file per family of commands, no sockets.
//!
//! A handler reads its arguments, asks or changes the engine, and writes one reply. Replies and the wording of
//! errors are Redis 7.0's, so that clients which match on them go on working.

mod config;
mod connection;
mod context;
mod counter;
mod describe;
mod dispatch;
mod expiry;
mod extended;
mod glob;
mod hash;
mod keyspace;
mod needs;
mod output;
mod refusal;
mod server_info;
mod spec;
mod string;
mod table;
mod ttl;

pub use config::{Live, Problem};
pub use context::{Context, Host, Refusal, Session, SettingsWatcher};
pub use dispatch::execute;
pub use needs::{Needs, needs};
pub use output::Output;
pub use spec::{Flags, Group, Spec};
pub use table::{COMMANDS, lookup};

/// The Redis version whose replies these are, told to clients that ask.
pub const REDIS_VERSION: &str = "7.0.15";

#[cfg(test)]
mod tests;
