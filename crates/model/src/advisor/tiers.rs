//! An advisor beside the ladder whose tiers it divides: what it is told of them, and how its answer is carried out. The store
//! and the simulator do both here, so that they cannot do it differently.

use tiermem_policy::ladder::Ladder;

use super::{Answer, Room};

/// The tiers of a ladder, as a division sees them. `slower_ns` says of each how much longer a look-up takes there than in DRAM.
/// Metadata that a tier is charged with is not divided.
pub fn rooms(ladder: &Ladder, slower_ns: impl Fn(usize) -> f64) -> Vec<Room> {
    let metadata_bytes = if ladder.config().charge_metadata { ladder.metadata_bytes() } else { 0 };
    let room = |tier: usize| {
        let charged_bytes = if tier == 0 { metadata_bytes } else { 0 };
        Room {
            capacity_bytes: ladder.capacity_bytes(tier).saturating_sub(charged_bytes),
            slower_ns: slower_ns(tier + 1) - slower_ns(tier),
        }
    };
    (0..ladder.levels()).map(room).collect()
}

/// Bytes that a tenant's items take in each tier.
pub fn held_bytes(ladder: &Ladder, tenant: u16) -> Vec<u64> {
    (0..ladder.levels()).map(|tier| ladder.tenant_level(tenant, tier).bytes).collect()
}

/// Whoever comes to a ladder that was divided among so many has as much as one more of them would have of equal parts.
pub fn share_with_newcomers(ladder: &mut Ladder, tenants: usize) {
    let equal = |tier| ladder.capacity_bytes(tier) / (tenants as u64 + 1);
    let equal: Vec<u64> = (0..ladder.levels()).map(equal).collect();
    ladder.share_with_newcomers(&equal);
}

impl Answer {
    /// Gives the tenants of a ladder what they are to have, and their K: what was declared goes before what was found best. There are
    /// `tenants` of them; whoever is in no part has what a newcomer has.
    pub fn carry_out(&self, ladder: &mut Ladder, tenants: usize, declared_k: impl Fn(u16) -> Option<u8>) {
        if self.is_applied() {
            share_with_newcomers(ladder, tenants);
            ladder.share_anew();
        }
        for part in &self.parts {
            for (tier, (&bytes, &k)) in part.bytes.iter().zip(&part.ks).enumerate() {
                let k = declared_k(part.tenant).unwrap_or(k);
                if self.is_applied() {
                    ladder.set_share(part.tenant, tier, bytes.max(1), k);
                } else {
                    ladder.set_k(part.tenant, tier, k);
                }
            }
        }
    }
}
