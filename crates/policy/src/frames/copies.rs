//! Clean copies of frames that lie in a higher tier: one queue per tier, the oldest copy given up first.

use super::cell::Frame;
use super::config::TIERS_MAX;
use crate::Id;
use crate::column::Column;
use crate::evict::list::{Links, List};

/// The queues. A frame has one copy at most, so that all share one array of links.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    links: Column<Links>,
    queues: [List; TIERS_MAX],
    /// Whether any tier keeps copies: else no links are held.
    are_kept: bool,
}

impl Copies {
    pub fn new(are_kept: bool) -> Self {
        Copies { are_kept, ..Copies::default() }
    }

    /// Grows to copies of `frames` frames.
    pub fn grow_to(&mut self, frames: u32) {
        if self.are_kept && frames > 0 {
            self.links.grow_to(Id(frames - 1));
        }
    }

    pub fn enter(&mut self, frame: Frame, tier: u8) {
        debug_assert!(self.are_kept, "some tier keeps copies");
        self.queues[usize::from(tier)].push_head(&mut self.links, frame.id());
    }

    pub fn leave(&mut self, frame: Frame, tier: u8) {
        self.queues[usize::from(tier)].unlink(&mut self.links, frame.id());
    }

    pub fn oldest(&self, tier: u8) -> Option<Frame> {
        let tail = self.queues[usize::from(tier)].tail;
        (tail != Id::NONE).then_some(Frame(tail.0))
    }

    pub fn len(&self, tier: u8) -> u32 {
        self.queues[usize::from(tier)].len
    }

    pub fn bytes(&self) -> u64 {
        self.links.bytes()
    }
}
