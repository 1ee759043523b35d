//! Eviction law: the distribution of the rank, by recency, of the item that a random-sampling cache evicts.

use tiermem_base::Rng;

/// With which probability the object that is evicted lies within the youngest share `q` of the cache: the distribution
/// of its rank by recency, 0 for the most recently used and 1 for the least.
///
/// This is all that tells one sampling policy from another, because none of them looks at anything but recency.
#[derive(Clone, Debug)]
pub struct EvictionLaw {
    /// The distribution at 0, 1/`STEPS` … 1, and once more at the end.
    table: Vec<f64>,
    /// The steepest slope of the distribution: how many times as likely as the average one an object goes.
    slope_max: f64,
}

const STEPS: usize = 2048;

impl EvictionLaw {
    /// K-LRU: the oldest of `k` objects, drawn with replacement, goes. All `k` lie within the youngest share q with
    /// probability q^k; this is where a real-valued `k` gets its meaning. `k` is at least 1.
    pub fn k_lru(k: f64) -> Self {
        let k = k.max(1.0);
        Self::tabulate(|q| q.powf(k))
    }

    /// Redis: at each eviction `k` drawn objects join a pool of the `POOL` (16) oldest drawn so far, and the oldest of the
    /// pool goes. With an unbounded pool and `k` above 1 no more objects can go from the oldest share p than are drawn
    /// from it, k p, and all that are drawn go; so the evicted ranks would be even over the oldest 1/k. The bounded
    /// pool loses some: its law is counted over a long run with a fixed seed.
    pub fn redis(k: u32) -> Self {
        const POOL: usize = 16;
        const WARM_UP: usize = 1_000;
        const EVICTIONS: usize = 400_000;
        let mut rng = Rng::seeded(0x7265_6469_735F_6C72);
        let mut pool: Vec<f64> = Vec::with_capacity(POOL + 1);
        let mut counts = vec![0u32; STEPS];
        for eviction in 0..WARM_UP + EVICTIONS {
            for _ in 0..k.max(1) {
                let rank = rng.unit_f64();
                let at = pool.partition_point(|&other| other < rank);
                pool.insert(at, rank);
                if pool.len() > POOL {
                    pool.remove(0);
                }
            }
            let oldest = pool.pop().unwrap_or_default();
            if eviction >= WARM_UP {
                counts[((oldest * STEPS as f64) as usize).min(STEPS - 1)] += 1;
            }
        }
        let mut below = vec![0.0];
        let mut sum = 0;
        below.extend(counts.iter().map(|count| {
            sum += count;
            f64::from(sum) / EVICTIONS as f64
        }));
        Self::tabulate(|q| below[(q * STEPS as f64).round() as usize])
    }

    /// The probability that the evicted object's rank is at most `q`, which is from 0 to 1.
    #[inline]
    pub fn at(&self, q: f64) -> f64 {
        let position = q * STEPS as f64;
        let step = (position as usize).min(STEPS);
        let low = self.table[step];
        low + (position - step as f64) * (self.table[step + 1] - low)
    }

    /// How many times as likely as the average object the likeliest one is to go.
    pub fn slope_max(&self) -> f64 {
        self.slope_max
    }

    fn tabulate(distribution: impl Fn(f64) -> f64) -> Self {
        let mut table: Vec<f64> = (0..=STEPS).map(|step| distribution(step as f64 / STEPS as f64)).collect();
        // Over a sixteenth of the range, so that the noise of a counted law does not matter.
        let slope = |at: usize| (table[at + STEPS / 16] - table[at]) * 16.0;
        let slope_max = (0..=STEPS - STEPS / 16).map(slope).fold(1.0, f64::max);
        table.push(table[STEPS]);
        EvictionLaw { table, slope_max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k_lru_is_a_power() {
        for k in [1.0, 2.0, 5.0, 7.5, 16.0] {
            let law = EvictionLaw::k_lru(k);
            for q in [0.0, 0.1, 0.3337, 0.9, 0.9999, 1.0f64] {
                assert!((law.at(q) - q.powf(k)).abs() < 1e-5, "{k} {q}");
            }
        }
    }

    #[test]
    fn the_pool_evicts_nearly_evenly_from_the_oldest() {
        let law = EvictionLaw::redis(10);
        // Of the oldest tenth all items that are drawn are evicted, except for those that a full pool loses.
        assert!((law.at(0.95) - 0.5).abs() < 0.02, "{}", law.at(0.95));
        assert!(law.at(0.85) < 0.02, "{}", law.at(0.85));
        assert_eq!(law.at(1.0), 1.0);
        // With one sample there is nothing to choose from in the long run.
        let random = EvictionLaw::redis(1);
        assert!((random.at(0.5) - 0.5).abs() < 0.01, "{}", random.at(0.5));
    }
}
