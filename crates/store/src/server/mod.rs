//! Server: sockets, time, and the memory of requests and replies.
//!
//! One thread runs a shard: it owns the engine, and drives each connection's state machine
//! whenever its socket is ready. The first shard's thread accepts connections and distributes
//! them among the shards ([`crate::shards`]). All memory that clients can make it use is bounded:
//!
//! - an idle connection owns no buffer; reading and writing use buffers that the shard lends;
//! - the bytes of unfinished requests are charged to one [`request_budget`] for all connections;
//! - a client that does not read its replies is not read from, and its queue ends at a limit.

mod accept;
mod activity;
mod background_save;
mod bind;
mod clock;
mod connection;
mod expiry;
mod latency;
mod memory_limit;
mod pending_fetches;
mod reply_memory;
mod request_budget;
mod run;
mod sampling_cost;
mod shard_context;
mod shard_pipes;
mod snapshot;
mod stream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use bind::{FILES_RESERVED, ServeError, Server, Sockets};
pub use latency::LatencySummary;
pub use snapshot::Snapshot;

use tiermem_live::tls::TlsFiles;

use crate::settings::Settings;
use crate::snapshot::path_of as snapshot_path;
use crate::store_time::StartTime;

/// Where TLS is listened on, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The address; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Certificate, key, and the CA that must have signed clients' certificates.
    pub files: TlsFiles,
}

/// Configuration of a server: listening sockets and limits.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The TCP address; port 0 lets the system choose. Default 127.0.0.1:7379.
    pub listen: Option<SocketAddr>,
    /// TLS beside it. Default none.
    pub tls: Option<TlsConfig>,
    /// The unix socket's path. Default none.
    pub unix_socket: Option<PathBuf>,
    /// Whether listening beyond this machine without a password is refused (`protected-mode`). Default yes.
    pub protected_mode: bool,
    /// The file that all this comes from, for `CONFIG REWRITE`. Default none.
    pub config_file: Option<PathBuf>,
    /// Where snapshots are written. Default nowhere.
    pub snapshot: Option<PathBuf>,
    /// Settings that may change while the server runs.
    pub settings: Settings,
    /// The longest reply to one request, in bytes. Default 64 MiB, and at least one longest value.
    pub reply_bytes_max: usize,
    /// The longest request, in bytes. Default 32 MiB, and at least one longest value with 1 MiB beside it.
    pub request_bytes_max: usize,
    /// The cores that the shards' threads are kept on, in turn. Default: they go where the system puts them.
    pub pin_cores: Vec<usize>,
    /// Memory of the process beside its memory tiers, in bytes: what of its limit they cannot have.
    pub beside_tiers_bytes: u64,
    /// The time between two published snapshots. Default 500 ms.
    pub snapshot_interval: Duration,
    /// When the store started: engines that take up what outlives a process get the time by this. Default now.
    pub start: StartTime,
}

impl ServerConfig {
    /// The snapshot file of one of `shards` shards.
    pub fn snapshot_of(&self, shard: usize, shards: usize) -> Option<PathBuf> {
        self.snapshot.as_deref().map(|name| snapshot_path(name, shard, shards))
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 7379))),
            tls: None,
            unix_socket: None,
            protected_mode: true,
            config_file: None,
            snapshot: None,
            settings: Settings::default(),
            reply_bytes_max: 64 << 20,
            request_bytes_max: 32 << 20,
            pin_cores: Vec::new(),
            beside_tiers_bytes: 0,
            snapshot_interval: Duration::from_millis(500),
            start: StartTime::now(),
        }
    }
}
