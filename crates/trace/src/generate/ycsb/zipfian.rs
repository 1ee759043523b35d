//! The Zipfian distributions of YCSB, which are not quite Zipf distributions: they must be drawn as YCSB draws them.
//!
//! YCSB uses the method of J. Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994,
//! section 3.2: the first two ranks get their exact probabilities, the others those of a continuous approximation.

use tiermem_base::Rng;

use crate::generate::elementary::{exp, exp_minus_1_ratio, ln};

/// YCSB's exponent.
pub const THETA: f64 = 0.99;
/// The number of ranks from which the scrambled distribution draws, whatever the number of keys.
pub const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// The sum of `k^-0.99` for `k` up to [`SCRAMBLED_ITEMS`], as YCSB has it written down.
pub const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

fn power(base: f64, exponent: f64) -> f64 {
    if base <= 0.0 { 0.0 } else { exp(exponent * ln(base)) }
}

/// The sum of `k^-theta` for `k` from 1 to `n`. The head is summed; the rest is its integral with the first two terms
/// of the Euler-Maclaurin formula, whose error is below 1e-15 from a head of 1000 on.
pub fn zeta(n: u64, theta: f64) -> f64 {
    const HEAD: u64 = 1000;
    let head: f64 = (1..=n.min(HEAD)).map(|k| power(k as f64, -theta)).sum();
    if n <= HEAD {
        return head;
    }
    let (a, b) = (HEAD as f64, n as f64);
    let (left, span) = (1.0 - theta, ln(b) - ln(a));
    let integral = power(a, left) * span * exp_minus_1_ratio(left * span);
    // Trapezoidal rule without the term at `a`, which the head holds.
    let ends = (power(b, -theta) - power(a, -theta)) / 2.0;
    let slope = theta / 12.0 * (power(a, -theta - 1.0) - power(b, -theta - 1.0));
    head + integral + ends + slope
}

/// Gray's method for a number of items that may grow.
#[derive(Clone, Debug)]
pub struct Zipfian {
    /// The number of items at the start: YCSB keeps using it in one place after the number has grown.
    items_at_start: f64,
    items: u64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// Ranks `0..items`.
    pub fn new(items: u64) -> Zipfian {
        Zipfian::with_zeta(items, zeta(items, THETA))
    }

    /// The 10^10 ranks that [`Scrambled`] spreads over the keys.
    fn fixed() -> Zipfian {
        Zipfian::with_zeta(SCRAMBLED_ITEMS, SCRAMBLED_ZETA)
    }

    fn with_zeta(items: u64, zeta: f64) -> Zipfian {
        let mut zipfian = Zipfian { items_at_start: items as f64, items, zeta, eta: 0.0 };
        zipfian.set_eta();
        zipfian
    }

    fn set_eta(&mut self) {
        let zeta_2 = 1.0 + power(0.5, THETA);
        self.eta = (1.0 - power(2.0 / self.items_at_start, 1.0 - THETA)) / (1.0 - zeta_2 / self.zeta);
    }

    /// Lets the number of ranks grow to `items`; it never shrinks.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            self.zeta += (self.items + 1..=items).map(|k| power(k as f64, -THETA)).sum::<f64>();
            self.items = items;
            self.set_eta();
        }
    }

    /// A rank; 0 is the most frequent.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        self.rank_at(rng.unit_f64())
    }

    /// The rank for a uniform number from 0 up to 1.
    fn rank_at(&self, u: f64) -> u64 {
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + power(0.5, THETA) {
            return 1;
        }
        let share = power(self.eta * u - self.eta + 1.0, 1.0 / (1.0 - THETA));
        (self.items as f64 * share) as u64
    }
}

/// YCSB's `ScrambledZipfianGenerator`: a rank out of 10^10 is hashed, and the hash modulo the number of keys is the
/// key. So every key has a share of the cold ranks, and the hot keys lie anywhere.
#[derive(Clone, Debug)]
pub struct Scrambled {
    ranks: Zipfian,
    keys: u64,
}

impl Scrambled {
    /// Keys `0..keys`, which must not be 0.
    pub fn new(keys: u64) -> Scrambled {
        Scrambled { ranks: Zipfian::fixed(), keys: keys.max(1) }
    }

    /// A key.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        fnv_hash(self.ranks.draw(rng)) % self.keys
    }
}

