//! The block cache: volumes on slow storage, cached in blocks as large as their requests deserve, and served over NBD.
//!
//! - [`nbd`] speaks the network's side: both ends of the protocol as state machines that own no socket.
//! - [`disks`] is the seam between the server and whoever holds the bytes.
//! - [`server`] serves disks to clients: sockets, TLS, flow control.
//! - [`backing`] is the seam to the stores where volumes live.
//! - [`journal`] keeps the metadata of a cache device: log, table, superblock, recovery.
#![forbid(unsafe_code)]

pub mod backing;
pub mod disks;
pub mod journal;
pub mod nbd;
pub mod server;
