//! Moments of this process for the times that records have.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::ring::Record;

/// All records end with what a sample would have, or a part of it.
pub(super) const SAMPLE_ID_ALL: u64 = 1 << 18;
/// The time, the last word of such an end where there is no other field behind it.
pub(super) const SAMPLE_TIME: u64 = 1 << 2;
pub(super) const USE_CLOCK: u64 = 1 << 25;
/// `CLOCK_MONOTONIC`, in the half of a word where it is.
pub(super) const MONOTONIC: u64 = 1 << 32;
pub(super) const CLOCK_AT: usize = 4;

/// A moment, and the time of records then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    origin: Instant,
    since_boot: Duration,
}

impl Moments {
    /// For records of the clock that is named here.
    pub fn new() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        let since_boot = Duration::new(now.tv_sec.max(0).cast_unsigned(), now.tv_nsec.max(0) as u32);
        Moments { origin: Instant::now(), since_boot }
    }

    /// The moment of a time.
    pub fn at(&self, time_ns: u64) -> Instant {
        self.origin + Duration::from_nanos(time_ns).saturating_sub(self.since_boot)
    }

    /// The moment of a record that ends with its time.
    pub fn of(&self, record: &Record<'_>) -> Instant {
        self.at(record.last_word())
    }
}
