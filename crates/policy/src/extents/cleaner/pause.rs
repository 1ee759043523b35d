//! Pause: for how long a store that failed is left alone.

/// At first, and at most; each failure in a row doubles it.
const PAUSE_NS: u64 = 100_000_000;
const PAUSE_NS_MAX: u64 = 30_000_000_000;

/// When a store that failed is tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pause {
    until_ns: u64,
    /// Failures in a row.
    failures: u32,
}

impl Pause {
    /// The store failed. What failed during the pause already says nothing new.
    pub fn failed(&mut self, now_ns: u64) {
        if !self.is_on(now_ns) {
            let wait_ns = (PAUSE_NS << self.failures.min(20)).min(PAUSE_NS_MAX);
            self.failures += 1;
            self.until_ns = now_ns.saturating_add(wait_ns);
        }
    }

    /// The store did what it was asked to do: the next pause is short again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Whether the store is left alone.
    pub fn is_on(&self, now_ns: u64) -> bool {
        self.until_ns > now_ns
    }

    /// Until when.
    pub fn until_ns(&self) -> u64 {
        self.until_ns
    }
}
