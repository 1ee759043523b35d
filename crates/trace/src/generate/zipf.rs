//! Zipf-distributed look-ups: rank `k` of `1..=N` is asked for with probability proportional to `k^-alpha`.
//!
//! Samples come from rejection-inversion: W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates
//! from monotone discrete distributions", ACM TOMACS 6(3), 1996. It needs no table, so that a billion objects
//! cost as much as ten, and accepts at the first try nearly always.

use tiermem_base::{Access, Rng};

use super::elementary::{exp, exp_minus_1_ratio, ln, ln_plus_1_ratio};
use super::permute::Permutation;
use super::{ALPHA_MAX, OBJECTS_MAX, STEP_NS, Sizes};

/// Draws ranks from a Zipf distribution.
#[derive(Clone, Debug)]
pub struct ZipfRanks {
    objects: f64,
    alpha: f64,
    /// The area under the density at the left end, where rank 1 begins, and at the right end, N + 1/2.
    area_start: f64,
    area_end: f64,
    /// How far left of its rank a point may lie and still be accepted without computing the density.
    sure: f64,
}

impl ZipfRanks {
    /// A distribution over `objects` ranks. `None` unless `objects` is in `1..=OBJECTS_MAX` and `alpha` in
    /// `0..=ALPHA_MAX`.
    pub fn new(objects: u64, alpha: f64) -> Option<ZipfRanks> {
        if !(1..=OBJECTS_MAX).contains(&objects) || !(0.0..=ALPHA_MAX).contains(&alpha) {
            return None;
        }
        let mut ranks =
            ZipfRanks { objects: objects as f64, alpha, area_start: 0.0, area_end: 0.0, sure: 0.0 };
        // Rank 1 gets exactly its density as area, so that it never has to be rejected.
        ranks.area_start = ranks.area(1.5) - 1.0;
        ranks.area_end = ranks.area(ranks.objects + 0.5);
        ranks.sure = 2.0 - ranks.area_inverse(ranks.area(2.5) - ranks.density(2.0));
        Some(ranks)
    }

    /// The next rank less one: 0 is the one asked for most.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.area_end + rng.unit_f64() * (self.area_start - self.area_end);
            let point = self.area_inverse(area);
            let rank = (point + 0.5).floor().clamp(1.0, self.objects);
            if rank - point <= self.sure || area >= self.area(rank + 0.5) - self.density(rank) {
                return rank as u64 - 1;
            }
        }
    }

    /// `x^-alpha`, the density before it is scaled.
    fn density(&self, x: f64) -> f64 {
        exp(-self.alpha * ln(x))
    }

    /// The integral of the density from 1 to `x`: `(x^(1-alpha) - 1) / (1 - alpha)`, and `ln x` at alpha 1. The
    /// form below goes from one to the other without a seam.
    fn area(&self, x: f64) -> f64 {
        let log = ln(x);
        log * exp_minus_1_ratio((1.0 - self.alpha) * log)
    }

    /// The inverse of [`Self::area`].
    fn area_inverse(&self, area: f64) -> f64 {
        let t = (1.0 - self.alpha) * area;
        // For alpha > 1 the whole area to infinity is finite; rounding may reach it.
        if t <= -1.0 + f64::EPSILON {
            return self.objects;
        }
        exp(area * ln_plus_1_ratio(t))
    }
}

/// Look-ups of keys `0..objects` with Zipf-distributed popularity.
#[derive(Clone, Debug)]
pub struct Zipf {
    ranks: ZipfRanks,
    keys: Option<Permutation>,
    sizes: Sizes,
    rng: Rng,
    time_ns: u64,
}

impl Zipf {
    /// Look-ups from `ranks`. With `keys`, ranks become keys by that permutation, so that hot keys are not
    /// neighbours; without, key 0 is the hottest.
    pub fn new(ranks: ZipfRanks, keys: Option<Permutation>, sizes: Sizes, seed: u64) -> Self {
        Zipf { ranks, keys, sizes, rng: Rng::seeded(seed), time_ns: 0 }
    }
}

