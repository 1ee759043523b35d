//! What has happened, counted.

use std::ops::AddAssign;

/// Counts in pages since the machine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Faults for which the kernel had to read a page, and no fetch of it was under way.
    pub faults: u64,
    /// Pages that were touched for the first time, or after they were discarded.
    pub first_touches: u64,
    /// Pages that were used after they were paged out, and had not to be read: they were still in the swap cache.
    pub returned: u64,
    /// Pages sent down.
    pub paged_out: u64,
    /// Those of them that went to another tier of memory.
    pub moved_down: u64,
    /// Pages that went from one tier of memory to a faster one.
    pub moved_up: u64,
    /// Pages that were to be sent down and stayed.
    pub stayed: u64,
    /// Pages that the kernel took by itself.
    pub kernel_evicted: u64,
    /// Pages fetched ahead.
    pub prefetched: u64,
    /// Those of them that were used, late ones included.
    pub prefetch_used: u64,
    /// Those that were used while their fetch was under way.
    pub prefetch_late: u64,
    /// Those that left again without a use.
    pub prefetch_unused: u64,
    /// Pages that left behind a sweep.
    pub dropped_behind: u64,
    /// Pages that were sent away to learn when they are used next.
    pub probed: u64,
    /// Faults for pages that had to leave for a page that was fetched ahead.
    pub polluted: u64,
    /// Events for pages beyond the number of frames that there can be.
    pub untracked: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        let Counts {
            faults,
            first_touches,
            returned,
            paged_out,
            moved_down,
            moved_up,
            stayed,
            kernel_evicted,
            prefetched,
            prefetch_used,
            prefetch_late,
            prefetch_unused,
            dropped_behind,
            probed,
            polluted,
            untracked,
        } = other;
        self.faults += faults;
        self.first_touches += first_touches;
        self.returned += returned;
        self.paged_out += paged_out;
        self.moved_down += moved_down;
        self.moved_up += moved_up;
        self.stayed += stayed;
        self.kernel_evicted += kernel_evicted;
        self.prefetched += prefetched;
        self.prefetch_used += prefetch_used;
        self.prefetch_late += prefetch_late;
        self.prefetch_unused += prefetch_unused;
        self.dropped_behind += dropped_behind;
        self.probed += probed;
        self.polluted += polluted;
        self.untracked += untracked;
    }
}

impl Counts {
    /// The share of the pages fetched ahead that were used; 0 without any, as all of these.
    pub fn accuracy(&self) -> f64 {
        share(self.prefetch_used, self.prefetched)
    }

    /// The share of the pages needed from below that were fetched ahead.
    pub fn coverage(&self) -> f64 {
        share(self.prefetch_used, self.prefetch_used + self.faults)
    }

    /// The share of the used ones that were late.
    pub fn lateness(&self) -> f64 {
        share(self.prefetch_late, self.prefetch_used)
    }

    /// The share of the faults that prefetching caused: their page had left to make room for one that was fetched ahead.
    ///
    /// With watermarks pages leave in steps and for no page in particular. Then each page that was fetched ahead into DRAM that
    /// has less than the high watermark free makes the next page that leaves one that left for it.
    pub fn pollution(&self) -> f64 {
        share(self.polluted, self.faults)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
