//! Recordings: the memory accesses of a program, region by region and slice by slice of time (Fisher 2025, chapter 3).
//!
//! A recording is a trace in the Parquet form ([`mod@file`]) whose key is the address, whose tenant is the region, and whose
//! metadata names the regions. While it is made it is a [`journal`]. So every tool for traces reads it, and its statements hold for the next run too: there a region
//! lies elsewhere, but its offsets mean the same.

mod by_tensor;
mod file;
mod from_trace;
mod head;
mod initialisation;
pub mod journal;
mod names;
mod of_process;
mod of_slices;
mod region_range;
mod rss;
mod select;
mod sites;
mod touched;
mod unknown_heat;

pub use file::{NO_REGIONS, looks_like_one, read, write};
pub use from_trace::{FromTrace, FromTraceError, GAP_BYTES};
pub use head::{Cost, Executable, Head, Process, Region, RegionKind, Slice, Source, Unit};
pub use initialisation::Initialisation;
pub use journal::{Facts, Follower, Journal, JournalSample, Limits, NumberedProcess, NumberedRegion};
pub use names::{Candidate, NAME_WORDS, choose};
pub use region_range::{RegionRange, finest_granule};
pub use rss::Rss;
pub use select::{LevelChoice, RegionHeat, Selection, parse_level};
pub use sites::{SiteFrame, SiteHeat, SiteShares, SiteStack, SiteTouches, Sites};
pub use touched::{Touched, touched};
pub use unknown_heat::UNKNOWN_MIN;

use tiermem_base::Op;

/// Where an access was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// The source cannot tell.
    #[default]
    Unknown = 0,
    /// By a cache of the processor.
    Cache = 1,
    /// By the memory of the processor's own node.
    Local = 2,
    /// By another node's memory, or by CXL memory.
    Remote = 3,
}

impl Level {
    /// All of them, at the index of their code.
    pub const ALL: [Level; 4] = [Level::Unknown, Level::Cache, Level::Local, Level::Remote];
}

/// The mode of the processor at an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mode {
    /// The source cannot tell.
    #[default]
    Unknown = 0,
    /// The program.
    User = 1,
    /// The kernel.
    Kernel = 2,
}

impl Mode {
    /// All of them, at the index of their code.
    pub const ALL: [Mode; 3] = [Mode::Unknown, Mode::User, Mode::Kernel];
}

/// The node where a sample's memory lies, if it is not known.
pub const NODE_UNKNOWN: u8 = u8::MAX;

/// Accesses of one stretch of one region within one slice, seen by one source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Index in [`Head::slices`].
    pub slice: u32,
    /// Index in [`Head::regions`].
    pub region: u32,
    /// Bytes from the region's start.
    pub offset: u64,
    /// Bytes of the stretch.
    pub bytes: u32,
    /// How many of them were in memory at the slice's end; all of them if that is not known.
    pub resident: u32,
    /// How many accesses it stands for, in the source's [`Unit`].
    pub weight: f32,
    /// Mean latency in processor cycles; 0 where it is not known.
    pub latency_cycles: f32,
    /// Index in [`Head::sources`].
    pub source: u8,
    /// Load or store; unknown where the source does not tell them apart ([`Source::tells_stores`]).
    pub op: Op,
    /// Where it was answered.
    pub level: Level,
    /// The mode of the processor.
    pub mode: Mode,
    /// The node where the memory lies, [`NODE_UNKNOWN`] if not known.
    pub node: u8,
}

/// One access to nothing, of which no more is known: for the fields that a sample's maker does not know.
impl Default for Sample {
    fn default() -> Self {
        Sample {
            slice: 0,
            region: 0,
            offset: 0,
            bytes: 0,
            resident: 0,
            weight: 1.0,
            latency_cycles: 0.0,
            source: 0,
            op: Op::Unknown,
            level: Level::Unknown,
            mode: Mode::Unknown,
            node: NODE_UNKNOWN,
        }
    }
}

/// A recording in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// What was recorded, when, and where in memory.
    pub head: Head,
    /// The accesses, in the order of slices.
    pub samples: Vec<Sample>,
}

impl Recording {
    /// What a note says, if its recorder ended before it was complete.
    pub fn incompleteness(&self) -> Option<&str> {
        self.head.notes.iter().map(String::as_str).find(|note| note.starts_with(journal::INCOMPLETE))
    }

    /// Why there is nothing in it, in a sentence; `None` if there is something.
    pub fn emptiness(&self) -> Option<String> {
        let why = self.head.notes.last().map_or("no access was seen", String::as_str);
        self.samples.is_empty().then(|| format!("the recording is empty: {why}"))
    }
}
