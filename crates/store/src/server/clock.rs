//! Clock of a shard, read as seldom as possible.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time as of its last reading.
///
/// It is read once when the event loop wakes and once at the end of each batch of requests, so a batch begins
/// at the reading before it. Between readings the wall clock is derived from the monotonic one, and
/// set right at every tick, so a step of the wall clock is seen within 100 ms.
#[derive(Debug)]
pub(super) struct Clock {
    now: Instant,
    /// The wall clock at `base`.
    base_us: u64,
    base: Instant,
    /// Set by the event loop when it has slept: the last reading is too old to begin a batch with.
    woken: Arc<AtomicBool>,
}

impl Clock {
    pub(super) fn new(woken: Arc<AtomicBool>) -> Self {
        let now = Instant::now();
        Clock { now, base_us: unix_us(), base: now, woken }
    }

    /// When the present batch began: the last reading, or a new one if the loop has slept since.
    #[inline]
    pub(super) fn batch_start(&mut self) -> Instant {
        if self.woken.load(Ordering::Relaxed) {
            self.woken.store(false, Ordering::Relaxed);
            self.now = Instant::now();
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

    /// Unix time of the last reading, in microseconds.
    #[inline]
    pub(super) fn unix_us(&self) -> u64 {
        self.base_us + self.now.saturating_duration_since(self.base).as_micros() as u64
    }

    /// Sets the wall clock right.
    pub(super) fn synchronize(&mut self) {
        self.now = Instant::now();
        (self.base, self.base_us) = (self.now, unix_us());
    }
}

/// A clock set before 1970 counts as 1970.
fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
