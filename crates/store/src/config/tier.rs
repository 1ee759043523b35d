//! Configuration of tiers: the kinds that the store serves, and their limits of size.

use tiermem_base::tier::{TierError, check_list};
use tiermem_base::{Bytes, TierKind, TierSpec};
use tiermem_policy::ladder::LEVELS_MAX;

use super::{ConfigError, Misfit};

/// Addresses count sixteen bytes in 32 bits.
const TIER_BYTES_MAX: u64 = (u32::MAX as u64) << 4;

/// Less than this leaves a tier without a page for each of a few size classes, and tier 0 without room for the index.
const TIER_BYTES_MIN: u64 = 1 << 20;

/// Kinds of tiers that can hold items.
const SERVED: [TierKind; 5] =
    [TierKind::Dram, TierKind::Numa, TierKind::Dax, TierKind::Emulated, TierKind::Flash];

/// 512 MiB of DRAM and 2 GiB of emulated CXL memory.
pub(super) fn default_tiers() -> Vec<TierSpec> {
    vec![
        TierSpec::new(TierKind::Dram, Bytes(512 << 20)),
        TierSpec::new(TierKind::Emulated, Bytes(2 << 30)).named("cxl"),
    ]
}

/// Checks each tier by itself and the list as a whole.
pub(super) fn validate(tiers: &[TierSpec]) -> Result<(), ConfigError> {
    let first = tiers.first().ok_or(ConfigError::Server(Misfit::NoTier))?;
    for (number, tier) in tiers.iter().enumerate() {
        check_tier(tier)?;
        if tier.kind == TierKind::Flash {
            if number + 1 != tiers.len() || number == 0 {
                return Err(tier.error("kind", "a flash tier is the last one, below memory").into());
            }
            super::FlashTier::of(tier)?;
        }
    }
    check_list(tiers)?;
    let slotted = tiers.iter().filter(|tier| tier.kind != TierKind::Flash).count();
    if slotted > LEVELS_MAX {
        return Err(ConfigError::Server(Misfit::TooManyTiers { given: slotted, most: LEVELS_MAX }));
    }
    if first.kind != TierKind::Dram {
        return Err(first.error("kind", "tier 0 must be of kind dram: the index lives there").into());
    }
    Ok(())
}

/// Checks what the store needs of one tier.
fn check_tier(tier: &TierSpec) -> Result<(), TierError> {
    tier.served_by("the store", &SERVED)?;
    tier.check()?;
    tier.curve()?;
    match tier.kind {
        TierKind::Numa => drop(tier.node()?),
        TierKind::Dax | TierKind::Flash => drop(tier.path()?),
        _ => {}
    }
    let bytes = tier.bytes()?;
    if bytes < TIER_BYTES_MIN {
        let least = Bytes(TIER_BYTES_MIN);
        let problem = format!("its capacity of {} is too small: give at least {least}", Bytes(bytes));
        return Err(tier.error("capacity", problem));
    }
    if tier.kind != TierKind::Flash && bytes > TIER_BYTES_MAX {
        let problem = format!("one shard addresses at most {} of a tier", Bytes(TIER_BYTES_MAX));
        return Err(tier.error("capacity", problem));
    }
    Ok(())
}
