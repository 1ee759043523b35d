//! Configuration of the ladder. Every mechanism of Wang 2024 can be switched off by itself, so that an ablation is one
//! experiment.

use super::{Admission, Order};
use crate::evict::Named;
use crate::evict::lru::{Bump, Lru};
use crate::promotion_rule::Promotion;
use tiermem_base::latency_curve::{A1000_CXL, Curve, LOCAL_DRAM};

/// The reaction to a tier that is full at the moment an item is admitted (Wang 2024, section 5.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reactive {
    /// The coldest item of the class moves to the next tier if that has a free slot, and is dropped otherwise.
    /// The next tier never evicts for it (no cascade).
    #[default]
    Demote,
    /// The coldest item of the class is dropped: Wang's own rule, which makes the fast tier a filter.
    Drop,
}

impl std::str::FromStr for Reactive {
    type Err = String;
    /// Reads the word that configuration and command line use.
    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "demote" => Ok(Reactive::Demote),
            "drop" => Ok(Reactive::Drop),
            _ => Err(format!("{word:?} is none of demote, drop")),
        }
    }
}

/// Items that may be evicted from the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Any item.
    #[default]
    AllItems,
    /// Nothing; admission fails instead.
    Forbidden,
}

/// Free space that a tier keeps ready (Wang 2024, section 5.1.3), in shares of the bytes that it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    /// Below this the tier, or a class of it, starts to give items away...
    pub low: f64,
    /// ... until this much is free.
    pub high: f64,
}

impl Default for Watermarks {
    fn default() -> Self {
        Watermarks { low: 0.02, high: 0.05 }
    }
}

/// Configuration of a slotted tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelConfig {
    /// Bytes of the tier; in tier 0 the metadata comes out of it if that is charged.
    pub capacity_bytes: u64,
    /// Where new and demoted items enter the lists, as a share of the list from its tail.
    pub insertion_point: f64,
    /// Eviction policy of the tiers.
    pub order: Order,
    /// How fast the tier is: what a use saves above it, and what moves to and from it take.
    pub curve: Curve,
}

/// The whole ladder. `Default` is Wang's design but for `bump` and `reactive`.
#[derive(Clone, Debug, PartialEq)]
pub struct LadderConfig {
    /// Tiers, fastest first; at most [`super::LEVELS_MAX`].
    pub levels: Vec<LevelConfig>,
    /// How many times their capacities the levels may come to grow to, where other shards give theirs
    /// ([`super::Ladder::set_capacity`]).
    pub growth: u32,
    /// Bytes of free memory of a tier that are taken from the system before they are written ([`super::Act::Populate`]): at most
    /// this many, and a sixteenth of the tier, and none where that is less than 2 MiB. 0: memory is taken by writing.
    pub ahead_bytes: u64,
    /// Growth from one size class to the next.
    pub class_factor: f64,
    /// The effect of a hit on the lists.
    pub bump: Bump,
    /// Where new items enter.
    pub admission: Admission,
    /// When the fast tier is full.
    pub reactive: Reactive,
    /// Whether anything may be thrown out.
    pub eviction: Eviction,
    /// Free space kept ready by moving items in the background, in the last tier a quarter of it
    /// ([`LadderConfig::watermarks_of`]); `None` switches proactive moves off.
    pub watermarks: Option<Watermarks>,
    /// The rule by which items are promoted.
    pub promotion: Promotion,
    /// The reuse time that is short enough, as a share of the mean or age that it is compared with; `None`: [`Promotion::below`].
    pub promote_below: Option<f64>,
    /// Whether items come up only while that pays ([`super::payoff`]): of promotions by [`Promotion::ReuseTwice`] and of admission
    /// by [`Admission::Proven`].
    pub weighs_moves: bool,
    /// Window of the mean reuse time, in requests. (The times themselves are known to `recency_requests`.)
    pub reuse_window_requests: u64,
    /// Candidates for promotion that can wait.
    pub candidates: usize,
    /// Requests between two steps that leave nothing to be done. Driven by the caller, stated here so that simulator and engine
    /// agree.
    pub step_requests: u64,
    /// Items promoted in one step at most. A request waits for all of it, and the next one makes the next step while there
    /// is work.
    pub promote_batch: u32,
    /// Items demoted in one step at most: more than one, or a client that only brings new items would stay ahead of it.
    pub demote_batch: u32,
    /// Items evicted or expired in one step at most.
    pub evict_batch: u32,
    /// Moves and evictions in one step at most to empty a page for another class; 0 switches that off.
    pub rebalance_batch: u32,
    /// `Promotion::ReuseTimeScan`: requests between two scans, and items looked at in each class.
    pub scan_requests: u64,
    /// Items that one scan looks at in each list.
    pub scan_depth: usize,
    /// Requests to which recency is known. Ages wrap after 2^26 times this.
    pub recency_requests: u64,
    /// Whether metadata is taken out of tier 0's capacity.
    pub charge_metadata: bool,
    /// Share of tier 0 that metadata may take; the number of items is bounded by it.
    pub metadata_share_max: f64,
    /// Whether items are told apart by tenant. Tiers are sampled then, each tenant by itself.
    pub tenants: bool,
}

