//! When pages are scanned: as often as pays.
//!
//! A scan tells which pages the kernel has brought and taken by itself, which whoever fetches ahead has to know. It looks at all pages, so
//! it takes the longer the more there are; and a program that is short of DRAM may be short of processor time as well. So scans take one
//! hundredth of the time, and more where fetching ahead saves more than that: a page that was fetched and used pays for as long as a fault
//! takes of a processor.

use std::time::{Duration, Instant};

/// The least time between two.
const APART_MIN: Duration = Duration::from_millis(100);
/// One part in this number of the time may be taken, whatever it brings.
const SHARE_MIN: u32 = 100;
/// And one in this number at most, also where a policy chooses who leaves: it goes by what scans find.
const SHARE_MAX: u32 = 20;
/// What a fetched page that is used pays: a fault from flash takes 5 to 10 us of a processor.
const PAID_BY_PAGE: Duration = Duration::from_micros(5);

/// How long the last scan took, and what had been used by then.
#[derive(Debug)]
pub struct ScanPace {
    last: Option<Instant>,
    took: Duration,
    used_pages: u64,
}

impl ScanPace {
    /// The first one is due at once.
    pub fn new() -> Self {
        ScanPace { last: None, took: Duration::ZERO, used_pages: 0 }
    }

    /// Has the next one due at once: what is known does not hold any more.
    pub fn hurry(&mut self) {
        self.last = None;
    }

    /// Whether one is due. `used_pages` is how many pages were used in all that had been fetched ahead; `is_choosing` tells whether a policy
    /// chooses who leaves.
    pub fn is_due(&self, now: Instant, used_pages: u64, is_choosing: bool) -> bool {
        let Some(last) = self.last else { return true };
        let elapsed = now.saturating_duration_since(last);
        if elapsed < APART_MIN {
            return false;
        }
        let most = elapsed / SHARE_MAX;
        let used_pages = used_pages.saturating_sub(self.used_pages).min(u64::from(u32::MAX)) as u32;
        let earned = PAID_BY_PAGE.saturating_mul(used_pages).max(elapsed / SHARE_MIN);
        self.took <= if is_choosing { most } else { earned.min(most) }
    }

    /// One has ended, which took so much of a processor.
    pub fn has_scanned(&mut self, now: Instant, took: Duration, used_pages: u64) {
        *self = ScanPace { last: Some(now), took, used_pages };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_millis(10);

    fn due_after(used_pages: u64, is_choosing: bool) -> Duration {
        let begun = Instant::now();
        let mut pace = ScanPace::new();
        assert!(pace.is_due(begun, 0, is_choosing));
        pace.has_scanned(begun, TOOK, 1000);
        let is_due =
            |ms: &u64| pace.is_due(begun + Duration::from_millis(*ms), 1000 + used_pages, is_choosing);
        Duration::from_millis((0..5000).find(is_due).unwrap())
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
        let now = Instant::now();
        let mut pace = ScanPace::new();
        pace.has_scanned(now, Duration::from_micros(10), 0);
        assert!(!pace.is_due(now + APART_MIN / 2, 0, true));
        assert!(pace.is_due(now + APART_MIN, 0, false));
        pace.hurry();
        assert!(pace.is_due(now, 0, false));
    }
}
