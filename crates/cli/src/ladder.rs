//! The ladder's parameters on the command line.

use clap::Args;
use tiermem_policy::evict::lru::Bump;
use tiermem_policy::ladder::{Admission, LadderConfig, Order, Reactive};
use tiermem_policy::promotion_rule::Promotion;

/// Each mechanism of the ladder; every one can be switched off by itself. What is not given stays as it was: the default, or what a
/// configuration file says.
#[derive(Debug, Args)]
pub struct LadderArgs {
    /// Promotion policy: reuse-twice, reuse-time, tail-age, reuse-time-scan, naive or none [default: reuse-twice].
    #[arg(long)]
    promotion: Option<Promotion>,
    /// Promote an item if its reuse time is below this multiple of the fast tier's mean reuse time [default: 6 for
    /// reuse-twice, else 1].
    #[arg(long, value_name = "FACTOR")]
    promote_below: Option<f64>,
    /// Move items to faster tiers whether such moves have paid lately or not.
    #[arg(long)]
    always_move: bool,
    /// Do not move pages between size classes.
    #[arg(long)]
    no_rebalance: bool,
    /// Window of the fast tier's mean reuse time, in requests.
    #[arg(long, value_name = "N", value_parser = crate::trace::positive_count)]
    reuse_window: Option<u64>,
    /// Most slow items that can wait for promotion.
    #[arg(long, value_name = "N")]
    candidates: Option<usize>,
    /// Admission policy, the tier that new items enter: fast, proven or interleaved:SHARE [default: proven].
    #[arg(long)]
    admission: Option<Admission>,
    /// What a full fast tier does at an admission: demote or drop [default: demote].
    #[arg(long)]
    reactive: Option<Reactive>,
    /// No background demotion and eviction between watermarks.
    #[arg(long)]
    no_watermarks: bool,
    /// Insertion point of new items in a tier's order, as a share from its tail, for all tiers.
    #[arg(long, value_name = "SHARE")]
    insertion_point: Option<f64>,
    /// Lists: when a hit moves an item to the head: always, lower-only or at-tail [default: at-tail].
    #[arg(long)]
    bump: Option<Bump>,
    /// Eviction policy of the tiers: lru, klru:K, klfu:K, kttl:K, or a policy by name, such as s3-fifo [default: lru].
    #[arg(long)]
    order: Option<Order>,
    /// Eviction policy of the slower tiers [default: that of --order].
    #[arg(long, value_name = "ORDER")]
    order_slow: Option<Order>,
    /// Charge metadata to the first tier's capacity, as the store does.
    #[arg(long)]
    charge_metadata: bool,
}

impl LadderArgs {
    /// Sets what was given; everything else stays as it is in `ladder`.
    pub fn apply(&self, ladder: &mut LadderConfig) -> Result<(), String> {
        ladder.promotion = self.promotion.unwrap_or(ladder.promotion);
        ladder.promote_below = self.promote_below.or(ladder.promote_below);
        ladder.weighs_moves &= !self.always_move;
        if self.no_rebalance {
            ladder.rebalance_batch = 0;
        }
        ladder.reuse_window_requests = self.reuse_window.unwrap_or(ladder.reuse_window_requests).max(1);
        ladder.candidates = self.candidates.unwrap_or(ladder.candidates).clamp(1, 1 << 20);
        ladder.admission = self.admission.unwrap_or(ladder.admission);
        ladder.reactive = self.reactive.unwrap_or(ladder.reactive);
        ladder.charge_metadata = self.charge_metadata;
        if self.no_watermarks {
            ladder.watermarks = None;
        }
        ladder.bump = self.bump.unwrap_or(ladder.bump);
        for (tier, level) in ladder.levels.iter_mut().enumerate() {
            let order = self.order_slow.filter(|_| tier > 0).or(self.order);
            level.order = order.unwrap_or(level.order);
            level.insertion_point = self.insertion_point.unwrap_or(level.insertion_point);
        }
        ladder.check_orders()
    }
}