impl Default for LadderConfig {
    fn default() -> Self {
        LadderConfig {
            levels: Vec::new(),
            growth: 1,
            ahead_bytes: 0,
            class_factor: 1.08,
            bump: Bump::default(),
            admission: Admission::default(),
            reactive: Reactive::default(),
            eviction: Eviction::default(),
            watermarks: Some(Watermarks::default()),
            promotion: Promotion::default(),
            promote_below: None,
            weighs_moves: true,
            reuse_window_requests: 1 << 20,
            candidates: 1024,
            step_requests: 16,
            promote_batch: 1,
            demote_batch: 2,
            evict_batch: 8,
            rebalance_batch: 256,
            scan_requests: 1024,
            scan_depth: 32,
            recency_requests: 16,
            charge_metadata: true,
            metadata_share_max: 0.75,
            tenants: false,
        }
    }
}

/// Insertion point of a fast tier: a quarter of the list from its tail (Wang 2024, section 5.1.2).
pub const INSERTION_POINT_FAST: f64 = 0.25;
/// Insertion point of a slower tier: the middle.
pub const INSERTION_POINT_SLOW: f64 = 0.5;

/// How many times less of the last tier is kept free: an item that is dropped needs no room elsewhere, and takes no time to speak of.
const LAST_TIER_PARTS: f64 = 4.0;

/// K of tenants' tiers whose order says none: Redis's own.
const TENANTS_K: u8 = crate::choose_k::K_DEFAULT;

impl LadderConfig {
    /// The free space that is kept ready in a tier.
    pub fn watermarks_of(&self, tier: usize) -> Option<Watermarks> {
        let parts = if tier + 1 == self.levels.len() { LAST_TIER_PARTS } else { 1.0 };
        self.watermarks.map(|marks| Watermarks { low: marks.low / parts, high: marks.high / parts })
    }

    /// The lists of all tiers and classes, with the points at which items enter them.
    pub(super) fn lists(&self, classes: usize) -> Lru {
        let points = self.levels.iter().flat_map(|level| vec![level.insertion_point; classes]);
        // A scan finds hot items at the heads of the lists only if hits move them there.
        let scans = self.promotion == Promotion::ReuseTimeScan;
        let bump = if scans && self.bump == Bump::AtTail { Bump::Always } else { self.bump };
        Lru::new(points, bump)
    }

    /// The policy that the tiers have by its name, if they have one.
    pub(super) fn policy(&self) -> Option<Named> {
        self.levels.iter().find_map(|level| match level.order {
            Order::Policy(named) => Some(named),
            Order::Lists | Order::Sample { .. } => None,
        })
    }

    /// Checks that the orders of the tiers fit each other and the rest of the configuration.
    ///
    /// # Errors
    /// Which part does not fit, and what to say instead.
    pub fn check_orders(&self) -> Result<(), String> {
        let scans = self.promotion == Promotion::ReuseTimeScan;
        if scans && self.levels.iter().skip(1).any(|level| level.order != Order::Lists) {
            return Err("reuse-time-scan walks lists: it needs the order lru".to_owned());
        }
        let Some(named) = self.policy() else { return Ok(()) };
        if self.levels.iter().any(|level| level.order != Order::Policy(named)) {
            return Err(format!(
                "{named} orders all tiers or none: give the slower tiers the same order, or none of their own"
            ));
        }
        if self.tenants {
            return Err(format!(
                "{named} does not work with tenants: set the order to klru:K, klfu:K or kttl:K, or drop the tenants"
            ));
        }
        Ok(())
    }

    /// Lists know no tenants: where these are told apart, tiers are sampled.
    pub(super) fn order_for_tenants(&mut self) {
        for level in &mut self.levels {
            if self.tenants && level.order == Order::Lists {
                level.order = Order::Sample { k: TENANTS_K, by: super::Priority::Recency };
            }
        }
    }

    /// The default ladder over tiers of these capacities, fastest first.
    pub fn with_capacities(capacities_bytes: &[u64]) -> Self {
        let level = |(at, &capacity_bytes): (usize, &u64)| LevelConfig {
            capacity_bytes,
            insertion_point: if at == 0 { INSERTION_POINT_FAST } else { INSERTION_POINT_SLOW },
            order: Order::default(),
            curve: if at == 0 { LOCAL_DRAM } else { A1000_CXL },
        };
        LadderConfig {
            levels: capacities_bytes.iter().enumerate().map(level).collect(),
            ..LadderConfig::default()
        }
    }
}