impl Iterator for Zipf {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let rank = self.ranks.draw(&mut self.rng);
        let key = self.keys.as_ref().map_or(rank, |keys| keys.apply(rank));
        let access = Access::get(self.time_ns, key, self.sizes.of(key));
        self.time_ns = self.time_ns.wrapping_add(STEP_NS);
        Some(access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::SizeDistribution;
    use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

    /// Pearson's statistic of `draws` samples against the exact probabilities, over cells of at least ten
    /// expected samples (the tail is one cell), and the cells.
    fn chi_square(objects: u64, alpha: f64, draws: u32, seed: u64) -> (f64, usize) {
        let ranks = ZipfRanks::new(objects, alpha).unwrap();
        let mut rng = Rng::seeded(seed);
        let mut counts = vec![0u32; objects as usize];
        for _ in 0..draws {
            counts[ranks.draw(&mut rng) as usize] += 1;
        }
        let weights: Vec<f64> = (1..=objects).map(|rank| (rank as f64).powf(-alpha)).collect();
        let scale = f64::from(draws) / weights.iter().sum::<f64>();
        let (mut sum, mut cells) = (0.0, 0);
        let (mut expected, mut seen) = (0.0, 0.0);
        for (weight, count) in weights.iter().zip(&counts) {
            expected += weight * scale;
            seen += f64::from(*count);
            if expected >= 10.0 {
                sum += (seen - expected).powi(2) / expected;
                cells += 1;
                (expected, seen) = (0.0, 0.0);
            }
        }
        // What is left over is less than one cell; it is left out.
        (sum, cells)
    }

    #[test]
    fn ranks_follow_the_exact_probabilities() {
        for alpha in [0.0, 0.3, 0.5, 0.9, 0.99, 0.999_999_999, 1.0, 1.000_000_001, 1.2, 2.0, 3.0] {
            for objects in [1, 2, 3, 10, 1000] {
                let (sum, cells) = chi_square(objects, alpha, 100_000, 42);
                // Mean `cells - 1`, variance twice that: five deviations happen by chance once in a million.
                let freedom = cells.saturating_sub(1) as f64;
                assert!(
                    sum <= freedom + 5.0 * (2.0 * freedom).sqrt() + 1e-9,
                    "alpha {alpha}, {objects} objects: chi-square {sum} at {freedom} degrees of freedom"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_alpha_gives_its_own_distribution(alpha in 0.0f64..=ALPHA_MAX, seed in any::<u64>()) {
            let (sum, cells) = chi_square(50, alpha, 20_000, seed);
            let freedom = cells.saturating_sub(1) as f64;
            // Wider than above, for 64 random cases are drawn at each run.
            prop_assert!(sum <= freedom + 8.0 * (2.0 * freedom).sqrt() + 10.0, "{sum} at {freedom}");
        }

        #[test]
        fn ranks_stay_in_range(objects in 1u64..=OBJECTS_MAX, alpha in 0.0f64..=ALPHA_MAX, seed in any::<u64>()) {
            let ranks = ZipfRanks::new(objects, alpha).unwrap();
            let mut rng = Rng::seeded(seed);
            for _ in 0..50 {
                prop_assert!(ranks.draw(&mut rng) < objects);
            }
        }
    }

    #[test]
    fn impossible_distributions_are_refused() {
        for (objects, alpha) in [(0, 1.0), (OBJECTS_MAX + 1, 1.0), (1, -0.1), (1, 3.1), (1, f64::NAN)] {
            assert!(ZipfRanks::new(objects, alpha).is_none(), "{objects} {alpha}");
        }
    }

    #[test]
    fn the_stream_is_the_same_on_every_machine() {
        // Written down once. If this fails, traces named by their description no longer mean the same.
        let ranks = ZipfRanks::new(1_000_000, 0.99).unwrap();
        let keys = Permutation::new(1_000_000, 1);
        let trace = Zipf::new(ranks, Some(keys), Sizes::new(SizeDistribution::Fixed(1), 1), 1);
        let sum = trace.take(100_000).fold(0u64, |sum, access| sum.rotate_left(7) ^ access.key);
        assert_eq!(sum, 5_483_888_856_678_310_755);
    }
}
