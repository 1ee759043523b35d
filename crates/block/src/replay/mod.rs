//! Replay: drives any NBD server with a trace of reads and writes, measures it, and verifies what it returns.
//!
//! A client: it shares the protocol ([`crate::nbd`]) with the server, which is why it is in this crate,
//! and nothing with the cache. One thread drives all connections. A number of *workers* take the trace's
//! requests in order, each one at a time: in a closed loop as soon as it is free, in a timed replay (an
//! open loop) when the request is due. Workers correspond to the threads with which Yang 2024 replays
//! traces to several devices in parallel (section 2.3). Requests that overlap, at least one of them a
//! write, keep the order of the trace: a worker whose request must wait for another's waits with it. So
//! the result of a read is known ([`ExpectedContent`]), no matter what else is in flight.
//!
//! A request is widened to whole sectors of 512 bytes, or to the export's least blocks where those are
//! larger. A request longer than the server's maximum, or than 1 MiB, is sent in parts, one after another.

mod connection;
mod drive;
mod expected_content;
mod figures;
mod layout;
mod order;
mod pattern;
mod survey;

use std::error::Error;
use std::time::Duration;

use tiermem_base::Access;
use tiermem_live::Pace;

pub use expected_content::{ExpectedContent, ExpectedSector, FoundContent, Mismatch};
pub use figures::{Complaint, End, Figures, Outcome, Side, Times, Wrong};
pub use layout::{Layout, LayoutError, Span, Target};
pub use pattern::{SECTOR_BYTES, Stamp};
pub use survey::{Survey, VolumeSurvey};

/// Options of a replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// The exports, and which volumes of the trace lie in each.
    pub targets: Vec<Target>,
    /// Requests under way at a time, at least 1. Where an export lets clients use several connections, each worker has its own, up to
    /// 64 of them and 512 to all exports; elsewhere all share one.
    pub workers: usize,
    /// When requests are sent. In an open loop latency counts from when a request was due, however late a worker was free; a time before an
    /// earlier record's counts as that.
    pub pace: Pace,
    /// Number of requests at the start that are sent and not measured.
    pub warm_up: u64,
    /// Whether requests beyond an export's end are brought in from its begin.
    pub wrap: bool,
    /// Whether the data read are compared with the expected content. It takes about 40 bytes of
    /// memory for each 4 KiB written as a whole, and 120 for each other 4 KiB that is touched.
    pub verify: bool,
    /// Distinguishes this run's writes from another run's.
    pub seed: u64,
    /// Time limit of one attempt to connect and to negotiate.
    pub attempt: Duration,
    /// With requests under way and no reply at all for this long, the server counts as stuck.
    pub stall: Duration,
}

impl Options {
    /// 16 workers in a closed loop, with nothing checked.
    pub fn new(targets: Vec<Target>) -> Self {
        Options {
            targets,
            workers: 16,
            pace: Pace::Closed,
            warm_up: 0,
            wrap: false,
            verify: false,
            seed: 0,
            attempt: Duration::from_secs(5),
            stall: Duration::from_secs(60),
        }
    }
}

/// Errors before a replay begins. A later failure of a server ends the
/// replay, and the figures until then are reported ([`End::Broken`]).
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// No session with an export.
    #[error("{uri}: {why}")]
    Connect {
        /// The export.
        uri: String,
        /// Words for people.
        why: String,
    },
    /// The trace does not fit the exports.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The trace cannot be read.
    #[error("{0}")]
    Trace(Box<dyn Error + Send + Sync>),
}

/// Sends the requests of `trace`, from which `survey` was made, until it ends, a connection breaks,
/// or `stop` is set. `progress` is called about ten times a second with the number of records done.
///
/// Blocks the calling thread.
///
/// # Errors
/// When an export cannot be had, the trace does not fit, or it cannot be read.
pub fn run<E: Error + Send + Sync + 'static>(
    options: &Options,
    survey: &Survey,
    trace: impl Iterator<Item = Result<Access, E>>,
    progress: &mut dyn FnMut(u64),
    stop: &dyn Fn() -> bool,
) -> Result<Outcome, ReplayError> {
    let mut trace = trace.map(|record| record.map_err(|error| ReplayError::Trace(Box::new(error))));
    drive::run(options, survey, &mut trace, progress, stop)
}
