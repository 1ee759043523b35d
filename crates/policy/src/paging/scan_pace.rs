//! When pages are scanned: as often as pays.
//!
//! A scan tells which pages the kernel has brought and taken by itself, which whoever fetches ahead has to know. It looks at all pages, so
//! it takes the longer the more there are; and a program that is short of DRAM may be short of processor time as well. So scans take one
//! hundredth of the time, and more where fetching ahead saves more than that: a page that was fetched and used pays for as long as a fault
//! takes of a processor.

/// The least time between two.
const APART_MIN_NS: u64 = 100_000_000;
/// One part in this number of the time may be taken, whatever it brings.
const SHARE_MIN: u64 = 100;
/// And one in this number at most, also where a policy chooses who leaves: it goes by what scans find.
const SHARE_MAX: u64 = 20;
/// What a fetched page that is used pays: a fault from flash takes 5 to 10 us of a processor.
const PAID_BY_PAGE_NS: u64 = 5_000;

/// When the last scan was, how long it took, and what had been used by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanPace {
    /// `None`: the next one is due at once.
    at_ns: Option<u64>,
    took_ns: u64,
    used_pages: u64,
}

impl ScanPace {
    /// Has the next one due at once: what is known does not hold any more.
    pub fn hurry(&mut self) {
        self.at_ns = None;
    }

    /// Whether one is due. `used_pages` is how many pages were used in all that had been fetched ahead; `is_choosing` tells whether a policy
    /// chooses who leaves.
    pub fn is_due(&self, now_ns: u64, used_pages: u64, is_choosing: bool) -> bool {
        let Some(at_ns) = self.at_ns else { return true };
        let elapsed_ns = now_ns.saturating_sub(at_ns);
        if elapsed_ns < APART_MIN_NS {
            return false;
        }
        let most_ns = elapsed_ns / SHARE_MAX;
        let used_pages = used_pages.saturating_sub(self.used_pages);
        let earned_ns = PAID_BY_PAGE_NS.saturating_mul(used_pages).max(elapsed_ns / SHARE_MIN);
        self.took_ns <= if is_choosing { most_ns } else { earned_ns.min(most_ns) }
    }

    /// One that ended then has taken so much of a processor.
    pub fn has_scanned(&mut self, at_ns: u64, took_ns: u64, used_pages: u64) {
        *self = ScanPace { at_ns: Some(at_ns), took_ns, used_pages };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const TOOK: u64 = 10 * MS;

    fn due_after(used_pages: u64, is_choosing: bool) -> u64 {
        let begun = 77;
        let mut pace = ScanPace::default();
        assert!(pace.is_due(begun, 0, is_choosing));
        pace.has_scanned(begun, TOOK, 1000);
        let is_due = |ms: &u64| pace.is_due(begun + ms * MS, 1000 + used_pages, is_choosing);
        (0..5000).find(is_due).unwrap() * MS
    }

    #[test]
    fn scans_take_a_hundredth_and_up_to_a_twentieth_where_fetching_pays() {
        assert_eq!(due_after(0, false), TOOK * SHARE_MIN);
        assert_eq!(due_after(1999, false), TOOK * SHARE_MIN);
        assert_eq!(due_after(2000, false), TOOK * SHARE_MAX);
        assert_eq!(due_after(u64::MAX - 1000, false), TOOK * SHARE_MAX);
        assert_eq!(due_after(0, true), TOOK * SHARE_MAX);
    }

    #[test]
    fn a_scan_may_be_asked_for_and_is_soon_over_where_there_are_few_pages() {
        let mut pace = ScanPace::default();
        pace.has_scanned(0, 10_000, 0);
        assert!(!pace.is_due(APART_MIN_NS / 2, 0, true));
        assert!(pace.is_due(APART_MIN_NS, 0, false));
        pace.hurry();
        assert!(pace.is_due(0, 0, false));
    }
}
