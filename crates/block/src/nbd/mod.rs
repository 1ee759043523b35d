//! Network Block Device protocol (NBD): client and server as state machines, no I/O.
//!
//! Every machine takes bytes as they arrive, in pieces of any size, and returns their meaning. The owner of
//! the socket sends the bytes that it is given and moves the payloads, which no machine copies. Section names
//! in these files are those of `doc/proto.md` in the NetworkBlockDevice project, which defines the protocol.
//!
//! A server runs [`Handshake`] until it gives a [`Session`], then [`Requests`], and answers through
//! [`Replies`]. A client runs [`client::Negotiation`], then [`client::Transmission`]. [`Rules`] say
//! which requests an export takes, and both sides check requests against the same ones. Not
//! supported: oldstyle negotiation, and the experimental extensions (extended headers, resize).

mod address;
pub mod client;
mod command;
mod context;
mod errno;
mod export;
mod extents;
mod fields;
mod handshake;
mod percent;
mod reassembly;
mod replies;
mod requests;
mod rules;
mod sizes;
mod uri;
pub mod wire;

pub use address::{Address, AddressError, PORT};
pub use command::{Command, Request};
pub use context::{Context, Contexts};
pub use errno::Errno;
pub use export::Export;
pub use extents::{Extent, Extents};
pub use handshake::{Handshake, HandshakeError, Progress, Session, Tls};
pub use replies::Replies;
pub use requests::{Incoming, Refusal, RequestError, Requests};
pub use rules::{Fault, Rules};
pub use sizes::BlockSizes;
pub use uri::{NbdUri, UriError};
