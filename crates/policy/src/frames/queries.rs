//! Queries, which change nothing, and the calls that tell the machine of uses.

use super::act::{Counters, Touch};
use super::cell::{DIRTY, FRAME_BYTES_MAX, Frame, MOVING, PREFETCHED, WRITING, ZERO};
use super::config::{Config, ConfigError, References};
use super::heat::Heat;
use super::owners::Owners;
use super::space::Space;
use super::state::State;
use crate::evict::{self, Evict};

/// The frames of a pager, a pool or a host's cache: where they lie, and which are evicted.
#[derive(Clone, Debug)]
pub struct Frames<E> {
    pub(super) state: State<E>,
}

/// A view of one frame's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Where it lies, while it moves too; `None`: nowhere, it holds zeros or was never used.
    pub tier: Option<u8>,
    /// Where its clean copy lies.
    pub copy: Option<u8>,
    /// The owner of the frame.
    pub owner: u16,
    /// How often it is pinned.
    pub pins: u16,
    /// Written since it came, or since it was written back.
    pub is_dirty: bool,
    /// Known to hold zeros alone.
    pub is_zero: bool,
    /// A move of it is under way.
    pub is_moving: bool,
    /// It is being written back.
    pub is_writing: bool,
    /// It was fetched ahead and not used yet.
    pub is_prefetched: bool,
}

impl View {
    /// Whether it lies in this tier, was used there, and nothing keeps it there.
    pub fn may_leave(&self, tier: u8) -> bool {
        self.tier == Some(tier) && !self.is_moving && !self.is_prefetched && self.pins == 0
    }
}

impl<E: Evict> Frames<E> {
    /// No frames yet. The policy has [`super::domains`] domains.
    pub fn new(config: Config, policy: E) -> Result<Self, ConfigError> {
        Ok(Frames { state: State::new(config, policy)? })
    }

    /// Grows to `frames` frames, at most [`crate::Id::COUNT_MAX`]. New frames lie nowhere and belong to owner 0. No other call
    /// allocates.
    pub fn grow_to(&mut self, frames: u32) {
        let frames = frames.min(crate::Id::COUNT_MAX);
        self.state.cells.grow_to(frames);
        self.state.bits.grow_to(frames);
        self.state.copies.grow_to(frames);
        if let Some(heat) = &mut self.state.heat {
            heat.grow_to(frames);
        }
    }

    /// How many frames there are.
    pub fn len(&self) -> u32 {
        self.state.cells.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.state.cells.len() == 0
    }

    /// The state of a frame.
    pub fn view(&self, frame: Frame) -> View {
        let cell = self.state.cells.get(frame);
        View {
            tier: cell.tier(),
            copy: cell.copy(),
            owner: cell.owner,
            pins: cell.pins(),
            is_dirty: cell.is(DIRTY),
            is_zero: cell.is(ZERO),
            is_moving: cell.is(MOVING),
            is_writing: cell.is(WRITING),
            is_prefetched: cell.is(PREFETCHED),
        }
    }

    /// Room in the tiers.
    pub fn space(&self) -> &Space {
        &self.state.accounts.space
    }

    /// Free frames, from low to high, that a step keeps in a tier.
    pub fn watermarks(&self, tier: u8) -> (u32, u32) {
        self.state.accounts.space.watermarks(tier)
    }

    /// Accounts and quotas.
    pub fn owners(&self) -> &Owners {
        &self.state.accounts.owners
    }

    /// Frames of a tier that an owner is charged for.
    pub fn charged(&self, owner: u16, tier: u8) -> u32 {
        self.state.accounts.owners.charged(owner, tier)
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.state.counters
    }

    /// Moves under way, those of discarded frames included.
    pub fn under_way(&self) -> usize {
        self.state.moves.len()
    }

    /// How many moves there were, and how they ended.
    pub fn move_counts(&self) -> crate::moves::Counts {
        self.state.moves.counts()
    }

    /// The eviction policy.
    pub fn policy(&self) -> &E {
        self.state.order.policy()
    }

    /// The tier that a frame of owner 0 comes to now.
    pub fn arrival_tier(&self) -> u8 {
        self.state.arrival_tier(0)
    }

    /// The tier in place from which frames leave memory as others come.
    pub fn turnover_tier(&self) -> u8 {
        self.state.turnover_tier()
    }

    /// Bytes held, without those of the eviction policy: at most [`FRAME_BYTES_MAX`] a frame, three times that where frames
    /// change places by their uses, and a part that does not grow with frames.
    pub fn metadata_bytes(&self) -> u64 {
        let per_frame = self.state.cells.bytes() + self.state.bits.bytes() + self.state.copies.bytes();
        debug_assert!(
            per_frame
                <= (u64::from(self.len()) + crate::column::CHUNK_ITEMS as u64) * FRAME_BYTES_MAX as u64 * 9
                    / 8
        );
        let heat = self.state.heat.as_ref().map_or(0, Heat::bytes);
        per_frame + heat + self.state.moves.metadata_bytes() + self.state.accounts.owners.metadata_bytes()
    }

    /// Notes a use of a frame that needs no fault.
    #[inline]
    pub fn touch(&mut self, frame: Frame, now: u64) -> Touch {
        let cell = self.state.cells.get(frame);
        match cell.tier() {
            Some(tier) if self.state.is_in_place(tier) => {
                self.state.refer(frame, cell, tier, evict::Touch { now, write: false })
            }
            _ => Touch::Away,
        }
    }

    /// Notes that something in a run of 2^`frames_log2` frames was used, of which `first` is the first and a multiple. By bits
    /// over one tier in place that is a word for every 64 frames; else it is a touch of each.
    pub fn touch_granule(&mut self, first: Frame, frames_log2: u32, now: u64) {
        debug_assert!(first.0 & ((1 << frames_log2) - 1) == 0, "a granule lies at a multiple of its size");
        if first.0 >= self.len() {
            return;
        }
        if self.state.config.references == References::Sampled && self.state.tiers_in_place() == 1 {
            return self.state.bits.set_run(first, frames_log2);
        }
        let end = (u64::from(first.0) + (1 << frames_log2)).min(u64::from(self.len())) as u32;
        for frame in first.0..end {
            self.touch(Frame(frame), now);
        }
    }

    /// Holds every invariant against a count from scratch, for tests: it takes as long as there are frames.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn audit(&self) {
        self.state.audit();
    }
}
