//! Filling a running server: from a stream of requests as `redis-cli --pipe` takes it, from rows of keys and values, and
//! from another server that goes on serving meanwhile.
//!
//! A client, in the server's crate for the reasons of [`crate::replay`]: it works against any server that speaks RESP2. Sockets block; one thread sends
//! while another reads replies, so neither side waits for the other with full buffers. What is under way is bounded by a
//! number of commands, and memory by that and the longest value.
//!
//! What a server refuses costs that command or key alone: it is counted, and the first ones are kept with their place.

mod error;
pub mod migrate;
mod pairs;
pub(crate) mod reply;
mod report;
mod request;
pub(crate) mod resp_client;
mod stream;
mod window;

pub use error::LoadError;
pub use pairs::{Row, RowFault, load_rows};
pub use report::{Complaint, Report, Verified};
pub use resp_client::Login;
pub use stream::load_stream;

pub use crate::replay::Address;

/// Where the commands go, and how.
#[derive(Clone, Debug)]
pub struct Target {
    /// The server.
    pub to: Address,
    /// What it wants to know before.
    pub login: Login,
    /// Commands under way at a time, at least 1.
    pub pipeline: usize,
}
