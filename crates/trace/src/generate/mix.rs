//! Several tenants at once: each request is one tenant's, chosen by weight.

use tiermem_base::{Access, Rng};

use super::STEP_NS;

/// The bit of a key where the tenant's number begins: below it lies the tenant's own key space.
pub const TENANT_KEY_SHIFT: u32 = 48;

/// A tenant of a mix.
pub struct Tenant {
    /// How often it is chosen, relative to the others.
    pub weight: f64,
    /// Its endless accesses, of keys below 2^48.
    pub accesses: Box<dyn Iterator<Item = Access> + Send>,
}

/// The requests of several tenants, numbered from 0 in their order. Their keys are made distinct by the tenant's
/// number in the bits from [`TENANT_KEY_SHIFT`] on.
pub struct Mix {
    tenants: Vec<Tenant>,
    /// For each tenant, the sum of the weights up to it, over the sum of all.
    shares: Vec<f64>,
    rng: Rng,
    time_ns: u64,
}

impl Mix {
    /// A mix of `tenants`; it is empty if they are, or if no weight is above 0.
    pub fn new(tenants: Vec<Tenant>, seed: u64) -> Mix {
        let total: f64 = tenants.iter().map(|tenant| tenant.weight).sum();
        let shares = tenants.iter().scan(0.0, |sum, tenant| {
            *sum += tenant.weight / total;
            Some(*sum)
        });
        Mix { shares: shares.collect(), tenants, rng: Rng::seeded(seed), time_ns: 0 }
    }
}

impl Iterator for Mix {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let choice = self.rng.unit_f64();
        // Rounding may leave the last sum a hair below 1: then the last tenant is meant.
        let at = self.shares.partition_point(|share| *share <= choice).min(self.shares.len().checked_sub(1)?);
        let access = self.tenants.get_mut(at)?.accesses.next()?;
        let key = access.key | ((at as u64) << TENANT_KEY_SHIFT);
        let access = Access { time_ns: self.time_ns, key, tenant: at as u32, ..access };
        self.time_ns = self.time_ns.wrapping_add(STEP_NS);
        Some(access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Scan, SizeDistribution, Sizes};

    fn tenant(weight: f64, objects: u64) -> Tenant {
        let sizes = Sizes::new(SizeDistribution::Fixed(objects as u32), 1);
        Tenant { weight, accesses: Box::new(Scan::new(objects, sizes)) }
    }

    #[test]
    fn tenants_have_their_shares_and_their_own_keys_in_their_own_order() {
        let trace: Vec<Access> =
            Mix::new(vec![tenant(3.0, 10), tenant(0.0, 7), tenant(1.0, 20)], 1).take(40_000).collect();
        assert!(trace.iter().zip(0u64..).all(|(access, n)| access.time_ns == n * STEP_NS));
        for (number, objects, wanted) in [(0, 10, 30_000), (1, 7, 0), (2, 20, 10_000)] {
            let own: Vec<&Access> = trace.iter().filter(|access| access.tenant == number).collect();
            // Five deviations are 433.
            assert!(own.len().abs_diff(wanted) < 433, "{number}: {}", own.len());
            for (access, n) in own.iter().zip(0u64..) {
                assert_eq!(access.key, (u64::from(number) << 48) | (n % objects));
                assert_eq!(u64::from(access.size), objects);
            }
        }
    }

    #[test]
    fn a_mix_of_nothing_is_empty() {
        assert_eq!(Mix::new(Vec::new(), 1).count(), 0);
    }
}
