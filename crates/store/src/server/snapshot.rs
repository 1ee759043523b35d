//! Published figures of a shard, for other threads.

use serde::Serialize;

use super::latency::LatencySummary;
use crate::engine::EngineStats;
use crate::shards::shard_stats::SaveFigures;
use crate::stats::{Activity, ServerStats};

/// All figures at one moment, published for other threads.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// When it was taken: Unix time in milliseconds; 0 before the first.
    pub unix_ms: u64,
    /// Milliseconds since the server started.
    pub uptime_ms: u64,
    /// Requests per second over the time since the last snapshot.
    pub requests_per_sec: u64,
    /// The engine's figures.
    pub engine: EngineStats,
    /// The server's figures.
    pub server: ServerStats,
    /// Service times since the start.
    pub latency: LatencySummary,
    /// Service times since the last snapshot.
    pub latency_recent: LatencySummary,
    /// What runs, and for whom.
    pub activity: Activity,
    /// When it was taken, in seconds of the store's time, as those of `saves`.
    pub now_s: u64,
    /// State of the snapshot file; `None`: there is none.
    pub saves: Option<SaveFigures>,
}
