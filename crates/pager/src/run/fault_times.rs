//! How long the faults of a program take that wait for a disk, measured on a sample of them.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tiermem_sys::perf::FaultTimes;

use super::peaks::Peaks;
use super::report::MeasuredTimes;
use super::target::Target;

/// Times above that count as that.
const TIME_NS_MAX: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;
/// How often is looked whether anything is paged yet.
const IDLE_PAUSE: Duration = Duration::from_millis(50);

/// The measurement, which begins when something is in swap: until then there is nothing to measure.
#[derive(Debug)]
pub struct Times {
    faults: FaultTimes,
    times_ns: Option<Histogram<u64>>,
}

impl Times {
    /// Nothing yet.
    pub fn new() -> Self {
        let times_ns = Histogram::new_with_max(TIME_NS_MAX, SIGNIFICANT_DIGITS).ok();
        Times { faults: FaultTimes::new(), times_ns }
    }

    /// Does what is due. Returns when to come again.
    pub fn step(&mut self, target: &Target, peaks: &Peaks) -> Instant {
        let now = Instant::now();
        if peaks.flash_bytes == 0 {
            return now + IDLE_PAUSE;
        }
        let Times { faults, times_ns } = self;
        let processes = || target.processes();
        faults.step(now, processes, |fault| {
            if let Some(times_ns) = times_ns {
                times_ns.saturating_record((fault.took.as_nanos() as u64).min(TIME_NS_MAX));
            }
        })
    }

    /// What was measured; `None` if nothing was.
    pub fn end(self) -> Option<MeasuredTimes> {
        let times_ns = self.times_ns.filter(|times_ns| !times_ns.is_empty())?;
        let us = |share| times_ns.value_at_quantile(share) as f64 / 1000.0;
        Some(MeasuredTimes { p50_us: us(0.5), p99_us: us(0.99), count: times_ns.len() })
    }
}
