//! Figures of a replay.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::expected_content::Mismatch;

/// The longest time in the histogram: an hour.
const TIME_NS_MAX: u64 = 3_600_000_000_000;

/// Times in nanoseconds, to three digits. It grows with the longest one: there are three for each export, and perhaps a thousand exports.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u32>);

impl Default for Times {
    fn default() -> Self {
        let Ok(histogram) = Histogram::new(3) else {
            unreachable!("three digits are within the histogram's limits")
        };
        Times(histogram)
    }
}

impl Times {
    pub(super) fn record(&mut self, time: Duration) {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // It grows as far as this at need, so there is a place for it.
        let _ = self.0.record(time_ns.min(TIME_NS_MAX));
    }

    fn add(&mut self, other: &Times) {
        // It grows at need, so everything has its place.
        let _ = self.0.add(&other.0);
    }

    /// Number of requests.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The mean in microseconds; not a number when there are none.
    pub fn mean_us(&self) -> f64 {
        if self.0.is_empty() { f64::NAN } else { self.0.mean() / 1e3 }
    }

    /// Quantile: the time that this share of them, from 0 to 1,
    /// does not exceed, in microseconds; NaN when there are none.
    pub fn quantile_us(&self, share: f64) -> f64 {
        if self.0.is_empty() { f64::NAN } else { self.0.value_at_quantile(share) as f64 / 1e3 }
    }
}

/// Reads, or writes.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Requests that were done, each counted once however it was cut.
    pub requests: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// From when a request was sent, or, in a timed replay, from when it was due, until all of its reply was read.
    pub latency: Times,
}

/// Figures of one export, without warm-up except for errors.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Reads that were done.
    pub reads: Side,
    /// Writes that were done.
    pub writes: Side,
    /// Delay between the due time of each request and its sending; only in a timed replay.
    pub lateness: Times,
    /// Requests that were made larger, to begin and end at sectors or at the export's least block.
    pub widened: u64,
    /// Requests that reached beyond the export's end, and were sent elsewhere.
    pub wrapped: u64,
    /// Requests that failed, also while warming up.
    pub errors: u64,
    /// Sectors that held something else than they must, each time they were read, also while warming up.
    pub mismatches: u64,
}

impl Figures {
    /// Requests that were done.
    pub fn requests(&self) -> u64 {
        self.reads.requests + self.writes.requests
    }

    /// Bytes of them.
    pub fn bytes(&self) -> u64 {
        self.reads.bytes + self.writes.bytes
    }

    /// Adds those of another export.
    pub fn add(&mut self, other: &Figures) {
        for (side, more) in [(&mut self.reads, &other.reads), (&mut self.writes, &other.writes)] {
            side.requests += more.requests;
            side.bytes += more.bytes;
            side.latency.add(&more.latency);
        }
        self.lateness.add(&other.lateness);
        self.widened += other.widened;
        self.wrapped += other.wrapped;
        self.errors += other.errors;
        self.mismatches += other.mismatches;
    }
}

/// Something that went wrong with one request, or with a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The export's number: its place among the targets.
    pub export: usize,
    /// The trace's volume.
    pub volume: u32,
    /// The operation, `read` or `write`.
    pub op: &'static str,
    /// Its first byte in the export.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// The fault.
    pub what: Wrong,
}

/// Kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The server refused it; its words.
    Refused(String),
    /// The first of its sectors that hold something else than they must.
    Differs(Mismatch),
}

/// How a replay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All of the trace was sent and answered.
    Whole,
    /// It was asked to stop.
    Stopped,
    /// A connection broke or a server fell silent, with requests in flight.
    Broken {
        /// Requests that were sent and not answered.
        under_way: usize,
        /// Which export, and why.
        why: String,
    },
}

/// Result of a replay.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// For each target, in their order.
    pub exports: Vec<Figures>,
    /// Connections to each of them.
    pub connections: Vec<usize>,
    /// From the first measured request to the last answer.
    pub elapsed: Duration,
    /// Records that neither read nor wrote any bytes.
    pub skipped: u64,
    /// The first few things that went wrong.
    pub complaints: Vec<Complaint>,
    /// How it ended.
    pub end: End,
}

impl Outcome {
    /// All exports together.
    pub fn total(&self) -> Figures {
        let mut total = Figures::default();
        self.exports.iter().for_each(|export| total.add(export));
        total
    }

    /// Whether all of the trace, or as much as was asked for, was done without anything going wrong.
    pub fn is_clean(&self) -> bool {
        let good = self.exports.iter().all(|export| export.errors == 0 && export.mismatches == 0);
        good && !matches!(self.end, End::Broken { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_any_length_have_their_place_and_add_up() {
        let mut times = Times::default();
        assert!(times.mean_us().is_nan() && times.quantile_us(0.5).is_nan());
        for ns in [0, 1_000, 2_000, 3_000] {
            times.record(Duration::from_nanos(ns));
        }
        assert_eq!((times.count(), times.quantile_us(0.5).round()), (4, 1.0));
        let mut more = Times::default();
        more.record(Duration::MAX);
        more.add(&times);
        assert_eq!(more.count(), 5);
        let longest = more.quantile_us(1.0) / (TIME_NS_MAX as f64 / 1e3);
        assert!((0.999..1.001).contains(&longest), "{longest}");
    }
}
