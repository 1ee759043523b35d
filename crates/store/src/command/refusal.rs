//! Error replies, in Redis's wording.

use crate::clients::TooMuch;
use crate::engine::StoreError;
use crate::resp::Writer;

/// An error reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A fixed text, the code first.
    Text(&'static str),
    /// A text made for the occasion; may hold bytes that the client sent.
    Built(Vec<u8>),
    /// The engine refused.
    Store(StoreError),
    /// The reply is longer than [`crate::host::Host::reply_bytes_max`]. Nothing of it is there, and nothing was changed.
    NoRoom {
        /// What it needs at least.
        needs_bytes: usize,
        /// Of what the client can ask for fewer.
        things: &'static str,
    },
}

impl Refusal {
    pub(super) const WRONG_TYPE: Self =
        Refusal::Text("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(super) const SYNTAX: Self = Refusal::Text("ERR syntax error");
    pub(super) const NOT_AN_INTEGER: Self = Refusal::Text("ERR value is not an integer or out of range");

    /// The word that errors of this kind begin with.
    pub(super) fn code(&self) -> &str {
        let text = match self {
            Refusal::Text(text) => text.as_bytes(),
            Refusal::Built(text) => text,
            Refusal::Store(StoreError::OutOfMemory) => b"OOM",
            Refusal::Store(_) | Refusal::NoRoom { .. } => b"ERR",
        };
        let end = text.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(text.len());
        std::str::from_utf8(&text[..end]).unwrap_or("ERR")
    }

    /// Writes the error.
    pub fn write(&self, mut reply: Writer<'_>) {
        match self {
            Refusal::Text(text) => reply.error(text.as_bytes()),
            Refusal::Built(text) => reply.error(text),
            Refusal::Store(StoreError::OutOfMemory) => {
                reply.error(b"OOM command not allowed when used memory > 'maxmemory'.");
            }
            Refusal::NoRoom { .. } => reply.error(b"ERR the reply is too long"),
            Refusal::Store(error) => reply.error(format!("ERR {error}").as_bytes()),
        }
    }
}

impl From<TooMuch> for Refusal {
    fn from(_: TooMuch) -> Self {
        Refusal::Text(
            "ERR the server remembers too many names, subscriptions and watched keys for its clients: use fewer or \
             shorter ones",
        )
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Refusal::Store(error)
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Refusal::Built(text.into_bytes())
    }
}

/// Result of a handler: the reply is written, or this error is to be written.
pub type Outcome = Result<(), Refusal>;

/// The error for a number of arguments that `name` does not take.
pub(super) fn wrong_arity(name: &str) -> Refusal {
    if name == "exec" {
        let text = "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
        return Refusal::Text(text);
    }
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// What an error shows of an argument: up to a NUL, and not more than `max` bytes.
pub(super) fn printable(argument: &[u8], max: usize) -> &[u8] {
    let end = argument.iter().take(max).position(|byte| *byte == 0);
    &argument[..end.unwrap_or(argument.len().min(max))]
}
