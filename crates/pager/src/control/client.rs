//! The side of the one who asks.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::answer::{Answer, Status};

/// An answer has at most so many bytes.
const ANSWER_BYTES: u64 = 64 << 10;
/// How long a question may take. A change of the limit takes as long as the pages do that have to leave.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens.
    #[error("nobody takes care of it any more ({0}); it goes on under its limit, and nothing can be set")]
    Nobody(io::Error),
    /// The connection ended.
    #[error("it gave no answer ({0}); it may have ended, or too many ask at once: try again")]
    Silent(io::Error),
    /// It says no.
    #[error("{0}")]
    Refused(String),
}

/// Sends a request to a socket, and waits for the answer.
///
/// # Errors
/// If there is none, or it is a refusal.
pub fn ask(path: &Path, line: &str) -> Result<Status, AskError> {
    let mut server = UnixStream::connect(path).map_err(AskError::Nobody)?;
    let asks = || -> io::Result<String> {
        server.set_write_timeout(Some(PATIENCE))?;
        if !line.starts_with("set") {
            server.set_read_timeout(Some(PATIENCE))?;
        }
        server.write_all(format!("{line}\n").as_bytes())?;
        let mut text = String::new();
        server.take(ANSWER_BYTES).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = asks().map_err(AskError::Silent)?;
    match serde_json::from_str(&text) {
        Ok(Answer::Status(status)) => Ok(status),
        Ok(Answer::Error(error)) => Err(AskError::Refused(error)),
        Err(error) => Err(AskError::Silent(error.into())),
    }
}
