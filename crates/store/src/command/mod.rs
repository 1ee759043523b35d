//! Commands: a static table and one file per family of commands, without sockets.
//!
//! A handler reads its arguments, queries or changes the engine, and writes one reply. Replies
//! and error messages are those of Redis 7.0, so clients that match on them keep working.

mod access;
mod acl;
mod categories;
mod client;
mod command_info;
mod compatibility_doc;
mod config;
mod connection;
mod context;
mod counter;
mod dispatch;
mod exec;
mod handlers;
mod hash;
mod help;
mod keys;
mod keyspace;
mod latency;
mod long_double;
mod monitor;
mod output;
mod permit;
mod persistence;
mod pubsub;
mod refusal;
mod required_keys;
mod resolved;
mod route;
mod run;
mod server_info;
mod session_flags;
mod set;
mod slow_path;
mod slowlog;
mod spec;
mod string;
mod table;
mod tenants;
mod tracking;
mod transaction;
mod ttl;

pub(crate) use categories::categories;
pub use compatibility_doc::compatibility;
pub use config::{Live, Problem};
pub use context::{Context, Handler};
pub use dispatch::refuse_request;
pub use handlers::HANDLERS;
pub use keys::KEYS_ON_FLASH_MAX;
pub use output::Output;
pub use refusal::{Outcome, Refusal};
pub use required_keys::Needs;
pub use resolved::Resolved;
pub use route::Route;
pub use run::Verdict;
pub use session_flags::Mode;
pub use slow_path::settle_idle;
pub use spec::{Flags, Group, Spec};
pub use table::{COMMANDS, lookup};

/// The Redis version that replies follow, as reported to clients.
pub const REDIS_VERSION: &str = "7.0.15";

#[cfg(test)]
mod tests;
