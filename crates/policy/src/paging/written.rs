//! Pages that have left DRAM by a policy and are still charged.
//!
//! A page that was paged out dirty stays in the swap cache when it has been written, until the kernel reclaims. It would do so at the group's
//! limit; but a policy keeps the program below that, and such pages would take the room of others for good: a third of DRAM after a program
//! has filled its memory. And at the limit the kernel takes pages that are in use as well, all the more as a policy that asks for references
//! makes all pages look unused.
//!
//! So the kernel is told to reclaim as much as has been written. It takes these pages first: a page whose writing has ended goes to the end of
//! its list. How much it is is not told. What no process has mapped is; but that is also what the kernel has read along with page faults. So
//! what a reclaim does not take is taken to be that.

use super::counts::Counts;

const PAGE_BYTES: u64 = 4096;
/// What was written is given up when it is one part in this number of DRAM.
const ONE_OF: u64 = 128;
/// And no more than one part in this number at once: with control groups of version 1 the limit is lowered by so much for a moment, and stays
/// there if tiermem is killed in it.
const AT_ONCE_ONE_OF: u64 = 16;
/// Of what was taken to be something else, one part in this number is tried again at each look.
const FORGET_ONE_OF: u64 = 64;

/// What of a group's memory has left and was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Of what is not mapped: what is there for another reason.
    other_bytes: u64,
}

impl Written {
    /// What the kernel is to reclaim now, if anything. `settled_bytes` lie in DRAM, are mapped by no process, and are not being written.
    pub fn due(&mut self, settled_bytes: u64, counts: Counts, dram_bytes: u64) -> Option<u64> {
        let unmapped_bytes = without_fetched_ahead(settled_bytes, counts);
        self.other_bytes = self.other_bytes.min(unmapped_bytes);
        self.other_bytes -= self.other_bytes / FORGET_ONE_OF;
        let written_bytes = unmapped_bytes - self.other_bytes;
        let is_enough = written_bytes >= (dram_bytes / ONE_OF).max(PAGE_BYTES);
        is_enough.then_some(written_bytes.min((dram_bytes / AT_ONCE_ONE_OF).max(PAGE_BYTES)))
    }

    /// So much was to be reclaimed, and was or not: `settled_bytes` before and after.
    pub fn has_reclaimed(&mut self, bytes: u64, settled_bytes: (u64, u64), counts: Counts) {
        let (before_bytes, after_bytes) =
            (without_fetched_ahead(settled_bytes.0, counts), without_fetched_ahead(settled_bytes.1, counts));
        if before_bytes.saturating_sub(after_bytes) < bytes / 2 {
            self.other_bytes = after_bytes;
        }
    }
}

/// Without what was fetched ahead and not used yet: that is needed.
fn without_fetched_ahead(settled_bytes: u64, counts: Counts) -> u64 {
    let Counts { prefetched, prefetch_used, prefetch_unused, .. } = counts;
    settled_bytes.saturating_sub(prefetched.saturating_sub(prefetch_used + prefetch_unused) * PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAM_BYTES: u64 = 128 * 100 * PAGE_BYTES;

    fn due(written: &mut Written, settled: u64, counts: Counts) -> Option<u64> {
        written.due(settled * PAGE_BYTES, counts, DRAM_BYTES).map(|bytes| bytes / PAGE_BYTES)
    }

    #[test]
    fn what_was_written_is_given_up_and_what_stays_is_something_else() {
        let (mut written, none) = (Written::default(), Counts::default());
        assert_eq!(due(&mut written, 99, none), None);
        assert_eq!(due(&mut written, 1150, none), Some(800));
        // All that it took was unmapped, and more has been written meanwhile.
        written.has_reclaimed(800 * PAGE_BYTES, (1150 * PAGE_BYTES, 500 * PAGE_BYTES), none);
        assert_eq!(due(&mut written, 500, none), Some(500));
        // It took what is mapped.
        written.has_reclaimed(500 * PAGE_BYTES, (500 * PAGE_BYTES, 400 * PAGE_BYTES), none);
        assert_eq!(due(&mut written, 450, none), None);
        assert_eq!(due(&mut written, 550, none), Some(162));
        // What was something else has gone, and is tried again in time.
        assert_eq!(due(&mut written, 64, none), None);
        assert_eq!(due(&mut written, 163, none), Some(100));
        written.other_bytes = 1000 * PAGE_BYTES;
        assert!((0..10).any(|_| due(&mut written, 1000, none).is_some()));
    }

    #[test]
    fn what_was_fetched_ahead_stays() {
        let ahead = Counts { prefetched: 90, prefetch_used: 20, prefetch_unused: 10, ..Counts::default() };
        assert_eq!(due(&mut Written::default(), 159, ahead), None);
        assert_eq!(due(&mut Written::default(), 160, ahead), Some(100));
        // More than were looked at: they have come since.
        assert_eq!(due(&mut Written::default(), 50, ahead), None);
    }
}
