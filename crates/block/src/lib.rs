//! The block cache: volumes on slow storage, cached in blocks as large as their requests deserve, and served over NBD.
//!
//! - [`nbd`] speaks the network's side: both ends of the protocol as state machines that own no socket.
//! - [`disks`] is the seam between the server and whoever holds the bytes.
//! - [`server`] serves disks to clients: sockets, TLS, flow control.
//! - [`engine`] is the cache itself.
//! - [`config`] is what an operator writes.
//! - [`backing`] is the seam to the stores where volumes live.
//! - [`http`] is what an operator looks at.
//! - [`replay`] drives any NBD server with a trace, measures it, and checks what it gives back.
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
