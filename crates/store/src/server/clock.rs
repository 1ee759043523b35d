//! Clock of a shard, read as seldom as possible.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::store_time::StartTime;

/// Time as of its last reading.
///
/// It is read once when the event loop wakes and once at the end of each batch of requests, so a batch begins
/// at the reading before it. Between wakings the store's time is derived from the monotonic clock, which stands still while the
/// machine is suspended: the first reading after that is one of a waking.
#[derive(Debug)]
pub(super) struct Clock {
    start: StartTime,
    now: Instant,
    /// The store's time at `base`.
    base_us: u64,
    base: Instant,
    /// Set by the event loop when it has slept: the last reading is too old to begin a batch with.
    woken: Arc<AtomicBool>,
}

impl Clock {
    pub(super) fn new(start: StartTime, woken: Arc<AtomicBool>) -> Self {
        let base_us = start.store_us();
        let now = Instant::now();
        Clock { start, now, base_us, base: now, woken }
    }

    /// When the present batch began: the last reading, or a new one if the loop has slept since.
    #[inline]
    pub(super) fn batch_start(&mut self) -> Instant {
        if self.woken.load(Ordering::Relaxed) {
            self.woken.store(false, Ordering::Relaxed);
            self.synchronize();
        }
        self.now
    }

    /// Reads the clock at the end of a batch.
    #[inline]
    pub(super) fn batch_end(&mut self) -> Instant {
        self.now = Instant::now();
        self.now
    }

    /// How long ago the last reading was: reads the clock, and leaves the reading as it was.
    pub(super) fn since_reading(&self) -> Duration {
        self.now.elapsed()
    }

    /// The store's time at the last reading, in Unix microseconds.
    #[inline]
    pub(super) fn store_us(&self) -> u64 {
        self.base_us + self.now.saturating_duration_since(self.base).as_micros() as u64
    }

    /// Reads the clock, and counts a suspension in.
    #[inline]
    pub(super) fn synchronize(&mut self) -> Instant {
        let read_us = self.start.store_us();
        self.advance(read_us, Instant::now());
        self.now
    }

    /// `read_us` was the store's time just before `now`. Should the thread have stood still in between, it is too little, and time must not
    /// go back: what is derived is right then.
    fn advance(&mut self, read_us: u64, now: Instant) {
        self.now = now;
        (self.base_us, self.base) = (self.store_us().max(read_us), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspension_counts_and_time_does_not_go_back() {
        let mut clock = Clock::new(StartTime::now(), Arc::default());
        let (base, base_us) = (clock.base, clock.base_us);
        let after = |ms| base + Duration::from_millis(ms);
        clock.advance(base_us + 10_000, after(10));
        assert_eq!(clock.store_us(), base_us + 10_000);
        // Between the two readings the thread stood still.
        clock.advance(base_us + 11_000, after(20));
        assert_eq!(clock.store_us(), base_us + 20_000);
        // The machine was suspended for an hour.
        clock.advance(base_us + 3_600_030_000, after(30));
        assert_eq!(clock.store_us(), base_us + 3_600_030_000);
        clock.now = after(31);
        assert_eq!(clock.store_us(), base_us + 3_600_031_000);
    }
}
