//! Serves disks over NBD: sockets, TLS, flow control.
//!
//! One thread does it all. It drives each connection's state machine ([`crate::nbd`]) whenever its socket is ready or a job of its is
//! done, and hands jobs to the [`Disks`], which never make it wait. What a client can make the server use is bounded:
//!
//! - an idle connection owns no buffer; requests are read through one that the thread lends;
//! - a connection has so many jobs and bytes under way, replies that it has not read included; above that nothing more is read of
//!   it, so that a client that does not read its replies stalls itself and nobody else;
//! - a disk has so many bytes under way, whoever asked; above that its connections are not read from;
//! - all clients together have so many bytes in payloads that are on their way and in replies that they do not read; above that large
//!   requests wait, and who holds much and does not move is shut out.
//!
//! A connection that ends, however it ends, leaves only the jobs that are under way; their outcomes are thrown away.

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

/// What a server allows.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// How long a client may take to agree on an export. Default 30 s.
    pub handshake_timeout: Duration,
    /// How many options it may send for that. Default 1024.
    pub options_max: u32,
    /// Connections at a time; more are closed at once. Default 4096.
    pub connections_max: usize,
    /// Jobs of one connection at a time. Default 256.
    pub jobs_max: usize,
    /// Bytes of one connection's jobs and of replies that it has not read; one request may go beyond it. Default 16 MiB.
    pub bytes_max: u64,
    /// Bytes of all clients' payloads on their way and of replies that were not read, beside 64 KiB for each client; 64 MiB at least.
    /// Default 256 MiB.
    pub buffers_bytes_max: u64,
    /// How long a client that holds much of that may stand still while others wait for it. Default 10 s.
    pub stall_timeout: Duration,
    /// How long jobs may take to end when the server does. Default 10 s.
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
