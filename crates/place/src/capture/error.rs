//! Why a program could not be recorded.

use std::io;
use std::path::PathBuf;

use tiermem_trace::TraceError;

/// What went wrong before or during a recording.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// No command was given.
    #[error("there is no program to record")]
    NoCommand,
    /// The program is not there or is none.
    #[error("cannot run {}: {reason}", command.display())]
    Command {
        /// As it was given.
        command: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Valgrind is not installed.
    #[error("there is no `valgrind` in PATH")]
    NoValgrind,
    /// Valgrind could not be started.
    #[error("cannot start valgrind: {0}")]
    Start(io::Error),
    /// Valgrind ended before it had traced anything.
    #[error("valgrind ended before the program began ({0})")]
    NothingTraced(String),
    /// The caches cannot be as they were asked for.
    #[error("{0}")]
    Caches(String),
    /// The recording cannot be as it was asked for.
    #[error("{0}")]
    Options(&'static str),
    /// The page map of the program cannot be opened.
    #[error("cannot read which physical memory the program has ({path}): {source}")]
    PageMap {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The page map does not tell frames to this user.
    #[error("the kernel does not tell physical addresses to this user")]
    Hidden,
    /// What Lackey says could not be read, or the trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The program's end could not be waited for.
    #[error("cannot wait for the end of the program: {0}")]
    Wait(io::Error),
}
