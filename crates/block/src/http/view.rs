//! View of the HTTP port: all that it shows.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::engine::{CacheStatus, Engine, ExportStatus, Status};
use crate::server::{OpTimesTotals, ServerStats, TimedOp, TimesTotals};

/// Bounds of the published buckets of service times: 1 us to 69 s, so that the last one holds every request.
const SERVICE_POWERS: core::ops::RangeInclusive<u32> = 10..=36;
/// Histogram bounds of processing times: 128 ns to 1 ms, and above.
const PROCESSING_POWERS: [u32; 15] = [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 36];

/// All figures at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The program's version.
    pub version: String,
    /// Seconds since the server started.
    pub uptime_s: f64,
    /// Connections open now, including those that are negotiating.
    pub connections: u64,
    /// Connections that were let in since the start.
    pub connections_accepted: u64,
    /// Connections that were turned away since the start, as there were too many.
    pub connections_refused: u64,
    /// The cache.
    pub cache: CacheStatus,
    /// The exports, in the server's order.
    pub exports: Vec<ExportView>,
}

/// An export, and how long its requests take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExportView {
    /// The engine's figures of it, and its clients and errors.
    #[serde(flatten)]
    pub status: ExportStatus,
    /// Times of its requests since the start.
    #[serde(flatten)]
    pub times: Times,
}

/// Latency of requests since the start. Processing is look-up, allocation and planning, until a request's
/// parts are on their way to devices and stores (or wait for something): [`OpTimesTotals::processing`].
/// The other times run from a request's complete arrival until its reply is ready to be sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Processing of reads and writes: the median, nanoseconds. `None` before the first, as for all of these.
    pub processing_p50_ns: Option<f64>,
    /// 99th percentile.
    pub processing_p99_ns: Option<f64>,
    /// The mean.
    pub processing_mean_ns: Option<f64>,
    /// Reads: the median, microseconds.
    pub read_p50_us: Option<f64>,
    /// 99th percentile of reads.
    pub read_p99_us: Option<f64>,
    /// The mean of reads.
    pub read_mean_us: Option<f64>,
    /// Writes: the median, microseconds.
    pub write_p50_us: Option<f64>,
    /// 99th percentile of writes.
    pub write_p99_us: Option<f64>,
    /// The mean of writes.
    pub write_mean_us: Option<f64>,
    /// Flushes: the median, microseconds.
    pub flush_p50_us: Option<f64>,
    /// 99th percentile of flushes.
    pub flush_p99_us: Option<f64>,
    /// The mean of flushes.
    pub flush_mean_us: Option<f64>,
    /// All of them as histograms.
    pub histograms: Vec<OpHistogram>,
}

/// Times of one kind of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpHistogram {
    /// `read`, `write` or `flush`.
    pub op: String,
    /// From when a request was there as a whole until its reply was ready.
    pub service: Histogram,
    /// Looking up, allocating, planning.
    pub processing: Histogram,
}

/// A histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper bounds in microseconds, ascending, and how many requests took less, those in the buckets below among them.
    pub buckets: Vec<Bucket>,
    /// Requests.
    pub count: u64,
    /// Their times together, microseconds.
    pub sum_us: f64,
}

/// A bucket of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The upper bound in microseconds.
    pub upper_us: f64,
    /// Requests that took less.
    pub count: u64,
}

/// Counters that plots over time need: sums over all exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Counters {
    /// Reads.
    pub reads: u64,
    /// Reads that found all they asked for.
    pub read_hits: u64,
    /// Writes.
    pub writes: u64,
    /// Writes that did.
    pub write_hits: u64,
    /// Bytes read from the stores.
    pub core_read_bytes: u64,
    /// Bytes written to the stores.
    pub core_written_bytes: u64,
    /// Bytes read from the cache's device.
    pub cache_read_bytes: u64,
    /// Bytes written to it.
    pub cache_written_bytes: u64,
    /// Requests that missed something.
    pub missed_requests: u64,
    /// Their bytes.
    pub missed_request_bytes: u64,
    /// Blocks allocated.
    pub allocated_blocks: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Bytes that a store is not known to have for good.
    pub dirty_bytes: u64,
    /// For how long the oldest of these have been dirty, seconds.
    pub dirty_age_s: Option<f64>,
    /// Memory for each GiB of blocks.
    pub metadata_bytes_per_gib: Option<f64>,
    /// Bytes of blocks.
    pub held_bytes: u64,
}

