//! Errors of making or importing a perf recording, and what to do instead.

use std::io;
use std::path::PathBuf;

use super::line::Reason;

/// Command that prints a recording in the form that is read here.
pub const PRINT_COMMAND: &str =
    "perf script -F comm,pid,tid,time,event,addr,data_src,weight,ip,sym,dso --show-mmap-events";

/// Errors of recording with perf and of importing.
#[derive(Debug, thiserror::Error)]
pub enum PerfMemError {
    /// No file was named.
    #[error("there is no perf text to import")]
    NoInput,
    /// The options do not go together.
    #[error("{0}")]
    Options(String),
    /// A file could not be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file could not be read on.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not text with samples.
    #[error("{}: {reason}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        reason: &'static str,
        /// What to do about it.
        advice: String,
    },
    /// A line cannot be parsed, and more such lines were met than may be skipped.
    #[error("{}, line {line}: {reason}: \"{text}\"", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: &'static str,
        /// The line, escaped and cut short.
        text: String,
    },
    /// The copy of `/proc/PID/maps` is none.
    #[error("{}: {reason}", path.display())]
    Maps {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// None of the requested samples has an address.
    #[error("there is no sample with an address in it: {0}")]
    NoSamples(String),
    /// More slices, processes or mappings than can be kept.
    #[error("{0}")]
    TooMany(String),
    /// It was asked to stop.
    #[error("the import was stopped")]
    Stopped,
    /// perf is not installed.
    #[error("there is no `{0}` in PATH")]
    NoPerf(String),
    /// The machine has no counters that sample accesses.
    #[error(
        "this machine has no hardware counters that sample accesses to memory ({missing}); perf says: {said}"
    )]
    NoCounters {
        /// What was looked for.
        missing: String,
        /// What `perf mem record -e list` says.
        said: String,
    },
    /// perf could not record or print.
    #[error("`{command}` failed ({status}): {said}")]
    Perf {
        /// What was run.
        command: String,
        /// How it ended.
        status: String,
        /// The last that it said.
        said: String,
    },
    /// perf could not be run.
    #[error("cannot run perf: {0}")]
    Start(io::Error),
}

impl PerfMemError {
    /// How to fix it; empty where no remedy is known.
    pub fn advice(&self) -> String {
        match self {
            PerfMemError::Form { advice, .. } => advice.clone(),
            PerfMemError::Line { .. } => {
                format!(
                    "print the recording with `{PRINT_COMMAND}`, or pass over N broken lines with --skip-bad N"
                )
            }
            PerfMemError::NoSamples(_) => {
                "record with `perf mem record`, which asks for addresses (-d)".to_owned()
            }
            PerfMemError::NoPerf(_) => "install it (apt-get install linux-perf, or linux-tools)".to_owned(),
            PerfMemError::NoCounters { .. } => {
                "record on a machine that has them, outside of a virtual machine, and import the text here"
                    .to_owned()
            }
            PerfMemError::Perf { .. } => {
                "run as root, or lower kernel.perf_event_paranoid to 1 or less".to_owned()
            }
            _ => String::new(),
        }
    }
}

/// A line that is not understood, within its part of a file.
#[derive(Clone, Debug)]
pub(super) struct BadLine {
    /// Lines of the part before it.
    pub line: u64,
    pub reason: Reason,
    pub text: String,
}

/// Characters of a broken line that are shown.
const SHOWN: usize = 120;

impl BadLine {
    pub fn new(line: u64, reason: Reason, text: &[u8]) -> Self {
        let shown = &text[..text.len().min(SHOWN)];
        let dots = if shown.len() < text.len() { "..." } else { "" };
        BadLine { line, reason, text: format!("{}{dots}", shown.escape_ascii()) }
    }
}
