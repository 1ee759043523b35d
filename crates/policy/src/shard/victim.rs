//! The segment that is being emptied: how far that has come, and what stands in it.

use crate::log::Walk;

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its own bytes are not all on the device yet.
    Waiting,
    Reading,
    /// A piece of the walk is under way, or waits for its turn.
    Walking {
        is_at_work: bool,
    },
    /// What the walk did not find leaves the index, from this position of it on.
    Sweeping {
        from: u64,
        is_at_work: bool,
    },
}

/// The segment that is being emptied.
#[derive(Debug)]
pub(super) struct Victim {
    pub(super) walk: Walk,
    pub(super) stage: Stage,
    /// Hashes of what was swept up and has not left yet.
    pub(super) lost: Vec<u64>,
}

impl Victim {
    pub(super) fn new(walk: Walk) -> Self {
        Victim { walk, stage: Stage::Waiting, lost: Vec::new() }
    }

    /// Whether a piece of the walk goes on.
    pub(super) fn is_at_work(&self) -> bool {
        matches!(self.stage, Stage::Walking { is_at_work: true } | Stage::Sweeping { is_at_work: true, .. })
    }
}

/// An item that stands in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Lying {
    /// The byte of the segment with which it begins.
    pub at: u32,
    /// The hash of its key.
    pub hash: u64,
    /// Its bytes there.
    pub bytes: u32,
    /// Whether it is the last one of its key in its page: a later one buries it.
    pub is_latest: bool,
    /// Why it is dead though the index names it: its time is over.
    pub is_over: bool,
}
