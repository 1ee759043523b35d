//! Whom the kernel's own reclaim takes from: pages of files, or pages that it writes to swap.
//!
//! The kernel weighs both by what their loss has cost so far: it counts each page that it had to read again, of either kind. A page that
//! was fetched ahead counts like one that the program waited for. So whoever fetches ahead drives the kernel to take pages of files
//! instead, the program's own code among them, and for those the program does wait.
//!
//! `swappiness` takes that back. With it at `s` the kernel scans pages without a file in proportion to `s / cost` and pages of files in
//! proportion to `(200 - s) / cost`, each with its own cost; at 100 both costs count the same, as they do where swap and files lie on equal
//! devices. If of the pages that came from swap the program waited for a part `w`, the cost of swap is too high by `1 / w`, and
//! `s = 200 / (1 + w)` makes up for it.

use super::counts::Counts;

/// What is advised for the kernel's `swappiness`, from 100 on.
#[derive(Clone, Copy, Debug, Default)]
pub struct SwappinessAdvice {
    before: Counts,
    /// Pages that the program waited for, and all that came; older ones weigh less.
    waited_pages: u64,
    pages: u64,
}

/// At 200 the kernel takes no page of a file any more, however cold.
const MOST: u64 = 180;
/// Fewer pages say nothing.
const PAGES_MIN: u64 = 1000;

impl SwappinessAdvice {
    /// What is best by these counts. It is asked for again and again, and weighs what happened in between twice as much as what was before.
    pub fn by(&mut self, counts: Counts) -> u32 {
        let faults = counts.faults.saturating_sub(self.before.faults);
        let fetched = counts.prefetched.saturating_sub(self.before.prefetched);
        self.before = counts;
        self.waited_pages = self.waited_pages / 2 + faults;
        self.pages = self.pages / 2 + faults + fetched;
        if self.pages < PAGES_MIN {
            return 100;
        }
        (200 * self.pages / (self.pages + self.waited_pages)).clamp(100, MOST) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(faults: u64, prefetched: u64) -> Counts {
        Counts { faults, prefetched, ..Counts::default() }
    }

    #[test]
    fn the_less_is_waited_for_the_higher_it_is() {
        let by = |faults, prefetched| SwappinessAdvice::default().by(counts(faults, prefetched));
        assert_eq!([by(0, 0), by(500, 499), by(1000, 0)], [100, 100, 100]);
        // Of 4000 pages it waited for 1000: 200 / 1.25.
        assert_eq!(by(1000, 3000), 160);
        assert_eq!([by(0, 4000), by(1, 1 << 40)], [180, 180]);
    }

    #[test]
    fn it_follows_what_happens_now() {
        let mut advice = SwappinessAdvice::default();
        assert_eq!(advice.by(counts(0, 100_000)), 180);
        let mut sum = counts(0, 100_000);
        let mut last = 180;
        for _ in 0..8 {
            sum.faults += 50_000;
            let now = advice.by(sum);
            assert!(now <= last);
            last = now;
        }
        assert_eq!(last, 100);
        // Nothing happens: what was known is forgotten.
        assert_eq!((0..20).map(|_| advice.by(sum)).last(), Some(100));
        // Another core has counted from the beginning: nothing has happened since.
        assert_eq!(advice.by(Counts::default()), 100);
    }
}
