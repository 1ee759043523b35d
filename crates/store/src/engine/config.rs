//! Configuration of an engine.

use crate::tiers::pages_bytes;
use tiermem_base::TierSpec;
use tiermem_base::latency_curve::LOCAL_DRAM;
use tiermem_model::advisor::{Divider, DividerConfig};
use tiermem_policy::ladder::{
    INSERTION_POINT_FAST, INSERTION_POINT_SLOW, LadderConfig, LevelConfig, PINNED_SHARE,
};
use tiermem_policy::shard::Shard;

use super::Tenancy;
use super::owners::Whose;

/// Memory of each tier that another thread populates ahead of use: enough for a thread that runs only
/// when the processor is idle to keep up, and small beside a tier: [`LadderConfig::ahead_bytes`].
pub const AHEAD_BYTES: u64 = 32 << 20;

/// Configuration of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Tiers, fastest first.
    pub tiers: Vec<TierSpec>,
    /// The ladder's parameters; its levels follow from `tiers`.
    pub ladder: LadderConfig,
    /// Most that the tiers may grow to, in multiples of their capacities, where other shards give theirs.
    pub growth: u32,
    /// The longest value.
    pub value_bytes_max: usize,
    /// The part of each tier that replies under way may pin.
    pub pinned_share: f64,
    /// Seeds the index's hash and the policies' random choices; from the system's entropy in a server.
    pub seed: u64,
    /// Whether the charge of emulated tiers is really waited for.
    pub spin: bool,
    /// How keys are assigned to tenants.
    pub tenancy: Tenancy,
    /// Names this run in everything that outlives it; drawn anew for each.
    pub session: [u8; 16],
}

impl EngineConfig {
    /// Default parameters over these tiers.
    pub fn new(tiers: Vec<TierSpec>) -> Self {
        EngineConfig {
            tiers,
            ladder: LadderConfig { ahead_bytes: AHEAD_BYTES, ..LadderConfig::default() },
            growth: 1,
            value_bytes_max: 16 << 20,
            pinned_share: PINNED_SHARE,
            seed: 0,
            spin: true,
            tenancy: Tenancy::default(),
            session: [0; 16],
        }
    }

    /// The tiers with as many bytes as they may come to have: memory that is not used is not taken.
    pub(super) fn tier_specs(&self) -> Vec<TierSpec> {
        let growth = u64::from(self.growth.max(1));
        self.tiers.iter().map(|tier| tier.clone().grown(growth)).collect()
    }

    /// The ladder's configuration with a level for each tier, where it has none of its own.
    pub fn ladder_config(&self) -> LadderConfig {
        let mut ladder = self.ladder.clone();
        if ladder.levels.is_empty() {
            let level = |(at, tier): (usize, &TierSpec)| LevelConfig {
                capacity_bytes: pages_bytes(tier),
                insertion_point: if at == 0 { INSERTION_POINT_FAST } else { INSERTION_POINT_SLOW },
                order: Default::default(),
                curve: LOCAL_DRAM,
            };
            ladder.levels = self.tiers.iter().enumerate().map(level).collect();
        }
        // Every kind that an engine serves is taken to have a curve.
        let curves = self.tiers.iter().map(|tier| tier.curve().unwrap_or(LOCAL_DRAM));
        ladder.levels.iter_mut().zip(curves).for_each(|(level, curve)| level.curve = curve);
        ladder.growth = self.growth;
        ladder.tenants = self.tenancy.tells_apart();
        ladder
    }

    /// What divides this engine's memory.
    pub(super) fn divider(&self, shard: &Shard) -> Divider {
        let tenancy = &self.tenancy;
        let mut names = Whose::names(tenancy.by, tenancy.tells_apart());
        names.extend(tenancy.declared.iter().map(|declared| declared.name.clone()));
        names.extend(tenancy.owners.iter().map(|owner| owner.name.clone()));
        let config = DividerConfig {
            plan: tenancy.plan.clone(),
            division: tenancy.division.clone(),
            names,
            declared: tenancy.declared.clone(),
            // Every kind that an engine serves is taken to have a curve.
            slower_ns: self.tiers.iter().map(|tier| tier.slower_ns().unwrap_or(0.0)).collect(),
            shards: u64::from(self.growth),
            seed: self.seed,
        };
        Divider::new(config, shard.ladder())
    }
}
