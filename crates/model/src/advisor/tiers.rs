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

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_policy::ladder::LadderConfig;

    #[test]
    fn metadata_is_taken_from_the_first_tier_before_it_is_divided() {
        let mut config = LadderConfig::with_capacities(&[1 << 20, 4 << 20]);
        config.charge_metadata = true;
        let capacities = |config: &LadderConfig| {
            let mut ladder = Ladder::new(config.clone());
            ladder.set_index_bytes(100_000, 0);
            let rooms = rooms(&ladder, &[0.0, 150.0]);
            assert_eq!(rooms[0].slower_ns, 150.0);
            (ladder.metadata_bytes(), [rooms[0].capacity_bytes, rooms[1].capacity_bytes])
        };
        let (metadata_bytes, charged) = capacities(&config);
        assert!(metadata_bytes >= 100_000);
        assert_eq!(charged, [(1 << 20) - metadata_bytes, 4 << 20]);
        config.charge_metadata = false;
        assert_eq!(capacities(&config).1, [1 << 20, 4 << 20]);
    }
}
