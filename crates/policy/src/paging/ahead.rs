//! What is kept for fetching ahead: the prefetcher, the wishes that wait, and whom the pages that were fetched threw out.

use std::collections::VecDeque;

use crate::column::Bits;
use crate::frames::Frame;
use crate::moves::Ticket;
use crate::prefetch::{self, Prefetch, Prefetcher};

/// The prefetcher and what is kept for it.
#[derive(Clone, Debug)]
pub(super) struct Ahead {
    pub prefetcher: Prefetcher,
    /// Filled by the prefetcher, emptied into `wishes`.
    pub wanted: Vec<u64>,
    pub wishes: VecDeque<u64>,
    /// Where room is made for wishes: the move that the next one waits for.
    pub waits_for: Option<Ticket>,
    /// Frames that left for a page that was fetched ahead.
    thrown_out: Bits,
    /// Pages that were fetched ahead into DRAM that was nearly full, and for which no page has left yet.
    pub owed: u32,
}

impl Ahead {
    pub fn new(named: prefetch::Named) -> Self {
        Ahead {
            prefetcher: named.build(),
            wanted: Vec::new(),
            wishes: VecDeque::new(),
            waits_for: None,
            thrown_out: Bits::default(),
            owed: 0,
        }
    }

    pub fn grow_to(&mut self, frames: u32) {
        self.thrown_out.grow_to(Frame(frames.saturating_sub(1)).id());
    }

    pub fn throw_out(&mut self, frame: Frame) {
        self.thrown_out.set(frame.id(), true);
    }

    /// Whether the frame had left for a page that was fetched ahead.
    pub fn is_thrown_out(&self, frame: Frame) -> bool {
        self.thrown_out.get(frame.id())
    }

    /// The frame is back, or gone: why it left matters no longer.
    pub fn forgive(&mut self, frame: Frame) {
        self.thrown_out.set(frame.id(), false);
    }

    pub fn metadata_bytes(&self) -> u64 {
        let wishes = 8 * (self.wanted.capacity() + self.wishes.capacity());
        self.prefetcher.metadata_bytes() + self.thrown_out.bytes() + wishes as u64
    }
}