impl View {
    /// Sums and states over all exports.
    pub(super) fn counters(&self) -> Counters {
        let mut sums = Counters {
            dirty_bytes: self.cache.dirty_bytes,
            metadata_bytes_per_gib: self.cache.metadata_bytes_per_gib,
            held_bytes: self.cache.held_bytes,
            ..Counters::default()
        };
        for ExportView { status, .. } in &self.exports {
            let counts = &status.counts;
            sums.reads += counts.reads;
            sums.read_hits += counts.read_hits;
            sums.writes += counts.writes;
            sums.write_hits += counts.write_hits;
            sums.core_read_bytes += counts.core_read_bytes;
            sums.core_written_bytes += counts.core_written_bytes;
            sums.cache_read_bytes += counts.cache_read_bytes;
            sums.cache_written_bytes += counts.cache_written_bytes;
            sums.missed_requests += counts.missed_requests;
            sums.missed_request_bytes += counts.missed_request_bytes;
            sums.allocated_blocks += counts.allocated_blocks;
            sums.allocated_bytes += counts.allocated_bytes;
            // Nothing is younger than none.
            let ages = [sums.dirty_age_s, status.dirty_age_s];
            sums.dirty_age_s = ages.into_iter().flatten().reduce(f64::max);
        }
        sums
    }
}

impl Times {
    fn of(totals: &OpTimesTotals) -> Self {
        let mut processing = TimesTotals::default();
        for op in [TimedOp::Read, TimedOp::Write] {
            processing.add(&totals.processing[op as usize]);
        }
        let service = |op: TimedOp| {
            let times = &totals.service[op as usize];
            [times.quantile_ns(0.5), times.quantile_ns(0.99), times.mean_ns()].map(|ns| ns.map(|ns| ns / 1e3))
        };
        let [read_p50_us, read_p99_us, read_mean_us] = service(TimedOp::Read);
        let [write_p50_us, write_p99_us, write_mean_us] = service(TimedOp::Write);
        let [flush_p50_us, flush_p99_us, flush_mean_us] = service(TimedOp::Flush);
        let histograms = TimedOp::ALL.map(|op| OpHistogram {
            op: op.name().to_owned(),
            service: Histogram::of(&totals.service[op as usize], SERVICE_POWERS),
            processing: Histogram::of(&totals.processing[op as usize], PROCESSING_POWERS),
        });
        Times {
            processing_p50_ns: processing.quantile_ns(0.5),
            processing_p99_ns: processing.quantile_ns(0.99),
            processing_mean_ns: processing.mean_ns(),
            read_p50_us,
            read_p99_us,
            read_mean_us,
            write_p50_us,
            write_p99_us,
            write_mean_us,
            flush_p50_us,
            flush_p99_us,
            flush_mean_us,
            histograms: histograms.into(),
        }
    }
}

impl Histogram {
    fn of(times: &TimesTotals, powers: impl IntoIterator<Item = u32>) -> Self {
        let bucket = |(ns, count): (u64, u64)| Bucket { upper_us: ns as f64 / 1e3, count };
        let buckets = times.below(powers).into_iter().map(bucket).collect();
        Histogram { buckets, count: times.requests, sum_us: times.sum_ns as f64 / 1e3 }
    }
}

/// Makes views.
#[derive(Clone, Debug)]
pub struct Observer {
    version: &'static str,
    started: Instant,
    stats: Arc<ServerStats>,
}

impl Observer {
    /// Of a server that starts now and counts in `stats`; `version` is the program's.
    pub fn new(version: &'static str, stats: Arc<ServerStats>) -> Self {
        Observer { version, started: Instant::now(), stats }
    }

    /// The current view.
    pub fn view(&self, engine: &Engine) -> View {
        let Status { cache, exports } = engine.status();
        let (clients, traffic) = (self.stats.connections(), self.stats.exports());
        let export = |(at, mut status): (usize, ExportStatus)| {
            status.clients = clients.iter().filter(|client| client.export == at).count() as u64;
            status.errors = traffic.get(at).map_or(0, |totals| totals.errors);
            ExportView { status, times: Times::of(&self.stats.times(at)) }
        };
        View {
            version: self.version.to_owned(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            connections: self.stats.open(),
            connections_accepted: self.stats.accepted(),
            connections_refused: self.stats.refused(),
            cache,
            exports: exports.into_iter().enumerate().map(export).collect(),
        }
    }
}
