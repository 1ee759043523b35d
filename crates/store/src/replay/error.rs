//! Errors that end a replay early.

use std::error::Error;
use std::io;
use std::time::Duration;

use super::Address;
use super::reply::Garbage;

/// Errors of a replay that could not begin or continue.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// No connection could be made.
    #[error("cannot connect to {to}: {source}")]
    Connect {
        /// The server.
        to: Address,
        /// What the system said.
        source: io::Error,
    },
    /// Reading from or writing to a connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// The server closed a connection on which it still owed replies.
    #[error("the server closed the connection with {unanswered} commands unanswered")]
    Closed {
        /// How many replies it owed on this connection.
        unanswered: usize,
    },
    /// What came back is not RESP.
    #[error("the server's answer is not RESP: {0}")]
    Garbage(#[from] Garbage),
    /// A well-formed reply that does not belong to the command.
    #[error("the server answered {command} with {reply}")]
    Unexpected {
        /// The command.
        command: &'static str,
        /// What kind of reply came.
        reply: String,
    },
    /// The server wants a password that was not given, or refuses the one given.
    #[error("the server refuses access: {0}")]
    Auth(String),
    /// No reply came on any connection for a long time.
    #[error("{to} has answered nothing for {} s", after.as_secs())]
    Stalled {
        /// The server.
        to: Address,
        /// How long it was waited for.
        after: Duration,
    },
    /// A value that no RESP server takes.
    #[error("the value of key {key} would have {size_bytes} bytes; servers take at most {limit_bytes}")]
    ValueTooLarge {
        /// The key in the trace.
        key: u64,
        /// Its size after scaling.
        size_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The trace could not be read on.
    #[error("the trace ended early")]
    Trace(#[source] Box<dyn Error + Send + Sync>),
    /// The asynchronous runtime failed.
    #[error("cannot run the client: {0}")]
    Runtime(io::Error),
}
