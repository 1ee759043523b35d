//! Look-ups in which every key is equally likely.

use tiermem_base::{Access, Rng};

use super::{STEP_NS, Sizes};

/// Look-ups of keys `0..objects`, each with the same probability.
#[derive(Clone, Debug)]
pub struct Uniform {
    objects: u64,
    sizes: Sizes,
    rng: Rng,
    time_ns: u64,
}

impl Uniform {
    /// Look-ups of `objects` keys; with 0 of them, key 0 is asked for.
    pub fn new(objects: u64, sizes: Sizes, seed: u64) -> Self {
        Uniform { objects, sizes, rng: Rng::seeded(seed), time_ns: 0 }
    }
}

impl Iterator for Uniform {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let key = self.rng.below(self.objects);
        let access = Access::get(self.time_ns, key, self.sizes.of(key));
        self.time_ns = self.time_ns.wrapping_add(STEP_NS);
        Some(access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::SizeDistribution;

    fn sizes() -> Sizes {
        Sizes::new(SizeDistribution::Fixed(1), 1)
    }

    #[test]
    fn keys_are_equally_likely() {
        let mut counts = [0u32; 100];
        for access in Uniform::new(100, sizes(), 3).take(100_000) {
            counts[access.key as usize] += 1;
        }
        let chi_square: f64 = counts.iter().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0).sum();
        // Mean 99, deviation 14.
        assert!(chi_square < 170.0, "{chi_square}");
    }
}
