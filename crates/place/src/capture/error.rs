//! Errors of recording a program.

use std::io;
use std::path::PathBuf;

use tiermem_trace::TraceError;
use tiermem_trace::recording::NAME_WORDS;

/// Errors before or during a recording.
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
        /// Whether there is something of that name.
        is_there: bool,
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
    /// What Lackey says could not be read, or the trace or the recording could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The program's end could not be waited for.
    #[error("cannot wait for the end of the program: {0}")]
    Wait(io::Error),
    /// The program could not be started.
    #[error("cannot start the program: {0}")]
    Program(io::Error),
    /// The process does not exist.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// Another recorder looks at the process already.
    #[error(
        "process {pid} is being observed already{}: two recorders would clear each other's accessed bits, and both would be wrong. Wait \
         until that one has ended, or see page faults alone with --source faults",
        holder.map_or(String::new(), |holder| format!(" by process {holder}"))
    )]
    Claimed {
        /// The process.
        pid: u32,
        /// The other recorder, if that can be seen.
        holder: Option<u32>,
    },
    /// The process belongs to another user.
    #[error("process {pid} cannot be looked at: {source}")]
    NotOurs {
        /// The process.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel's list of mappings is malformed.
    #[error("{path}: {reason}")]
    Maps {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A source cannot work here.
    #[error("the source {name} cannot look at process {pid}: {source}")]
    Source {
        /// The source.
        name: &'static str,
        /// The process.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// First touches cannot be sampled.
    #[error("--sites: the page faults of the program cannot be sampled (perf_event_open): {0}")]
    Sites(io::Error),
    /// The machine's memory cannot be looked at.
    #[error("the machine's memory cannot be looked at: {0}")]
    Machine(io::Error),
    /// A fault of this program.
    #[error("what looks at it has failed; please report what is said above")]
    Broken,
    /// What was to be looked at more closely was never there.
    #[error("--closer {name}: the program had no such region; a name is {}. The regions were {}", NAME_WORDS, there.join(", "))]
    NoSuchRegion {
        /// As it was given.
        name: String,
        /// All regions.
        there: Vec<String>,
    },
}
