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

use tiermem_policy::paging::Counts;

use super::memory_use::MemoryUse;

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
    /// What the kernel is to reclaim now, if anything.
    pub fn due(&mut self, memory: &MemoryUse, counts: Counts, dram_bytes: u64) -> Option<u64> {
        let unmapped_bytes = unmapped_bytes(memory, counts);
        self.other_bytes = self.other_bytes.min(unmapped_bytes);
        self.other_bytes -= self.other_bytes / FORGET_ONE_OF;
        let written_bytes = unmapped_bytes - self.other_bytes;
        let is_enough = written_bytes >= (dram_bytes / ONE_OF).max(PAGE_BYTES);
        is_enough.then_some(written_bytes.min((dram_bytes / AT_ONCE_ONE_OF).max(PAGE_BYTES)))
    }

    /// So much was to be reclaimed, and was or not.
    pub fn has_reclaimed(&mut self, bytes: u64, (before, after): (&MemoryUse, &MemoryUse), counts: Counts) {
        let (before_bytes, after_bytes) = (unmapped_bytes(before, counts), unmapped_bytes(after, counts));
        if before_bytes.saturating_sub(after_bytes) < bytes / 2 {
            self.other_bytes = after_bytes;
        }
    }
}

/// What no process has mapped, is not on its way, and was not fetched ahead: that is needed.
fn unmapped_bytes(memory: &MemoryUse, counts: Counts) -> u64 {
    let Counts { prefetched, prefetch_used, prefetch_unused, .. } = counts;
    let ahead_bytes = prefetched.saturating_sub(prefetch_used + prefetch_unused) * PAGE_BYTES;
    memory.unmapped_bytes.saturating_sub(ahead_bytes + memory.writing_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAM_BYTES: u64 = 128 * 100 * PAGE_BYTES;

    fn memory(unmapped: u64, writing: u64) -> MemoryUse {
        let (unmapped_bytes, writing_bytes) = (unmapped * PAGE_BYTES, writing * PAGE_BYTES);
        MemoryUse { unmapped_bytes, writing_bytes, ..MemoryUse::default() }
    }

    fn due(written: &mut Written, unmapped: u64, writing: u64, counts: Counts) -> Option<u64> {
        written.due(&memory(unmapped, writing), counts, DRAM_BYTES).map(|bytes| bytes / PAGE_BYTES)
    }

    #[test]
    fn what_was_written_is_given_up_and_what_stays_is_something_else() {
        let (mut written, none) = (Written::default(), Counts::default());
        assert_eq!(due(&mut written, 99, 0, none), None);
        assert_eq!(due(&mut written, 1150, 0, none), Some(800));
        // All that it took was unmapped, and more has been written meanwhile.
        written.has_reclaimed(800 * PAGE_BYTES, (&memory(1150, 0), &memory(500, 0)), none);
        assert_eq!(due(&mut written, 500, 0, none), Some(500));
        // It took what is mapped.
        written.has_reclaimed(500 * PAGE_BYTES, (&memory(500, 0), &memory(400, 0)), none);
        assert_eq!(due(&mut written, 450, 0, none), None);
        assert_eq!(due(&mut written, 550, 0, none), Some(162));
        // What was something else has gone, and is tried again in time.
        assert_eq!(due(&mut written, 64, 0, none), None);
        assert_eq!(due(&mut written, 163, 0, none), Some(100));
        written.other_bytes = 1000 * PAGE_BYTES;
        assert!((0..10).any(|_| due(&mut written, 1000, 0, none).is_some()));
    }

    #[test]
    fn what_is_on_its_way_or_was_fetched_ahead_stays() {
        assert_eq!(due(&mut Written::default(), 150, 100, Counts::default()), None);
        assert_eq!(due(&mut Written::default(), 200, 100, Counts::default()), Some(100));
        let ahead = Counts { prefetched: 90, prefetch_used: 20, prefetch_unused: 10, ..Counts::default() };
        assert_eq!(due(&mut Written::default(), 159, 0, ahead), None);
        assert_eq!(due(&mut Written::default(), 160, 0, ahead), Some(100));
        // More than were looked at: they have come since.
        assert_eq!(due(&mut Written::default(), 150, 200, ahead), None);
    }
}
