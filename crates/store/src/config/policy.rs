//! Configuration of the ladder: the parameters of `[policy]`.

use serde::Deserialize;
use tiermem_base::Bytes;
use tiermem_policy::evict::lru::Bump;
use tiermem_policy::ladder::{Admission, LadderConfig, Order, Reactive, Watermarks};
use tiermem_policy::promotion_rule::Promotion;

use super::ConfigError;

/// The keys of `[policy]`. What is left out keeps its default; every mechanism can be switched off by itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicySection {
    /// Promotion rule: `reuse-twice` (default), `reuse-time`, `tail-age`, `reuse-time-scan`, `naive` or `none`.
    pub promotion: Option<String>,
    /// Eviction policy of the tiers: `lru` (lists, the default), or the coldest of K drawn items, by recency (`klru:K`), by frequency
    /// of use (`klfu:K`) or by expiry (`kttl:K`); or a policy by its name, the same one for all tiers (`fifo`, `clock`, `sieve`,
    /// `s3-fifo`, `2q`, `arc`, `slru`, `lfu`, `lhd`, ...).
    pub order: Option<String>,
    /// Eviction policy of slower tiers, where it differs.
    pub order_slow: Option<String>,
    /// Where new items enter: `fast`, `proven` (default: below where new ones of their size go unused) or
    /// `interleaved:SHARE` (by the key's hash, for ever).
    pub admission: Option<String>,
    /// Share of the fast tier's mean reuse time that a slow item's must be below to be promoted. Default 6 for
    /// `reuse-twice`, else 1.
    pub promote_below: Option<f64>,
    /// Whether items come to faster tiers only while such moves pay, by `reuse-twice` and `proven`. Default true.
    pub weigh_moves: Option<bool>,
    /// Moves and evictions in one step at most to empty a page for another size class; 0 switches that off. Default 256.
    pub rebalance_batch: Option<u32>,
    /// What a full fast tier does at an admission: `demote` (default) or `drop`.
    pub reactive: Option<String>,
    /// When a hit moves an item to the head of its list: `at-tail` (default), `lower-only` or `always`.
    pub bump: Option<String>,
    /// Whether space is kept free by moving items in the background. Default true.
    pub watermarks: Option<bool>,
    /// Free share below which that begins. Default 0.02.
    pub low_watermark: Option<f64>,
    /// Free share at which it ends. Default 0.05.
    pub high_watermark: Option<f64>,
    /// Where new items enter the fast tier's lists, as a share from the tail; 1 is the head. Default 0.25.
    pub insertion_point_fast: Option<f64>,
    /// Where new items enter the slower tiers' lists, as a share from the tail; 1 is the head. Default 0.5.
    pub insertion_point_slow: Option<f64>,
    /// Growth from one size class to the next. Default 1.08.
    pub class_factor: Option<f64>,
    /// Window of the mean reuse time, in requests. Default 1048576.
    pub reuse_window_requests: Option<u64>,
    /// Candidates for promotion that can wait. Default 1024.
    pub candidates: Option<usize>,
    /// Requests between two steps of background work, where the first leaves none. Default 16.
    pub step_requests: Option<u64>,
    /// Items promoted in one step at most. Default 1.
    pub promote_batch: Option<u32>,
    /// Items demoted in one step at most. Default 2.
    pub demote_batch: Option<u32>,
    /// Items evicted or expired in one step at most. Default 8.
    pub evict_batch: Option<u32>,
    /// `reuse-time-scan`: requests between two scans. Default 1024.
    pub scan_requests: Option<u64>,
    /// `reuse-time-scan`: items looked at in each list. Default 32.
    pub scan_depth: Option<usize>,
    /// Share of tier 0 that metadata may take. Default 0.75.
    pub metadata_share_max: Option<f64>,
}

