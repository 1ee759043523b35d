//! Advice on the division of memory, from the engine's own requests: the figures behind it.

use serde::Serialize;
use tiermem_model::advisor::{Advisor, TenantPart, Verdict};
use tiermem_model::mrc::Curve;

/// The last division of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DivisionStats {
    /// The objective of the division.
    pub objective: String,
    /// Windows that have ended, of all shards.
    pub windows: u64,
    /// The verdict after the last division; of shards with different verdicts, all of them.
    pub verdict: String,
    /// After which one memory was last divided anew.
    pub divided_after: Option<u64>,
    /// Nanoseconds that misses cost a look-up on average, as curves said: as memory was then ...
    pub predicted_before_ns: f64,
    /// ... and as it was to be.
    pub predicted_after_ns: f64,
    /// The same as it was in the window before ...
    pub measured_before_ns: f64,
    /// ... and in the last one since; the first window after a division does not count.
    pub measured_after_ns: Option<f64>,
    /// Bytes that curves and samples take.
    pub metadata_bytes: u64,
    /// The share of the keys that is sampled.
    pub sample_rate: f64,
    /// Shards that this is of.
    pub shards: u64,
}

impl DivisionStats {
    pub(super) fn of(advisor: &Advisor) -> Self {
        let (history, plan) = (advisor.history(), advisor.plan());
        let verdict = history.verdict.as_ref();
        DivisionStats {
            objective: if plan.divides { plan.objective.to_string() } else { "k".to_owned() },
            windows: advisor.windows(),
            verdict: verdict.map_or_else(|| "no window has ended yet".to_owned(), Verdict::to_string),
            divided_after: history.divided_after,
            predicted_before_ns: history.predicted_ns.0,
            predicted_after_ns: history.predicted_ns.1,
            measured_before_ns: history.measured_ns.0,
            measured_after_ns: history.measured_ns.1,
            metadata_bytes: advisor.metadata_bytes(),
            sample_rate: advisor.rate(),
            shards: 1,
        }
    }

    /// Adds another shard's: what is counted is added, what is a mean becomes the mean of both.
    pub(super) fn add(&mut self, other: &DivisionStats) {
        self.windows += other.windows;
        if !self.verdict.split("; ").any(|one| one == other.verdict) {
            self.verdict = format!("{}; {}", self.verdict, other.verdict);
        }
        self.divided_after = self.divided_after.max(other.divided_after);
        let (own, others) = (self.shards as f64, other.shards as f64);
        let mean_of = |a: f64, b: f64| (a * own + b * others) / (own + others);
        let mean = |a: &mut f64, b: f64| *a = mean_of(*a, b);
        mean(&mut self.predicted_before_ns, other.predicted_before_ns);
        mean(&mut self.predicted_after_ns, other.predicted_after_ns);
        mean(&mut self.measured_before_ns, other.measured_before_ns);
        self.measured_after_ns = match (self.measured_after_ns, other.measured_after_ns) {
            (Some(a), Some(b)) => Some(mean_of(a, b)),
            (a, b) => a.or(b),
        };
        self.metadata_bytes += other.metadata_bytes;
        mean(&mut self.sample_rate, other.sample_rate);
        self.shards += other.shards;
    }
}

/// Facts and advice about a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TenantAdvice {
    /// Look-ups of a window, later windows weighing more.
    pub rate: f64,
    /// Cost of a miss, in nanoseconds.
    pub miss_ns: f64,
    /// Whether that was measured or declared; assumed otherwise.
    pub is_miss_known: bool,
    /// Keys that were sampled.
    pub keys_sampled: u64,
    /// Bytes of each tier that would be best.
    pub bytes: Vec<u64>,
    /// The K that would be best in each tier.
    pub ks: Vec<u8>,
    /// Its miss ratio with all that, and with what it had; of memory alone.
    pub miss_ratio: Option<f64>,
    /// The miss ratio as curves said with what it had.
    pub miss_ratio_before: Option<f64>,
    /// The lowest of its miss-ratio curves: bytes and miss ratio.
    pub curve: Vec<(u64, f64)>,
}

impl TenantAdvice {
    pub(super) fn of(part: &TenantPart) -> Self {
        let points =
            |curve: &Curve| curve.points.iter().map(|point| (point.size, point.miss_ratio)).collect();
        TenantAdvice {
            rate: part.rate,
            miss_ns: part.miss_ns,
            is_miss_known: part.is_miss_known,
            keys_sampled: part.keys_sampled,
            bytes: part.bytes.clone(),
            ks: part.ks.clone(),
            miss_ratio: part.miss_ratio,
            miss_ratio_before: part.miss_ratio_before,
            curve: part.curve.as_ref().map(points).unwrap_or_default(),
        }
    }

    /// With another shard's advice for the same tenant: its keys are another part of the tenant's, so bytes are added, and
    /// ratios are means by rate.
    pub(super) fn and(&self, other: &TenantAdvice) -> TenantAdvice {
        let rate = self.rate + other.rate;
        let weight = if rate > 0.0 { self.rate / rate } else { 0.5 };
        let mean = |a: f64, b: f64| a * weight + b * (1.0 - weight);
        let both = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(mean(a, b)),
            (a, b) => a.or(b),
        };
        let point = |(a, b): (&(u64, f64), &(u64, f64))| (a.0 + b.0, mean(a.1, b.1));
        TenantAdvice {
            rate,
            miss_ns: mean(self.miss_ns, other.miss_ns),
            is_miss_known: self.is_miss_known || other.is_miss_known,
            keys_sampled: self.keys_sampled + other.keys_sampled,
            bytes: self.bytes.iter().zip(&other.bytes).map(|(a, b)| a + b).collect(),
            ks: self.ks.clone(),
            miss_ratio: both(self.miss_ratio, other.miss_ratio),
            miss_ratio_before: both(self.miss_ratio_before, other.miss_ratio_before),
            curve: if other.curve.is_empty() {
                self.curve.clone()
            } else {
                self.curve.iter().zip(&other.curve).map(point).collect()
            },
        }
    }
}
