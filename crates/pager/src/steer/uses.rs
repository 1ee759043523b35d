//! Which granules of a program were used, look after look. What other policies would have made of that can be simulated.
//!
//! A use is known by a page fault, or by a look that found something in a granule used. Between two looks the order of uses is not known. A
//! program that runs for days has more uses than memory should be spent on; then a part of the granules, chosen by their numbers, stands for
//! all, and is halved each time that there are too many. Where few granules are left, the oldest uses are forgotten.

use std::collections::BTreeSet;

use tiermem_policy::paging::PageRange;

/// Uses that are kept: 8 MiB.
const USES_MAX: usize = 1 << 19;
/// A range that was found used as a whole and has more pages is none of granules: it could not be divided.
const RANGE_PAGES_MAX: u64 = 1 << 14;
/// Fewer granules do not stand for all.
const GRANULES_MIN: usize = 1000;
const THINNED_LOG2_MAX: u32 = 32;
const PAGE_BYTES: u64 = 4096;

/// Uses of granules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    pages_log2: u32,
    /// One granule in 2^this is kept.
    thinned_log2: u32,
    /// The number of looks before the use, and the granule.
    uses: Vec<(u32, u64)>,
    looks: u32,
    /// Granules that were used since the last look.
    open: BTreeSet<u64>,
}

impl Uses {
    /// None yet, of granules of this size.
    pub fn of(granule_bytes: u64) -> Self {
        Uses { pages_log2: (granule_bytes / PAGE_BYTES).max(1).ilog2(), ..Uses::default() }
    }

    /// A page was used.
    pub fn page(&mut self, page: u64) {
        let granule = page >> self.pages_log2;
        if self.keeps(granule) {
            self.open.insert(granule);
        }
    }

    /// A look has found these pages used.
    pub fn looked(&mut self, ranges: impl IntoIterator<Item = PageRange>) {
        let ranges = ranges.into_iter().filter(|range| range.end - range.first <= RANGE_PAGES_MAX);
        for range in ranges.filter(|range| range.first < range.end) {
            for granule in range.first >> self.pages_log2..=(range.end - 1) >> self.pages_log2 {
                if self.keeps(granule) {
                    self.open.insert(granule);
                }
            }
        }
        self.close();
    }

    /// What was used since the last look is told as if there had been one now.
    pub fn close(&mut self) {
        let look = self.looks;
        self.uses.extend(std::mem::take(&mut self.open).into_iter().map(|granule| (look, granule)));
        self.looks = self.looks.saturating_add(1);
        while self.uses.len() > USES_MAX {
            let granules: BTreeSet<u64> = self.uses.iter().map(|(_, granule)| *granule).collect();
            if granules.len() >= 2 * GRANULES_MIN && self.thinned_log2 < THINNED_LOG2_MAX {
                self.thinned_log2 += 1;
                let thinned_log2 = self.thinned_log2;
                self.uses.retain(|(_, granule)| is_kept(*granule, thinned_log2));
            } else {
                self.uses.drain(..USES_MAX / 2);
            }
        }
    }

    fn keeps(&self, granule: u64) -> bool {
        is_kept(granule, self.thinned_log2)
    }

    /// All of them: how many looks there were before, and the granule. Those between two looks are in no order.
    pub fn all(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.uses.iter().copied()
    }

    /// The size of a granule.
    pub fn granule_bytes(&self) -> u64 {
        PAGE_BYTES << self.pages_log2
    }

    /// The part of all granules that they are of.
    pub fn share(&self) -> f64 {
        0.5_f64.powi(self.thinned_log2 as i32)
    }
}

/// Whether a granule is one of those that stand for all. Numbers of neighbours are far apart when multiplied by this, the golden ratio.
fn is_kept(granule: u64, thinned_log2: u32) -> bool {
    let spread = granule.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    thinned_log2 == 0 || spread >> (64 - thinned_log2.min(THINNED_LOG2_MAX)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_granule_counts_once_between_two_looks() {
        let mut uses = Uses::of(64 << 10);
        [0, 5, 15, 16].into_iter().for_each(|page| uses.page(page));
        uses.looked([PageRange { first: 16, end: 48 }, PageRange { first: 64, end: 64 }]);
        uses.page(7);
        // It could not be divided: which part was used is not known.
        uses.looked([PageRange { first: 0, end: 1 << 20 }]);
        uses.page(100);
        uses.close();
        assert_eq!(uses.all().collect::<Vec<_>>(), [(0, 0), (0, 1), (0, 2), (1, 0), (2, 6)]);
        assert_eq!((uses.granule_bytes(), uses.share()), (64 << 10, 1.0));
    }

    #[test]
    fn where_there_are_too_many_some_stand_for_all() {
        let mut uses = Uses::of(4096);
        for look in 0..40_u64 {
            (0..50_000).for_each(|page| uses.page(page + look % 2 * 1_000_000));
            uses.looked([]);
        }
        let kept = uses.all().count();
        assert!((USES_MAX / 4..=USES_MAX).contains(&kept), "{kept}");
        // Of 2,000,000 uses that part is left, of all looks alike.
        let expected = 2_000_000.0 * uses.share();
        assert!((kept as f64 / expected - 1.0).abs() < 0.01, "{kept} of {expected}");
        // Few granules, for long: the last looks stand for all.
        let mut few = Uses::of(4096);
        for _ in 0..USES_MAX / 100 + 100 {
            (0..100).for_each(|page| few.page(page));
            few.looked([]);
        }
        assert_eq!(
            (few.share(), few.all().last().map(|(look, _)| look)),
            (1.0, Some((USES_MAX / 100 + 99) as u32))
        );
        assert!(few.all().count() <= USES_MAX && few.all().next().is_some_and(|(look, _)| look > 1000));
        let of_first = uses.all().filter(|(look, _)| *look == 0).count();
        assert_eq!(uses.all().filter(|(look, _)| *look == 38).count(), of_first);
    }
}
