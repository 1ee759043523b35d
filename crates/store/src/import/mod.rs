//! Import into a running server: from a stream of requests in the form of `redis-cli --pipe`,
//! from rows of keys and values, and from another server that keeps serving meanwhile.
//!
//! A client, in the server's crate for the reasons of [`crate::replay`]: it works against any server that speaks
//! RESP2. Sockets block. One thread sends while another reads replies, so neither side waits for the other with
//! full buffers. The number of commands in flight is bounded, and memory by that number and the longest value.
//!
//! A command or key that the server refuses is counted and skipped; the first ones are reported with their position.

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
    /// Login at the server.
    pub login: Login,
    /// Commands under way at a time, at least 1.
    pub pipeline: usize,
}
