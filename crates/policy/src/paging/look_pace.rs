//! When granules are looked at.
//!
//! A look tells which granules were used since the last one, and forgets it. So it has to come while some of them were not used yet:
//! where all were, it tells nothing. How soon that is depends on the program, but a program that uses much of its memory between two looks
//! also brings much of it to DRAM. Simulated with 80% of the touches to 30% of 65,536 pages, half of which fit, and granules of 256 KiB: ARC
//! has 47 thousand page faults with 44 looks while as many pages come as DRAM has, 49 thousand with 22, and 73 thousand with 7, which is
//! as many as with none. With granules of 128 KiB it has 45 thousand with 11 looks.
//!
//! A look takes time: the kernel goes through all pages, and the processor has to set anew each bit that was cleared. So looks have
//! a share of one processor, and no more.

/// One look for so many parts of DRAM that have come.
const LOOKS_OF_DRAM: u64 = 32;
/// One part in this number of one processor may be taken.
const SHARE: u64 = 10;
/// In a pool pages change places by how often they are used also where none comes, so there is one look in this time at least.
const POOL_APART_NS: u64 = 1_000_000_000;

/// When the next look is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookPace {
    /// When the last one ended, what it took, and how many pages had come by then.
    last: Option<(u64, u64, u64)>,
    is_of_pool: bool,
}

impl LookPace {
    /// For the pages of a pool.
    pub fn of_pool() -> Self {
        LookPace { is_of_pool: true, ..LookPace::default() }
    }

    /// Whether one is due. `come_pages` is how many pages have come to DRAM in all.
    pub fn is_due(&self, now_ns: u64, come_pages: u64, dram_pages: u32) -> bool {
        let Some((at_ns, took_ns, before_pages)) = self.last else { return true };
        let elapsed_ns = now_ns.saturating_sub(at_ns);
        let has_time = elapsed_ns >= took_ns.saturating_mul(SHARE);
        let has_come = come_pages.saturating_sub(before_pages) >= u64::from(dram_pages) / LOOKS_OF_DRAM;
        has_time && (has_come || self.is_of_pool && elapsed_ns >= POOL_APART_NS)
    }

    /// One that ended then has taken so much of a processor, for tiermem and for the program.
    pub fn has_looked(&mut self, at_ns: u64, took_ns: u64, come_pages: u64) {
        self.last = Some((at_ns, took_ns, come_pages));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_due_for_each_part_of_dram_that_has_come_and_takes_a_tenth_of_the_time() {
        let mut pace = LookPace::default();
        assert!(pace.is_due(0, 0, 1600));
        pace.has_looked(1000, 10, 50);
        assert!(pace.is_due(1100, 100, 1600));
        assert!(!pace.is_due(1099, 100, 1600) && !pace.is_due(1100, 99, 1600));
        // A program that needs nothing is left alone.
        assert!(!pace.is_due(u64::MAX, 50, 1600));
        pace.has_looked(0, u64::MAX, 0);
        assert!(!pace.is_due(1 << 60, 1 << 40, 1600));
    }

    #[test]
    fn a_pool_is_looked_at_where_nothing_comes_as_well() {
        let mut pace = LookPace::of_pool();
        pace.has_looked(0, 10, 50);
        assert!(pace.is_due(100, 100, 1600) && !pace.is_due(POOL_APART_NS - 1, 50, 1600));
        assert!(pace.is_due(POOL_APART_NS, 50, 1600));
        pace.has_looked(0, POOL_APART_NS, 50);
        assert!(!pace.is_due(POOL_APART_NS, 50, 1600));
    }
}
