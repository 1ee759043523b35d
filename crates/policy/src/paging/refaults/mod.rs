//! Refaults: pages that left DRAM and are used again, and how much more DRAM would have kept them.
//!
//! A page that is used again has a *refault distance*: the pages that left DRAM after it and have not come back before it, itself
//! included. DRAM with so many pages more would still have held it, if what left DRAM had stayed there in the order in which it left. Where
//! the order of eviction is LRU that is LRU's own stack of the larger DRAM, and the figures are those of a simulation of it (Mattson et al.,
//! "Evaluation techniques for storage hierarchies", 1970). Where it is another one they are those of a second DRAM behind the first, for
//! what has left the first. Linux decides by the same distance which pages of files were evicted too early (Weiner, "mm: thrash
//! detection-based file cache sizing", Linux 3.15, 2014).
//!
//! **A page is back when it is used**, by a fault or as the first use of what was fetched ahead. The second is no fault, but would have
//! needed no fetch; both are counted, apart. What was fetched ahead and leaves unused was never back.
//!
//! **First touches are nobody's refaults**, and neither are pages that lay below from the beginning.
//!
//! **What a page scan tells is told late.** Meanwhile as many pages are expected to have left as DRAM holds too many by what was told, and no
//! more than have come since the scan: pages of which several processes have a mapping are counted more than once. Their places in the order
//! are taken at once. Who turns out to have left, by the next scan or by a fault, gets the first of them.

mod departures;

use std::ops::AddAssign;

use departures::Departures;
use tiermem_base::log_bins::LogBins;

use crate::frames::Frame;

/// Pages whose order is held at most: one GiB of them. Of more a sample is held.
const PLACES_MAX: u32 = 1 << 18;
/// Distances to 256 pages are exact, longer ones to a 128th.
const BINS: LogBins = LogBins::new(8);

/// What has become of a page that is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Return {
    /// The program waits for it.
    Fault,
    /// It was fetched ahead.
    Fetched,
    /// It held zeros, or its bytes had not left DRAM yet.
    Free,
}

/// The order of what has left, and what came back of it.
#[derive(Clone, Debug)]
pub(super) struct Refaults {
    departures: Departures,
    saved: MoreDram,
    /// Pages that have come since a page scan.
    come: u64,
}

impl Default for Refaults {
    fn default() -> Self {
        Refaults { departures: Departures::new(PLACES_MAX), saved: MoreDram::default(), come: 0 }
    }
}

impl Refaults {
    /// There are so many frames from now on.
    pub fn grow_to(&mut self, frames: u32) {
        self.departures.grow_to(frames);
    }

    /// A page has come to DRAM, which holds so many pages too many by what was told.
    pub fn has_come(&mut self, too_many: u32) {
        self.come += 1;
        self.departures.expect(self.come.min(too_many.into()));
    }

    /// A page has left DRAM, now or since the last scan.
    pub fn has_left(&mut self, frame: Frame) {
        self.departures.leave(frame);
    }

    /// A page scan tells what has left until now.
    pub fn was_scanned(&mut self) {
        self.come = 0;
    }

    /// The program waits for a page of which nobody has told that it had left. One that was fetched ahead and not used was never back.
    pub fn had_left(&mut self, frame: Frame) {
        if !self.departures.holds(frame) {
            self.departures.leave(frame);
        }
    }

    /// A page is used that may have left DRAM before.
    pub fn is_back(&mut self, frame: Frame, by: Return) {
        let Some((distance, weight)) = self.departures.come_back(frame) else { return };
        match by {
            Return::Fault => self.saved.faults.add(distance, weight),
            Return::Fetched => self.saved.fetches.add(distance, weight),
            Return::Free => {}
        }
    }

    /// The content of a page is given up.
    pub fn forget(&mut self, frame: Frame) {
        self.departures.come_back(frame);
    }

    /// What more DRAM would have saved.
    pub fn more_dram(&self) -> &MoreDram {
        &self.saved
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        self.departures.metadata_bytes() + self.saved.metadata_bytes()
    }
}

/// Faults and fetches that would not have been, had DRAM had more pages all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoreDram {
    faults: Histogram,
    fetches: Histogram,
}

/// What some more DRAM would have saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Faults for which a page was read.
    pub faults: u64,
    /// Pages that were fetched ahead and used.
    pub fetches: u64,
}

