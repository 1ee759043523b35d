//! Timing of requests: which are timed, and where their times are counted.
//!
//! Reading the clock costs a good part of a small request, so requests are timed in runs. The connection
//! reads the clock at the end of its batch anyway; within a batch it reads it only after [`RUN_REQUESTS`]
//! requests or after one that may take long. A run above a threshold is attributed to its last request.
//! Only when a threshold is below [`EACH_US`], so that single small requests matter, is each request timed.

use std::collections::VecDeque;

use super::latencies::Latencies;
use super::slowlog::Slowlog;

/// Requests between two readings of the clock within a batch.
const RUN_REQUESTS: u32 = 64;
/// Thresholds below this time each request.
const EACH_US: u64 = 1000;
/// Points of the timeline.
const POINTS: usize = 128;

/// The slow log, the latencies, and when to read the clock for them.
#[derive(Debug)]
pub struct Timing {
    /// Requests since the last reading.
    untimed: u32,
    untimed_max: u32,
    /// No threshold is below this time.
    least_ns: u64,
    /// Slow requests.
    pub slowlog: Slowlog,
    /// Latency events and histograms.
    pub latencies: Latencies,
}

impl Default for Timing {
    fn default() -> Self {
        let mut timing = Timing {
            untimed: 0,
            untimed_max: 0,
            least_ns: 0,
            slowlog: Slowlog::default(),
            latencies: Latencies::default(),
        };
        timing.update();
        timing
    }
}

impl Timing {
    /// Must be called when a threshold has changed.
    pub fn update(&mut self) {
        let slow = u64::try_from(self.slowlog.slower_than_us).ok();
        let late =
            (self.latencies.threshold_ms > 0).then_some(self.latencies.threshold_ms.saturating_mul(1000));
        let all = self.latencies.histograms.then_some(0);
        let least = [slow, late, all].into_iter().flatten().min();
        self.least_ns = least.map_or(u64::MAX, |us| us.saturating_mul(1000));
        self.untimed_max = match least {
            None => u32::MAX,
            Some(us) if us < EACH_US => 1,
            Some(_) => RUN_REQUESTS,
        };
    }

    /// Begins a batch.
    #[inline]
    pub fn begin_run(&mut self) {
        self.untimed = 0;
    }

    /// Counts a request; whether the clock is to be read now.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        self.untimed += 1;
        self.untimed >= self.untimed_max
    }

    /// Whether this time is above a threshold.
    #[inline]
    pub fn matters(&self, elapsed_ns: u64) -> bool {
        elapsed_ns >= self.least_ns
    }

    /// Ends a run that took `elapsed_ns`. Returns whether there was a run and its time is above a threshold.
    pub fn end_run(&mut self, elapsed_ns: u64) -> bool {
        std::mem::take(&mut self.untimed) > 0 && self.matters(elapsed_ns)
    }

    /// Notes that the present request may take long: the clock is read behind it.
    pub fn mark_long(&mut self) {
        self.untimed = self.untimed_max - 1;
    }
}

/// When the store had served how many requests, to tell times from counts. Fewer points the longer ago.
#[derive(Debug, Default)]
pub struct Timeline(VecDeque<(u64, u64)>);

impl Timeline {
    /// Notes that `requests` were served at a moment of the store's time, in seconds.
    pub fn note(&mut self, requests: u64, now_s: u64) {
        let last = self.0.back().copied();
        if last.is_some_and(|(served, at)| served == requests || at == now_s) {
            return;
        }
        if self.0.len() == POINTS {
            // Of the older half every other point goes.
            let mut at = 0;
            self.0.retain(|_| {
                at += 1;
                at > POINTS / 2 || at % 2 == 0
            });
        }
        self.0.push_back((requests, now_s));
    }

    /// Seconds since the store had served `requests`, at least: up to the first point behind.
    pub fn seconds_since(&self, requests: u64, now_s: u64) -> u64 {
        let at = self.0.partition_point(|(served, _)| *served < requests);
        self.0.get(at).map_or(0, |(_, then)| now_s.saturating_sub(*then))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_as_seldom_as_thresholds_allow() {
        let mut timing = Timing::default();
        timing.slowlog.slower_than_us = 10_000;
        timing.update();
        timing.begin_run();
        assert_eq!((0..100).filter(|_| timing.is_due()).count(), 100 - 63, "due from the 64th on");
        timing.slowlog.slower_than_us = 0;
        timing.update();
        timing.begin_run();
        assert!(timing.is_due() && timing.matters(0));
        timing.slowlog.slower_than_us = -1;
        timing.update();
        timing.begin_run();
        assert!(!(0..100).any(|_| timing.is_due()));
        assert!(!timing.matters(u64::MAX - 1));
        timing.latencies.threshold_ms = 5;
        timing.update();
        timing.begin_run();
        timing.mark_long();
        assert!(timing.is_due() && timing.matters(5_000_000) && !timing.matters(4_999_999));
        assert!(timing.end_run(5_000_000) && !timing.end_run(5_000_000), "there was one run");
    }

    #[test]
    fn a_timeline_tells_when_it_was() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.seconds_since(0, 50), 0);
        for second in 0..100_000 {
            timeline.note(second * 10, second);
        }
        assert!(timeline.0.len() <= POINTS);
        assert_eq!(timeline.seconds_since(999_990, 100_000), 1);
        assert_eq!(timeline.seconds_since(2_000_000, 100_000), 0);
        let told = timeline.seconds_since(500_000, 100_000);
        assert!(told <= 50_000, "{told}");
        assert!(timeline.seconds_since(999_000, 100_000) >= 90);
    }
}
