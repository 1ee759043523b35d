//! View of the HTTP port: all that it shows except whether the server is ready.

use serde::Serialize;

use crate::engine::EngineStats;
use crate::server::Snapshot;
use crate::shards::shard_stats::SaveFigures;
use crate::stats::{Activity, ServerStats};

/// All figures at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct View {
    /// The program's version.
    pub version: &'static str,
    /// Seconds since the server started; also the time by which rates are worked out, so it must come from the
    /// same moment as the counters.
    pub uptime_s: f64,
    /// Connections open now.
    pub connections: u64,
    /// Requests answered since the start.
    pub commands_total: u64,
    /// Bytes read from clients since the start.
    pub net_input_bytes: u64,
    /// Bytes written to clients since the start.
    pub net_output_bytes: u64,
    /// The engine's figures.
    pub engine: EngineStats,
    /// The server's: connections, buffers, refusals.
    pub server: ServerStats,
    /// Service times of requests.
    pub latency: Latency,
    /// Which commands run and fail, what was slow lately, and which clients hold most.
    pub activity: Activity,
    /// The snapshot file; `None`: there is none.
    pub snapshots: Option<SnapshotFile>,
}

/// How it stands with the snapshot file.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SnapshotFile {
    /// Snapshots written since the start.
    pub written: u64,
    /// Seconds since the last one was written; `None`: none was since the start.
    pub age_s: Option<u64>,
    /// Values written since then.
    pub changes: u64,
    /// Whether the last attempt failed.
    pub failed: bool,
    /// For how many seconds one has been under way in the background; `None`: none is.
    pub running_s: Option<u64>,
    /// Seconds that the last one in the background took.
    pub took_s: Option<u64>,
}

impl SnapshotFile {
    fn of(saves: &SaveFigures, now_s: u64) -> Self {
        SnapshotFile {
            written: saves.saves,
            age_s: (saves.saves > 0).then(|| now_s.saturating_sub(saves.last_save_s)),
            changes: saves.changes,
            failed: saves.last_failed,
            running_s: saves.running_since_s.map(|since_s| now_s.saturating_sub(since_s)),
            took_s: saves.last_background_s,
        }
    }
}

/// Latency of requests.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Latency {
    /// Upper bounds, ascending, and the number of requests since the start up to each.
    pub buckets: Vec<Bucket>,
    /// Requests since the start.
    pub count: u64,
    /// Time of all requests since the start together, in microseconds.
    pub sum_us: f64,
    /// Half of the requests of the last period (about a second) took at most this long; microseconds. 0 without
    /// requests.
    pub p50_us: f64,
    /// 99% of them.
    pub p99_us: f64,
    /// 99.9% of them.
    pub p999_us: f64,
}

/// One bucket of a histogram.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Bucket {
    /// The upper bound in microseconds.
    pub upper_us: f64,
    /// Requests that took at most `upper_us`, including those in lower buckets.
    pub count: u64,
}

impl View {
    /// The view of a shard's snapshot; `version` is the program's.
    pub fn of(snapshot: &Snapshot, version: &'static str) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        let (all, recent) = (&snapshot.latency, &snapshot.latency_recent);
        let bucket = |&(upper_ns, count): &(u64, u64)| Bucket { upper_us: us(upper_ns), count };
        View {
            version,
            uptime_s: snapshot.uptime_ms as f64 / 1e3,
            connections: snapshot.server.clients_connected,
            commands_total: snapshot.server.commands_processed,
            net_input_bytes: snapshot.server.net_input_bytes,
            net_output_bytes: snapshot.server.net_output_bytes,
            engine: snapshot.engine.clone(),
            server: snapshot.server.clone(),
            activity: snapshot.activity.clone(),
            snapshots: snapshot.saves.as_ref().map(|saves| SnapshotFile::of(saves, snapshot.now_s)),
            latency: Latency {
                buckets: all.buckets.iter().map(bucket).collect(),
                count: all.requests,
                sum_us: us(all.mean_ns) * all.requests as f64,
                p50_us: us(recent.p50_ns),
                p99_us: us(recent.p99_ns),
                p999_us: us(recent.p999_ns),
            },
        }
    }
}

/// Counters that the plots need.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Counters {
    /// Requests answered.
    pub commands: u64,
    /// Look-ups.
    pub gets: u64,
    /// Look-ups that found their key.
    pub hits: u64,
    /// Look-ups that found their key in tier 0.
    pub fast_hits: u64,
    /// Items moved up, over all tiers.
    pub promotions: u64,
    /// Items moved down, over all tiers.
    pub demotions: u64,
    /// Items evicted, over all tiers.
    pub evictions: u64,
}

impl Counters {
    pub(super) fn of(view: &View) -> Self {
        let tiers = &view.engine.tiers;
        Counters {
            commands: view.commands_total,
            gets: view.engine.gets,
            hits: view.engine.hits,
            fast_hits: tiers.first().map_or(0, |tier| tier.hits),
            promotions: tiers.iter().map(|tier| tier.promotions).sum(),
            demotions: tiers.iter().map(|tier| tier.demotions).sum(),
            evictions: tiers.iter().map(|tier| tier.evictions).sum(),
        }
    }
}
