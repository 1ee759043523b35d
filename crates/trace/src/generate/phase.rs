//! A workload whose hot set changes at once: sdTMM's phase-changing case study (Wang 2024, section 5.2.4.3).
//!
//! Two phases of equal length draw from Zipf distributions, the same one or (section 5.2.4.4) of another exponent. In the first
//! the small keys are hot; in the second the large ones are. Keys are not scattered: that the hot ones lie at the two ends is the point.

use tiermem_base::{Access, Rng};

use super::zipf::ZipfRanks;
use super::{STEP_NS, Sizes};

/// Look-ups of keys `0..objects` in two phases.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Of the first phase and of the second.
    ranks: [ZipfRanks; 2],
    objects: u64,
    sizes: Sizes,
    rng: Rng,
    time_ns: u64,
    first_phase_left: u64,
}

impl Phase {
    /// Look-ups from the `ranks` of each phase over `objects` keys; after `first_phase` requests the hot keys move to the other end
    /// and stay there.
    pub fn new(ranks: [ZipfRanks; 2], objects: u64, first_phase: u64, sizes: Sizes, seed: u64) -> Self {
        Phase { ranks, objects, sizes, rng: Rng::seeded(seed), time_ns: 0, first_phase_left: first_phase }
    }
}

impl Iterator for Phase {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let key = match self.first_phase_left {
            0 => (self.objects - 1).saturating_sub(self.ranks[1].draw(&mut self.rng)),
            _ => self.ranks[0].draw(&mut self.rng),
        };
        self.first_phase_left = self.first_phase_left.saturating_sub(1);
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
    fn the_hot_keys_change_ends() {
        let ranks = ZipfRanks::new(1000, 0.9).unwrap();
        let keys: Vec<u64> =
            Phase::new([ranks.clone(), ranks], 1000, 5000, sizes(), 1).map(|a| a.key).take(10_000).collect();
        let low = |keys: &[u64]| keys.iter().filter(|key| **key < 100).count() as f64 / keys.len() as f64;
        let high = |keys: &[u64]| keys.iter().filter(|key| **key >= 900).count() as f64 / keys.len() as f64;
        // At 0.9 over 1000 objects the hottest tenth gets 58% of the requests, the coldest tenth 3%.
        assert!(low(&keys[..5000]) > 0.5 && high(&keys[..5000]) < 0.1);
        assert!(high(&keys[5000..]) > 0.5 && low(&keys[5000..]) < 0.1);
    }
}
