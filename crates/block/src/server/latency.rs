//! Latency of requests, counted while they are served.

use std::time::Duration;

use super::counter::Counter;
use crate::nbd::Command;

/// Each power of two is divided into this number of parts, as a power of two: quantiles are right to about 3%.
const PARTS_LOG: u32 = 4;
const PARTS: usize = 1 << PARTS_LOG;
/// Times of this power of two, 69 s, and longer ones count as one.
const POWER_MAX: u32 = 36;
const BUCKETS: usize = ((POWER_MAX - PARTS_LOG + 1) as usize) << PARTS_LOG;

/// Where a time is counted.
fn bucket(ns: u64) -> usize {
    let ns = ns.min((1 << POWER_MAX) - 1);
    if ns < PARTS as u64 {
        return ns as usize;
    }
    let group = ns.ilog2() + 1 - PARTS_LOG;
    (group as usize) << PARTS_LOG | (ns >> (group - 1)) as usize & (PARTS - 1)
}

/// The shortest time that is counted there.
fn least_ns(bucket: usize) -> u64 {
    let (group, part) = (bucket >> PARTS_LOG, (bucket & (PARTS - 1)) as u64);
    if group == 0 { part } else { (PARTS as u64 + part) << (group - 1) }
}

/// Times of one kind, counted by one thread and read by any.
#[derive(Debug)]
struct Times {
    buckets: Box<[Counter]>,
    sum_ns: Counter,
}

impl Default for Times {
    fn default() -> Self {
        Times { buckets: (0..BUCKETS).map(|_| Counter::default()).collect(), sum_ns: Counter::default() }
    }
}

impl Times {
    fn record(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(ns)].add(1);
        self.sum_ns.add(ns);
    }

    fn totals(&self) -> TimesTotals {
        let counts: Vec<u64> = self.buckets.iter().map(Counter::get).collect();
        TimesTotals { requests: counts.iter().sum(), counts, sum_ns: self.sum_ns.get() }
    }
}

/// Times of one kind up to some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimesTotals {
    counts: Vec<u64>,
    /// Number of requests.
    pub requests: u64,
    /// All together, nanoseconds.
    pub sum_ns: u64,
}

impl TimesTotals {
    /// Adds those of another kind.
    pub fn add(&mut self, other: &TimesTotals) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.requests += other.requests;
        self.sum_ns += other.sum_ns;
    }

    /// The mean, nanoseconds; none without any.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.sum_ns as f64 / self.requests as f64)
    }

    /// The time that this share of them did not exceed, nanoseconds; none without any.
    pub fn quantile_ns(&self, share: f64) -> Option<f64> {
        let wanted = (share * self.requests as f64).max(1.0);
        let mut below = 0.0;
        for (bucket, count) in self.counts.iter().enumerate() {
            let count = *count as f64;
            if count > 0.0 && below + count >= wanted {
                // Those of a bucket are taken to lie evenly in it.
                let (from, to) = (least_ns(bucket) as f64, least_ns(bucket + 1) as f64);
                return Some(from + (to - from) * (wanted - below) / count);
            }
            below += count;
        }
        None
    }

    /// Number of requests shorter than two to the power of each of `powers`, nanoseconds.
    pub fn below(&self, powers: impl IntoIterator<Item = u32>) -> Vec<(u64, u64)> {
        let count = |power: u32| {
            let end = bucket((1 << power.min(POWER_MAX)) - 1) + 1;
            (1 << power, self.counts.iter().take(end).sum())
        };
        powers.into_iter().map(count).collect()
    }
}

/// The requests that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedOp {
    /// Reads.
    Read,
    /// Writes, those of zeroes included.
    Write,
    /// Flushes.
    Flush,
}

impl TimedOp {
    /// All of them.
    pub const ALL: [TimedOp; 3] = [TimedOp::Read, TimedOp::Write, TimedOp::Flush];

    fn of(command: Command) -> Option<Self> {
        match command {
            Command::Read => Some(TimedOp::Read),
            Command::Write | Command::WriteZeroes => Some(TimedOp::Write),
            Command::Flush => Some(TimedOp::Flush),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            TimedOp::Read => "read",
            TimedOp::Write => "write",
            TimedOp::Flush => "flush",
        }
    }
}

/// How long an export's requests take.
#[derive(Debug, Default)]
pub(super) struct OpTimes {
    processing: [Times; TimedOp::ALL.len()],
    service: [Times; TimedOp::ALL.len()],
}

impl OpTimes {
    /// Records a request's time in the disks.
    pub(super) fn processed(&self, command: Command, time: Duration) {
        if let Some(op) = TimedOp::of(command) {
            self.processing[op as usize].record(time);
        }
    }

    /// Records the time from a request's complete arrival to its answer.
    pub(super) fn answered(&self, command: Command, time: Duration) {
        if let Some(op) = TimedOp::of(command) {
            self.service[op as usize].record(time);
        }
    }

    pub(super) fn totals(&self) -> OpTimesTotals {
        OpTimesTotals {
            processing: self.processing.each_ref().map(Times::totals),
            service: self.service.each_ref().map(Times::totals),
        }
    }
}

/// Latency of an export's requests up to some moment, by [`TimedOp`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpTimesTotals {
    /// From when a request was there as a whole until its parts were on their way to devices and stores, or waited for something: looking
    /// up, allocating, planning; and copying, where memory has what is read.
    pub processing: [TimesTotals; TimedOp::ALL.len()],
    /// From when it was there as a whole until its reply was ready to be sent.
    pub service: [TimesTotals; TimedOp::ALL.len()],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_its_bucket() {
        for ns in (0..5000).chain((12..64).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]))
        {
            let at = bucket(ns);
            assert!(at < BUCKETS, "{ns}");
            let ns = ns.min((1 << POWER_MAX) - 1);
            assert!(least_ns(at) <= ns && ns < least_ns(at + 1), "{ns} in {at}");
            assert!(least_ns(at + 1) - least_ns(at) <= 1 + least_ns(at) / PARTS as u64, "{ns}");
        }
    }

    #[test]
    fn quantiles_and_counts_are_those_of_the_times() {
        let times = Times::default();
        assert_eq!((times.totals().quantile_ns(0.5), times.totals().mean_ns()), (None, None));
        (1..=1000).for_each(|us| times.record(Duration::from_micros(us)));
        let totals = times.totals();
        for (share, ns) in [(0.5, 500_000.0), (0.99, 990_000.0), (1.0, 1_000_000.0)] {
            let found = totals.quantile_ns(share).unwrap();
            assert!((found / ns - 1.0).abs() < 0.04, "{share}: {found}");
        }
        assert_eq!(totals.mean_ns(), Some(500_500.0));
        assert_eq!(totals.below([10, 13, 36]), [(1024, 1), (8192, 8), (1 << 36, 1000)]);
        let mut both = totals.clone();
        both.add(&totals);
        assert_eq!((both.requests, both.mean_ns()), (2000, totals.mean_ns()));
    }
}
