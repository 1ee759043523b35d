//! Block cache: volumes on slow storage, cached in blocks of a size that suits their requests, and served over NBD.
//!
//! - [`nbd`] is the protocol: client and server as state machines that own no socket.
//! - [`disks`] is the seam between the server and the owner of the bytes.
//! - [`server`] serves disks to clients: sockets, TLS, flow control.
//! - [`engine`] is the cache itself.
//! - [`config`] is the operator's configuration.
//! - [`backing`] is the seam to the stores where volumes live.
//! - [`http`] is the operator's port.
//! - [`replay`] drives any NBD server with a trace, measures it, and verifies what it returns.
//! - [`journal`] keeps the metadata of a cache device: log, table, superblock, recovery.
#![forbid(unsafe_code)]

pub mod backing;
pub mod config;
pub mod disks;
pub mod engine;
pub mod http;
pub mod journal;
pub mod nbd;
mod nbd_socket;
pub mod replay;
pub mod server;