impl PolicySection {
    /// The ladder's configuration over tiers of these capacities.
    pub fn ladder(&self, capacities: &[Bytes]) -> Result<LadderConfig, ConfigError> {
        let capacities: Vec<u64> = capacities.iter().map(|capacity| capacity.0).collect();
        let mut ladder = LadderConfig::with_capacities(&capacities);
        let defaults = Watermarks::default();
        ladder.promotion = word("policy.promotion", &self.promotion, Promotion::default())?;
        ladder.admission = word("policy.admission", &self.admission, Admission::default())?;
        ladder.promote_below = self.promote_below;
        if self.promote_below.is_some_and(|share| !(0.0..=256.0).contains(&share)) {
            return Err(out_of_range("policy.promote_below", "must lie between 0 and 256"));
        }
        ladder.weighs_moves = self.weigh_moves.unwrap_or(ladder.weighs_moves);
        ladder.rebalance_batch = self.rebalance_batch.unwrap_or(ladder.rebalance_batch);
        ladder.reactive = word("policy.reactive", &self.reactive, Reactive::default())?;
        ladder.bump = word("policy.bump", &self.bump, Bump::default())?;
        let order: Order = word("policy.order", &self.order, Order::default())?;
        let order_slow = word("policy.order_slow", &self.order_slow, order)?;
        let low = share("policy.low_watermark", self.low_watermark, defaults.low)?;
        let high = share("policy.high_watermark", self.high_watermark, defaults.high)?;
        if low > high {
            return Err(out_of_range("policy.low_watermark", "must not be above high_watermark"));
        }
        ladder.watermarks = self.watermarks.unwrap_or(true).then_some(Watermarks { low, high });
        for (tier, level) in ladder.levels.iter_mut().enumerate() {
            let (key, given) = match tier {
                0 => ("policy.insertion_point_fast", self.insertion_point_fast),
                _ => ("policy.insertion_point_slow", self.insertion_point_slow),
            };
            level.insertion_point = share(key, given, level.insertion_point)?;
            level.order = if tier == 0 { order } else { order_slow };
        }
        ladder.check_orders().map_err(|problem| ConfigError::Value { key: "policy.order", problem })?;
        ladder.metadata_share_max =
            share("policy.metadata_share_max", self.metadata_share_max, ladder.metadata_share_max)?;
        ladder.class_factor = self.class_factor.unwrap_or(ladder.class_factor);
        if !(1.05..=4.0).contains(&ladder.class_factor) {
            return Err(out_of_range("policy.class_factor", "must lie between 1.05 and 4"));
        }
        let counts = [
            self.reuse_window_requests,
            self.step_requests,
            self.scan_requests,
            self.candidates.map(|n| n as u64),
            self.promote_batch.map(u64::from),
            self.demote_batch.map(u64::from),
            self.evict_batch.map(u64::from),
        ];
        if counts.contains(&Some(0)) {
            return Err(out_of_range(
                "policy",
                "windows, periods, batches and candidates must be at least 1",
            ));
        }
        ladder.reuse_window_requests = self.reuse_window_requests.unwrap_or(ladder.reuse_window_requests);
        ladder.step_requests = self.step_requests.unwrap_or(ladder.step_requests);
        ladder.scan_requests = self.scan_requests.unwrap_or(ladder.scan_requests);
        ladder.candidates = self.candidates.unwrap_or(ladder.candidates).min(1 << 20);
        ladder.promote_batch = self.promote_batch.unwrap_or(ladder.promote_batch);
        ladder.demote_batch = self.demote_batch.unwrap_or(ladder.demote_batch);
        ladder.evict_batch = self.evict_batch.unwrap_or(ladder.evict_batch);
        ladder.scan_depth = self.scan_depth.unwrap_or(ladder.scan_depth);
        Ok(ladder)
    }
}

fn out_of_range(key: &'static str, problem: &str) -> ConfigError {
    ConfigError::Value { key, problem: problem.to_owned() }
}

fn word<T: std::str::FromStr<Err = String>>(
    key: &'static str,
    given: &Option<String>,
    default: T,
) -> Result<T, ConfigError> {
    match given {
        Some(word) => word.parse().map_err(|problem| ConfigError::Value { key, problem }),
        None => Ok(default),
    }
}

fn share(key: &'static str, given: Option<f64>, default: f64) -> Result<f64, ConfigError> {
    match given {
        Some(share) if share > 0.0 && share <= 1.0 => Ok(share),
        Some(_) => Err(out_of_range(key, "must be above 0 and at most 1")),
        None => Ok(default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_policy::evict::Named;

    fn read(text: &str) -> Result<LadderConfig, String> {
        let section: PolicySection = toml::from_str(text).map_err(|error| error.to_string())?;
        section.ladder(&[Bytes(1 << 20), Bytes(1 << 22)]).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_said_is_the_default() {
        assert_eq!(read("").unwrap(), LadderConfig::with_capacities(&[1 << 20, 1 << 22]));
    }

    #[test]
    fn every_mechanism_can_be_switched_off() {
        let ladder = read(
            "promotion = \"none\"\nadmission = \"fast\"\nrebalance_batch = 0\nreactive = \"drop\"\nbump = \"always\"\nwatermarks = false\ninsertion_point_fast = 1.0",
        )
        .unwrap();
        assert_eq!(
            (ladder.promotion, ladder.reactive, ladder.bump),
            (Promotion::None, Reactive::Drop, Bump::Always)
        );
        assert_eq!((ladder.admission, ladder.rebalance_batch), (Admission::Fast, 0));
        assert!(ladder.watermarks.is_none() && ladder.levels[0].insertion_point == 1.0);
    }

    #[test]
    fn any_policy_can_order_the_tiers() {
        for named in Named::ALL {
            // These two are lists with an insertion point, and samples, for the ladder.
            if let Named::Lru | Named::KLru(_) = named {
                continue;
            }
            let ladder = read(&format!("order = \"{}\"", named.name())).unwrap();
            assert!(ladder.levels.iter().all(|level| level.order == Order::Policy(named)));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("promotion = \"often\"", "none of reuse-twice"),
            ("order = \"mru\"", "none of lru, klru:K"),
            ("order = \"klru\"\npromotion = \"reuse-time-scan\"", "needs the order lru"),
            ("order = \"s3-fifo\"\norder_slow = \"lru\"", "orders all tiers or none"),
            ("low_watermark = 0.5", "above high_watermark"),
            ("insertion_point_slow = 0.0", "insertion_point_slow"),
            ("step_requests = 0", "at least 1"),
            ("evict_batch = 0", "at least 1"),
            ("class_factor = 1.0", "between 1.05 and 4"),
            ("speed = 1", "unknown field"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
