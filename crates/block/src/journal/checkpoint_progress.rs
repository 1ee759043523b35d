//! The progress of a checkpoint.

use std::collections::VecDeque;

use tiermem_tier::block::AlignedBuffer;

use super::Lsn;
use super::superblock::Tail;

/// What a checkpoint waits for.
#[derive(Debug, Default)]
pub(super) enum Round {
    /// Nothing: there is none.
    #[default]
    Idle,
    /// That the log is sealed up to here.
    Sealed { images: VecDeque<(u32, u64, AlignedBuffer)>, upto: Lsn },
    /// Writes of images.
    Written { images: VecDeque<(u32, u64, AlignedBuffer)>, in_flight: usize },
    /// A sync of the images: at least that one.
    Synced { sync: u64 },
    /// The write of the superblock.
    Superblock { tail: Tail },
    /// A sync of it: at least that one.
    Freed { tail: Tail, sync: u64 },
}
