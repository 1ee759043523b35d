//! Drop-behind: the pages that a sweep has passed leave DRAM before pages that are needed sooner.
//!
//! Passes over more memory than DRAM holds are the worst that can happen to an order by recency: the page used last is the one
//! needed last, and each page has left when its turn comes. Where such a sweep drops what it has passed, what else lies in DRAM
//! stays, its own other part included, and a pass reads only what cannot stay.
//!
//! 1. [`Streams`] find pages that come back from flash in order, and cut them into pieces that were passed.
//! 2. [`Duels`] tell whether passed pages are needed later than what would leave in their place. From time to time a page just passed
//!    and one of those that came to DRAM long ago are both sent away, and their next uses, which are faults, tell which was first. Only
//!    where nearly all of the old ones were, pieces are dropped: a program that passes over the same memory at once again keeps it.
//! 3. A piece is dropped a little behind the sweep, for programs that look back, and only while DRAM is full. What comes next finds
//!    room then, so that nobody has to reclaim for it.
//!
//! Nothing is asked of the program and nothing is known of its hits. Where no pages come back in order nothing is done.
//!
//! Sources: dropping behind a sequential read is as old as reading ahead of it (Smith, "Sequentiality and prefetching in database
//! systems", 1978); two ways that are tried on a sample and compared while the program runs are dynamic insertion's (Qureshi et al.,
//! "Adaptive insertion policies for high performance caching", 2007); that a page which is sent away tells its next use by a fault
//! is the sampling of Thermostat (Agarwal and Wenisch, 2017).

mod duels;
mod streams;

pub(super) use duels::Duels;
pub(super) use streams::{PIECE_PAGES, Piece, Streams, first_of};

use std::collections::VecDeque;

use crate::column::Column;
use crate::frames::Frame;

/// One page in so many of DRAM lies between a sweep and what is dropped behind it.
const LAG_ONE_OF: u32 = 32;
/// One duel begins for so many parts of DRAM that are passed, and none for less than so many pages: its two pages are faults.
const DUELS_IN_DRAM: u32 = 512;
const DUEL_PAGES_MIN: u32 = 128;
/// A page is old when so many parts of DRAM have come since: what the same sweep has brought is none of those that leave next.
const OLD: (u32, u32) = (3, 4);

/// What is kept for dropping behind sweeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Behind {
    pub streams: Streams,
    pub duels: Duels,
    /// Pieces that were passed, and are dropped or kept when the sweep is farther.
    passed: VecDeque<Piece>,
    passed_pages: u32,
    /// Pages passed since the last duel began.
    since_duel: u32,
    /// For each frame the number of pages that had come when it came last, modulo 2^32.
    came: Column<u32>,
    pages_come: u32,
}

impl Behind {
    /// There are so many frames from now on.
    pub fn grow_to(&mut self, frames: u32) {
        self.came.grow_to(Frame(frames.saturating_sub(1)).id());
    }

    /// The page of this frame has come to DRAM, and is used.
    pub fn came(&mut self, frame: Frame) {
        self.pages_come = self.pages_come.wrapping_add(1);
        *self.came.at(frame.id()) = self.pages_come;
    }

    /// Whether it has been in DRAM so long that an order by recency would send it away soon, if it was not used meanwhile.
    pub fn is_old(&self, frame: Frame, dram_pages: u32) -> bool {
        let (part, whole) = OLD;
        self.pages_come.wrapping_sub(self.came.get(frame.id())) >= dram_pages / whole * part
    }

    /// A piece was passed.
    pub fn add(&mut self, piece: Piece) {
        self.passed_pages += piece.pages();
        self.passed.push_back(piece);
    }

    /// The next piece that lies far enough behind, and whether a duel is to begin with it. A piece whose sweep has gone to another
    /// place meanwhile was passed long ago, so that it may be needed sooner than what is drawn now.
    pub fn next(&mut self, dram_pages: u32) -> Option<(Piece, bool)> {
        if self.passed_pages <= dram_pages / LAG_ONE_OF {
            return None;
        }
        let newest = self.passed.back()?.stream;
        let piece = self.passed.pop_front()?;
        self.passed_pages -= piece.pages();
        self.since_duel = self.since_duel.saturating_add(piece.pages());
        let is_due = self.since_duel >= (dram_pages / DUELS_IN_DRAM).max(DUEL_PAGES_MIN);
        let has_duel = is_due && piece.stream == newest;
        if has_duel {
            self.since_duel = 0;
        }
        Some((piece, has_duel))
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let passed = self.passed.capacity() * size_of::<Piece>();
        self.streams.metadata_bytes() + self.duels.metadata_bytes() + self.came.bytes() + passed as u64
    }
}
