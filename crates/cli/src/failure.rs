//! Failure of a command: its message and its exit code.

use std::io::Write;
use std::process::ExitCode;

/// Why a command did not do its work.
#[derive(Debug)]
pub enum Failure {
    /// It was started in a way that cannot work; exit code 2.
    Usage(anyhow::Error),
    /// It was tried and failed; exit code 1.
    Failed(anyhow::Error),
    /// The reader of the output has closed it, as `head` does; nothing is printed, exit code 0.
    ReaderGone,
}

impl Failure {
    /// Wrong use.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Failure::Usage(error.into())
    }

    /// A failed try.
    pub fn failed(error: impl Into<anyhow::Error>) -> Self {
        Failure::Failed(error.into())
    }

    /// A failed try to write a result.
    pub fn writing(what: &str, error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::Failed(anyhow::anyhow!("cannot write {what}: {error}")),
        }
    }

    /// The same as wrong use: where what is read belongs to how the command was called.
    pub fn into_usage(self) -> Self {
        match self {
            Failure::Failed(error) => Failure::Usage(error),
            other => other,
        }
    }

    /// Tells the user and returns the exit code.
    pub fn report(self) -> ExitCode {
        let (error, code) = match self {
            Failure::Usage(error) => (error, 2),
            Failure::Failed(error) => (error, 1),
            Failure::ReaderGone => return ExitCode::SUCCESS,
        };
        // The output may be closed; the exit code shows the failure all the same.
        let _ = writeln!(std::io::stderr(), "tiermem: {error}");
        ExitCode::from(code)
    }
}
