//! Errors that end an import early.

use std::io;
use std::path::PathBuf;

use super::reply::Garbage;
use crate::replay::Address;

/// Why loading ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A server is not there.
    #[error("cannot connect to {to}: {source}")]
    Connect {
        /// Which.
        to: Address,
        /// What the system said.
        source: io::Error,
    },
    /// A server requires another password, or does not have this database.
    #[error("{to} refuses the login: {text}")]
    Login {
        /// Which.
        to: Address,
        /// What it said.
        text: String,
    },
    /// A connection broke.
    #[error("the connection to {to} broke: {source}")]
    Io {
        /// To which server.
        to: Address,
        /// What the system said.
        source: io::Error,
    },
    /// A server ended the connection.
    #[error("{to} closed the connection with commands unanswered")]
    Closed {
        /// Which.
        to: Address,
    },
    /// What came back is no RESP.
    #[error("{to} does not speak RESP: {garbage}")]
    Garbage {
        /// Which server.
        to: Address,
        /// What came.
        garbage: Garbage,
    },
    /// A reply of another kind than the command has.
    #[error("{to} answers {command} with {reply}")]
    Unexpected {
        /// Which server.
        to: Address,
        /// The command.
        command: &'static str,
        /// What came.
        reply: String,
    },
    /// The input cannot be read on.
    #[error("cannot read on: {0}")]
    Input(io::Error),
    /// The state file cannot be read or written.
    #[error("the state file {}: {source}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The state file is of another migration.
    #[error("the state file {} is of {found}, not of {wanted}", path.display())]
    OtherState {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: String,
        /// What was asked for.
        wanted: String,
    },
}

impl LoadError {
    /// Whether trying again may help.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, LoadError::Connect { .. } | LoadError::Io { .. } | LoadError::Closed { .. })
    }
}
