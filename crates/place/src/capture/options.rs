//! Options of a recording, and its sources.

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use tiermem_sys::process_claim::{ClaimError, ProcessClaim};

use super::CaptureError;
use super::sampling::Source;
use super::sampling::damon::Damon;
use super::sampling::faults::Faults;
use super::sampling::refs::Refs;
use super::sampling::writes::Writes;

const PAGE_BYTES: u64 = 4096;

/// Kind of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// Pages referenced.
    Refs,
    /// Pages written.
    Writes,
    /// Page faults.
    Faults,
    /// The kernel's DAMON.
    Damon,
}

impl SourceKind {
    /// All of them.
    pub const ALL: [SourceKind; 4] =
        [SourceKind::Refs, SourceKind::Writes, SourceKind::Faults, SourceKind::Damon];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            SourceKind::Refs => "refs",
            SourceKind::Writes => "writes",
            SourceKind::Faults => "faults",
            SourceKind::Damon => "damon",
        }
    }

    pub(super) fn open(self, pid: u32, options: &Options) -> io::Result<Box<dyn Source>> {
        Ok(match self {
            SourceKind::Refs => Box::new(Refs::open(pid, options.every_page)?),
            SourceKind::Writes => Box::new(Writes::open(pid)?),
            SourceKind::Faults => Box::new(Faults::open(pid)?),
            SourceKind::Damon => Box::new(Damon::open(pid)?),
        })
    }
}

/// Target of a recording.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program that is started, and its arguments.
    Command(Vec<OsString>),
    /// A process that runs already.
    Process(u32),
}

/// A part of a program's memory that is looked at with another granule than the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closer {
    /// As [`tiermem_trace::recording::choose`] takes it.
    pub name: String,
    /// Bytes of its granules, a multiple of 4096.
    pub granule_bytes: u64,
}

/// Options of recording a program.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub target: Target,
    /// The sources; the first one is the default of other tools.
    pub sources: Vec<SourceKind>,
    /// The length of a slice.
    pub slice: Duration,
    /// Bytes of a granule, a multiple of 4096.
    pub granule_bytes: u64,
    /// A part that is looked at more closely.
    pub closer: Option<Closer>,
    /// Look at every page instead of a sample run of each granule: costs the program more.
    pub every_page: bool,
    /// Keep a program that is started here from having huge pages.
    pub small_pages: bool,
    /// Report new mappings of a program started here at once, and not at the next slice: for callers that act on them.
    pub tell_mappings: bool,
    /// Whether the program gets an agent, even one that runs already; without one, what needs it is left out.
    pub agent: bool,
    /// Whether the processes that it starts are observed too, and theirs.
    pub children: bool,
    /// Whether it is told which code first touches memory.
    pub sites: bool,
    /// Begin to look so long after the program's start, or after that of the recorder.
    pub delay: Duration,
    /// Stop after this time; the program goes on.
    pub duration: Option<Duration>,
}

impl Options {
    /// Claims a process if a source changes what another recorder sees, or the agent does; `None` if none does, or if the process is none
    /// that can be claimed.
    ///
    /// # Errors
    /// If another recorder looks at it.
    pub(super) fn claim(&self, pid: u32) -> Result<Option<ProcessClaim>, CaptureError> {
        let is_exclusive = |kind: &SourceKind| matches!(kind, SourceKind::Refs | SourceKind::Writes);
        if !self.sources.iter().any(is_exclusive) {
            return Ok(None);
        }
        match ProcessClaim::take(pid) {
            Ok(claim) => Ok(Some(claim)),
            Err(ClaimError::Taken { holder }) => Err(CaptureError::Claimed { pid, holder }),
            // Why it cannot be observed is told by what needs more of it.
            Err(ClaimError::System(_)) => Ok(None),
        }
    }

    /// Whether they can be followed at all.
    pub(super) fn check(&self) -> Result<(), CaptureError> {
        let closer = self.closer.iter().map(|closer| closer.granule_bytes);
        if closer.chain([self.granule_bytes]).any(|bytes| bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES)) {
            return Err(CaptureError::Options(
                "a granule is a multiple of 4 KiB, as the kernel tells of pages; --source lackey alone knows of smaller ones",
            ));
        }
        Ok(())
    }
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The program ended by itself.
    Exited(ExitStatus),
    /// A process that was not started here ended.
    Gone,
    /// The recording was asked to stop, or its time was up; the program goes on.
    Stopped,
}
