//! The block cache: volumes on slow storage, cached in blocks as large as their requests deserve, and served over NBD.
//!
//! [`nbd`] speaks the network's side: both ends of the protocol as state machines that own no socket.
#![forbid(unsafe_code)]

pub mod nbd;
