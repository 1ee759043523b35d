//! The tiers of a ladder, as a division of its memory sees them.

use tiermem_policy::ladder::Ladder;

use super::Room;

/// The room to divide in each tier. `slower_ns` says of each how much longer a look-up takes there than in DRAM. Metadata that a
/// tier is charged with is not divided.
pub fn rooms(ladder: &Ladder, slower_ns: &[f64]) -> Vec<Room> {
    let metadata_bytes = if ladder.config().charge_metadata { ladder.metadata_bytes() } else { 0 };
    let slower_ns = |tier: usize| slower_ns.get(tier).copied().unwrap_or(0.0);
    let room = |tier: usize| {
        let charged_bytes = if tier == 0 { metadata_bytes } else { 0 };
        Room {
            capacity_bytes: ladder.config().levels[tier].capacity_bytes.saturating_sub(charged_bytes),
            slower_ns: slower_ns(tier + 1) - slower_ns(tier),
        }
    };
    (0..ladder.residents().levels()).map(room).collect()
}

/// Bytes that a tenant's items take in each tier.
pub fn held_bytes(ladder: &Ladder, tenant: u16) -> Vec<u64> {
    (0..ladder.residents().levels()).map(|tier| ladder.residents().tenant_level(tenant, tier).bytes).collect()
}
