//! The server of one shard: sockets, time, and the memory that requests and replies may take.
//!
//! One thread runs everything: it owns the engine, accepts connections, and drives each connection's state
//! machine whenever its socket is ready. All memory that clients can make it use is bounded:
//!
//! - an idle connection owns no buffer; reading and writing go through buffers that the shard lends;
//! - what has come of unfinished requests is charged to one [`budget`] for all connections;
//! - a client that does not read its replies is not read from, and its queue ends at a limit.

mod bind;
mod budget;
mod clock;
mod connection;
mod latency;
mod run;
mod shard;
mod snapshot;
mod stream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use bind::{ServeError, Server};
pub use latency::LatencySummary;
pub use snapshot::Snapshot;

/// What a server listens on and allows.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The TCP address; port 0 lets the system choose. Default 127.0.0.1:7379.
    pub listen: Option<SocketAddr>,
    /// The unix socket's path. Default none.
    pub unix_socket: Option<PathBuf>,
    /// The password that clients must give (`requirepass`). Default none.
    pub requirepass: Option<String>,
    /// The most connections at a time. Default 10000.
    pub maxclients: usize,
    /// Clients that neither send nor take anything for so long are dropped (`timeout`). Default never.
    pub timeout: Option<Duration>,
    /// Unsent replies of one client, in bytes, from which on it is not read from. Default 1 MiB.
    pub output_bytes_max: usize,
    /// Unsent replies of all clients, in bytes, from which on each is held to 16 KiB, and a single reply to
    /// [`Self::output_bytes_max`] unless its value is pinned. Default 64 MiB.
    pub output_total_bytes_max: usize,
    /// The longest reply to one request, in bytes. Default 64 MiB, and at least one longest value.
    pub reply_bytes_max: usize,
    /// Bytes of unfinished requests over all connections; one more request of [`Self::request_bytes_max`] may
    /// always come in. Default 64 MiB.
    pub request_buffer_bytes: usize,
    /// The longest request, in bytes. Default 32 MiB, and at least one longest value with 1 MiB beside it.
    pub request_bytes_max: usize,
    /// While requests wait for buffer space, a client that holds some and sends less than 64 KiB in this time
    /// is dropped. Default 10 s.
    pub stall_timeout: Duration,
    /// The time between two published snapshots. Default 500 ms.
    pub snapshot_interval: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 7379))),
            unix_socket: None,
            requirepass: None,
            maxclients: 10_000,
            timeout: None,
            output_bytes_max: 1 << 20,
            output_total_bytes_max: 64 << 20,
            reply_bytes_max: 64 << 20,
            request_buffer_bytes: 64 << 20,
            request_bytes_max: 32 << 20,
            stall_timeout: Duration::from_secs(10),
            snapshot_interval: Duration::from_millis(500),
        }
    }
}