/// YCSB's hash: FNV-1a over the eight bytes, the lowest first, and the absolute value of the signed result.
pub fn fnv_hash(value: u64) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 1_099_511_628_211;
    let hash = value
        .to_le_bytes()
        .iter()
        .fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    (hash as i64).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_in_ycsbs_key_names() {
        // `user6284781860667377211` is the first key that YCSB loads.
        assert_eq!(
            [0, 1, 2].map(fnv_hash),
            [6_284_781_860_667_377_211, 8_517_097_267_634_966_620, 1_820_151_046_732_198_393]
        );
    }

    #[test]
    fn zeta_is_the_sum() {
        for (n, theta) in [
            (1, 0.99),
            (1000, 0.99),
            (1001, 0.99),
            (200_000, 0.99),
            (50_000, 1.0),
            (50_000, 1.0 + 1e-13),
            (50_000, 0.3),
            (5000, 4.0),
        ] {
            let sum: f64 = (1..=n).map(|k| (k as f64).powf(-theta)).sum();
            assert!((zeta(n, theta) - sum).abs() < 1e-9 * sum, "{n} {theta}: {} {sum}", zeta(n, theta));
        }
        assert!((zeta(SCRAMBLED_ITEMS, THETA) - SCRAMBLED_ZETA).abs() < 1e-8);
    }

    #[test]
    fn growing_ends_where_starting_large_would_but_for_ycsbs_quirk() {
        let mut grown = Zipfian::new(1000);
        grown.grow(5000);
        grown.grow(2000);
        assert_eq!(grown.items, 5000);
        assert!((grown.zeta - zeta(5000, THETA)).abs() < 1e-12);
    }

    /// The probability of ranks below `rank`, from 2 on, by solving Gray's formula for the uniform number.
    fn below(zipfian: &Zipfian, rank: u64) -> f64 {
        let share = rank as f64 / zipfian.items as f64;
        ((share.powf(1.0 - THETA) - 1.0 + zipfian.eta) / zipfian.eta).clamp(0.0, 1.0)
    }

    #[test]
    fn ranks_follow_grays_formula() {
        const DRAWS: u32 = 200_000;
        for zipfian in [Zipfian::new(1000), Zipfian::new(100_000), Zipfian::fixed()] {
            let mut rng = Rng::seeded(11);
            let ranks: Vec<u64> = (0..DRAWS).map(|_| zipfian.draw(&mut rng)).collect();
            assert!(ranks.iter().all(|rank| *rank < zipfian.items));
            let share = |ranks_below: u64| {
                ranks.iter().filter(|rank| **rank < ranks_below).count() as f64 / f64::from(DRAWS)
            };
            // Five deviations of a share are at most 0.0056.
            assert!((share(1) - 1.0 / zipfian.zeta).abs() < 0.0056);
            assert!((share(2) - (1.0 + 0.5f64.powf(THETA)) / zipfian.zeta).abs() < 0.0056);
            for rank in [3, 10, 100, 500, 900] {
                let wanted = below(&zipfian, rank).max((1.0 + 0.5f64.powf(THETA)) / zipfian.zeta);
                assert!((share(rank) - wanted).abs() < 0.0056, "{rank}: {} {wanted}", share(rank));
            }
        }
    }

    #[test]
    fn it_is_near_the_zipf_distribution_that_it_approximates() {
        let zipfian = Zipfian::new(10_000);
        for rank in [10, 100, 1000] {
            let exact = zeta(rank, THETA) / zipfian.zeta;
            assert!((below(&zipfian, rank) - exact).abs() < 0.03, "{rank}");
        }
    }

    #[test]
    fn scrambling_puts_each_rank_where_its_hash_says() {
        const DRAWS: u32 = 200_000;
        let scrambled = Scrambled::new(1000);
        let mut rng = Rng::seeded(5);
        let mut counts = vec![0u32; 1000];
        for _ in 0..DRAWS {
            counts[scrambled.draw(&mut rng) as usize] += 1;
        }
        // The two hottest keys have the first two ranks; the cold ranks, hashed evenly, give each key its share more.
        let cold = 1.0 - below(&scrambled.ranks, 1000);
        for (rank, exact) in [(0, 1.0), (1, 0.5f64.powf(THETA))] {
            let wanted = exact / SCRAMBLED_ZETA + cold / 1000.0;
            let share = f64::from(counts[(fnv_hash(rank) % 1000) as usize]) / f64::from(DRAWS);
            assert!((share - wanted).abs() < 0.003, "{rank}: {share} {wanted}");
        }
        // No key is without a share of the cold ranks: 0.6 of all draws, so 120 of these for each key.
        assert!(cold > 0.6 && counts.iter().all(|count| *count > 60));
    }
}