impl MoreDram {
    /// What so many more pages would have saved at least.
    pub fn saved_by(&self, pages: u64) -> Saved {
        Saved { faults: self.faults.up_to(pages), fetches: self.fetches.up_to(pages) }
    }

    /// How many more pages would have saved so many faults; `None`: no number of them.
    pub fn pages_to_save(&self, faults: u64) -> Option<u64> {
        self.faults.first_with(faults)
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        self.faults.metadata_bytes() + self.fetches.metadata_bytes()
    }
}

impl AddAssign<&MoreDram> for MoreDram {
    fn add_assign(&mut self, other: &MoreDram) {
        self.faults += &other.faults;
        self.fetches += &other.fetches;
    }
}

/// Counts by distance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Histogram {
    bins: Vec<u64>,
}

impl Histogram {
    fn add(&mut self, distance: u64, count: u64) {
        let bin = BINS.bin(distance);
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += count;
    }

    /// The counts of bins that lie up to this distance with all of their distances.
    fn up_to(&self, distance: u64) -> u64 {
        let whole = self.bins.iter().enumerate().take_while(|(bin, _)| BINS.range(*bin).1 <= distance);
        whole.map(|(_, count)| count).sum()
    }

    /// The smallest distance up to which there is this count.
    fn first_with(&self, count: u64) -> Option<u64> {
        let mut sum = 0;
        let bin = self.bins.iter().position(|here| {
            sum += here;
            sum >= count
        });
        if count == 0 { Some(0) } else { bin.map(|bin| BINS.range(bin).1) }
    }

    fn metadata_bytes(&self) -> u64 {
        (self.bins.capacity() * size_of::<u64>()) as u64
    }
}

impl AddAssign<&Histogram> for Histogram {
    fn add_assign(&mut self, other: &Histogram) {
        if other.bins.len() > self.bins.len() {
            self.bins.resize(other.bins.len(), 0);
        }
        self.bins.iter_mut().zip(&other.bins).for_each(|(bin, more)| *bin += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_more_dram_saves_is_what_lies_within_it() {
        let mut more = MoreDram::default();
        for (distance, count) in [(1, 10), (40, 20), (256, 5), (1000, 100)] {
            more.faults.add(distance, count);
        }
        more.fetches.add(3, 7);
        let saved = |pages| (more.saved_by(pages).faults, more.saved_by(pages).fetches);
        assert_eq!([0, 1, 39, 40, 255].map(saved), [(0, 0), (10, 0), (10, 7), (30, 7), (30, 7)]);
        // A bin of two pages begins at 256, one of four ends at 1003: what it holds is not promised to less.
        assert_eq!([256, 257, 1000, 1002, 1003].map(saved), [(30, 7), (35, 7), (35, 7), (35, 7), (135, 7)]);
        assert_eq!(
            [0, 1, 10, 11, 135, 136].map(|faults| more.pages_to_save(faults)),
            [Some(0), Some(1), Some(1), Some(40), Some(1003), None]
        );
        let mut sum = more.clone();
        sum += &more;
        assert_eq!(sum.saved_by(u64::MAX), Saved { faults: 270, fetches: 14 });
    }

    #[test]
    fn who_left_unheard_left_first() {
        let mut refaults = Refaults::default();
        refaults.grow_to(10);
        refaults.has_left(Frame(1));
        // DRAM is full: each that comes sends one away. Of the first nobody knows whether DRAM was full.
        (0..5).for_each(|come| refaults.has_come(come));
        refaults.had_left(Frame(2));
        refaults.is_back(Frame(2), Return::Fault);
        assert_eq!(refaults.more_dram().pages_to_save(1), Some(4));
        // The place that is empty now is not the one that the next takes.
        refaults.is_back(Frame(1), Return::Fetched);
        assert_eq!(refaults.more_dram().saved_by(4), Saved { faults: 1, fetches: 0 });
        assert_eq!(refaults.more_dram().saved_by(5), Saved { faults: 1, fetches: 1 });
        // A scan has told of none: they have not left after all.
        refaults.was_scanned();
        refaults.has_come(3);
        refaults.has_left(Frame(3));
        refaults.is_back(Frame(3), Return::Fault);
        assert_eq!(refaults.more_dram().saved_by(1), Saved { faults: 1, fetches: 0 });
    }
}
