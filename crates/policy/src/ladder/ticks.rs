//! Ticks: the unit of time for last uses, a fixed number of requests.

use super::item_record::LAST_MASK;
use crate::Now;

/// How many requests a tick has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticks(u64);

impl Ticks {
    /// Ticks of `requests` requests, one at least.
    pub fn of_requests(requests: u64) -> Self {
        Ticks(requests.max(1))
    }

    /// The ticks now, as a node writes them down: modulo its counter's wrap.
    #[inline]
    pub fn recency(self, now: Now) -> u32 {
        self.in_ticks(now.requests) as u32 & LAST_MASK
    }

    /// Converts requests to ticks.
    #[inline]
    pub fn in_ticks(self, requests: u64) -> u64 {
        requests / self.0
    }

    /// Converts ticks to requests.
    pub fn in_requests(self, ticks: u64) -> u64 {
        ticks * self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_over_after_its_requests() {
        let ticks = Ticks::of_requests(16);
        let at = |requests| ticks.recency(Now { requests, unix_ms: 0 });
        assert_eq!([at(0), at(15), at(16), at(16 * 5 + 1)], [0, 0, 1, 5]);
        let wrap = 16 * (u64::from(LAST_MASK) + 1);
        assert_eq!([at(wrap - 1), at(wrap), at(wrap + 16)], [LAST_MASK, 0, 1]);
        assert_eq!((ticks.in_ticks(wrap), ticks.in_requests(3)), (u64::from(LAST_MASK) + 1, 48));
        assert_eq!(Ticks::of_requests(0).in_ticks(7), 7, "a tick has a request at least");
    }
}
