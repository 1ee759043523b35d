//! Journal of a recording under way: it is what is left if the recorder is killed or the disk is full.
//!
//! A frame is appended for each slice, with one write, so that a recorder that dies loses the slice under way at most. When the
//! recording is complete, a file in the recording's final form takes the journal's place. Whatever opens recordings opens journals as
//! well.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | [`MAGIC`] |
//! | 4 | version of the form, 1 |
//! | 4 | CRC-32 of the 12 bytes before |
//!
//! then frames, all numbers little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | bytes of the body, N |
//! | 4 | CRC-32 of the four bytes before and of the body |
//! | N | the body: a byte for its kind, and the content |
//!
//! The kinds are 1, a [`Head`] as JSON without slices, regions and processes, which replaces the one before; 2, a slice: four bytes with
//! the size of its [`SliceFacts`] as JSON, these, and samples of [`SAMPLE_BYTES`] each; 3, the end: [`EndFacts`] as JSON. Regions may grow,
//! merge and move to another number until the end, so samples have addresses. Processes may begin other programs, so they get their final
//! names, and regions theirs with them, when the journal is read.

mod follow;
mod frame;
mod kept;
mod read;
#[cfg(test)]
mod tests;
mod write;

use serde::{Deserialize, Serialize};
use tiermem_base::Op;

use super::{Head, Level, Process, Region, Slice};

pub use follow::Follower;
pub use kept::Limits;
pub use read::recover;
pub(super) use read::{is_one, read};
pub use write::Journal;

/// The first bytes of a journal.
pub const MAGIC: [u8; 8] = *b"TMRECJNL";
/// How the note begins of a recording whose recorder ended before it was complete.
pub(super) const INCOMPLETE: &str = "the recorder ended before the recording was complete";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
const FRAME_HEADER_BYTES: usize = 8;
const HEAD: u8 = 1;
const SLICE: u8 = 2;
const END: u8 = 3;
/// Bytes of one sample.
const SAMPLE_BYTES: usize = 40;

/// A region while the recording goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedRegion {
    /// Its number: samples name it.
    pub number: u32,
    /// The region that it has become a part of, which has a smaller number.
    #[serde(default)]
    pub within: Option<u32>,
    /// Whether any of it is mapped. While it is, its last slice is the one that was recorded last.
    pub is_mapped: bool,
    /// What is known of it. Its name is unique within its process.
    pub region: Region,
}

/// A process while the recording goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedProcess {
    /// Its place among all.
    pub number: u32,
    /// What is known of it. Others may have the same name.
    pub process: Process,
}

/// What is known of regions and processes: those that are new or may have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Regions.
    pub regions: Vec<NumberedRegion>,
    /// Processes; none where descendants are not followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<NumberedProcess>,
}

/// Accesses of one stretch of memory within one slice; [`super::Sample`] has the rest of the meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JournalSample {
    /// The number of its region.
    pub region: u32,
    /// The first address.
    pub address: u64,
    /// Bytes of the stretch.
    pub bytes: u64,
    /// Accesses.
    pub weight: f64,
    /// Bytes of the stretch that were in memory at the slice's end; all of them if that is not known.
    pub resident: u64,
    /// Index in [`Head::sources`].
    pub source: u8,
    /// Load, store, or not known.
    pub op: Op,
    /// Where it was answered.
    pub level: Level,
    /// The node where the memory lies.
    pub node: u8,
}

/// What a slice's frame has beside its samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SliceFacts {
    slice: Slice,
    /// Processes by their numbers, and how much of each was in memory at its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rss: Vec<(u32, u64)>,
    #[serde(flatten)]
    facts: Facts,
}

/// What the last frame of a complete journal has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct EndFacts {
    head: Head,
    #[serde(flatten)]
    facts: Facts,
}
