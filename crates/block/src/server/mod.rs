//! Server of disks over NBD: sockets, TLS, flow control.
//!
//! One thread does all of it. It drives each connection's state machine ([`crate::nbd`])
//! whenever its socket is ready or one of its jobs is done, and submits jobs to the
//! [`Disks`], which never make it wait. What a client can make the server use is bounded:
//!
//! - an idle connection owns no buffer; requests are read through one that the thread lends;
//! - the jobs and bytes in flight of a connection are limited, replies that it has not read included. At the limit it
//!   is not read from, so a client that does not read its replies stalls only itself;
//! - the bytes in flight of a disk are limited over all connections. At the limit its connections are not read from;
//! - the bytes of arriving payloads and of unread replies, and with them those in flight of a disk, are limited over all clients.
//!   At the limit requests wait, and a client that holds much and makes no progress is shut out.
//!
//! A connection that ends in any way leaves only its jobs in flight; their outcomes are discarded.

mod buffers;
mod busy_poll;
mod connection;
mod connections;
mod control_requests;
mod counter;
mod event_loop;
mod latency;
mod listener;
mod negotiation;
mod reply_queue;
mod socket;
mod stats;
mod stream;
mod tls_config;

use std::time::Duration;

pub use control_requests::{ControlQueue, ControlQueueError, ControlRequest, Progress};
pub use event_loop::Server;
pub use latency::{OpTimesTotals, TimedOp, TimesTotals};
pub use listener::{ListenError, Listeners};
pub use stats::{ConnectionStats, ServerStats, Traffic, TrafficTotals};
pub use tls_config::TlsConfig;

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Time in which a client must agree on an export. Default 30 s.
    pub handshake_timeout: Duration,
    /// Most options that it may send for that. Default 1024.
    pub options_max: u32,
    /// Connections at a time; more are closed at once. Default 4096.
    pub connections_max: usize,
    /// Jobs of one connection at a time. Default 256.
    pub jobs_max: usize,
    /// Bytes of one connection's jobs and of replies that it has not read; one request may go beyond it. Default 16 MiB.
    pub bytes_max: u64,
    /// Bytes of all clients' payloads on their way, of one disk's jobs and of replies that were not read, beside 64 KiB for each client;
    /// 64 MiB at least. Default 256 MiB.
    pub buffers_bytes_max: u64,
    /// Time without progress after which a client that holds much of that is shut out while others wait. Default 10 s.
    pub stall_timeout: Duration,
    /// Time for jobs to end when the server does. Default 10 s.
    pub grace: Duration,
    /// TLS, for clients that ask for it or for all. Default none.
    pub tls: Option<TlsConfig>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            handshake_timeout: Duration::from_secs(30),
            options_max: 1024,
            connections_max: 4096,
            jobs_max: 256,
            bytes_max: 16 << 20,
            buffers_bytes_max: 256 << 20,
            stall_timeout: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            tls: None,
        }
    }
}
