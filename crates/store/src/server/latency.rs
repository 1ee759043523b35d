//! Latency of requests in the server.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::shards::shard_stats::Times;

/// The longest time told apart, in nanoseconds; longer ones count as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Bounds of the published buckets: 1 us to 69 s, so that the last one holds every request.
const BUCKET_POWERS: core::ops::RangeInclusive<u32> = 10..=36;

/// Service times of one period.
///
/// A request's service time runs from the moment the event loop learned that its batch had arrived (or finished
/// the batch before it) to the moment the batch's replies were handed to the kernel. All requests of a batch
/// share it. The time a request spends in sockets' buffers is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencySummary {
    /// Requests counted.
    pub requests: u64,
    /// Half of the requests took at most this long; nanoseconds, as all that follow.
    pub p50_ns: u64,
    /// 90%.
    pub p90_ns: u64,
    /// 99%.
    pub p99_ns: u64,
    /// 99.9%.
    pub p999_ns: u64,
    /// The slowest.
    pub max_ns: u64,
    /// The mean.
    pub mean_ns: u64,
    /// Upper bounds (powers of two, nanoseconds) and the number of requests up to each, for histograms.
    pub buckets: Vec<(u64, u64)>,
}

/// Service times since the start and since the last summary.
#[derive(Debug)]
pub(super) struct Latency {
    since_start: Histogram<u64>,
    recent: Histogram<u64>,
}

impl Latency {
    pub(super) fn new() -> Self {
        // Two significant digits.
        let histogram = || Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2);
        let (Ok(since_start), Ok(recent)) = (histogram(), histogram()) else {
            unreachable!("bounds 1..60 s with two digits are valid")
        };
        Latency { since_start, recent }
    }

    #[inline]
    pub(super) fn record(&mut self, ns: u64, requests: u64) {
        self.recent.saturating_record_n(ns, requests);
    }

    /// Ends a period: the times since the start and since the last call.
    pub(super) fn end_period(&mut self) -> Times {
        // Both have the same bounds, so adding does not fail.
        let _ = self.since_start.add(&self.recent);
        let recent = self.recent.clone();
        self.recent.reset();
        (self.since_start.clone(), recent)
    }
}

/// Summaries of several shards' times: since the start, and recent ones.
pub(super) fn summarize(times: Times, others: Vec<Times>) -> (LatencySummary, LatencySummary) {
    let (mut since_start, mut recent) = times;
    for (other_since_start, other_recent) in others {
        // All have the same bounds.
        let _ = since_start.add(other_since_start);
        let _ = recent.add(other_recent);
    }
    (summary(&since_start), summary(&recent))
}

fn summary(histogram: &Histogram<u64>) -> LatencySummary {
    let mut buckets: Vec<(u64, u64)> = BUCKET_POWERS.map(|power| (1 << power, 0)).collect();
    for recorded in histogram.iter_recorded() {
        let (ns, count) = (recorded.value_iterated_to(), recorded.count_since_last_iteration());
        let first = buckets.partition_point(|(bound, _)| *bound < ns);
        buckets[first..].iter_mut().for_each(|(_, sum)| *sum += count);
    }
    LatencySummary {
        requests: histogram.len(),
        p50_ns: histogram.value_at_quantile(0.5),
        p90_ns: histogram.value_at_quantile(0.9),
        p99_ns: histogram.value_at_quantile(0.99),
        p999_ns: histogram.value_at_quantile(0.999),
        max_ns: histogram.max(),
        mean_ns: histogram.mean() as u64,
        buckets,
    }
}
