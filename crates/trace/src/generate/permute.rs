//! A seeded permutation of `0..n` that needs no table: it scatters the hot ranks over the key space.

/// A bijection of `0..n`.
#[derive(Clone, Debug)]
pub struct Permutation {
    n: u64,
    bits: u32,
    /// Odd factors, one for each round.
    factors: [u64; 3],
    offset: u64,
}

impl Permutation {
    /// The permutation of `0..n` that `seed` chooses.
    pub fn new(n: u64, seed: u64) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        let mut rng = tiermem_base::Rng::seeded(seed);
        let factors = [(); 3].map(|()| rng.next_u64() | 1);
        Permutation { n, bits: bits.max(1), factors, offset: rng.next_u64() }
    }

    /// Where `x`, which must be below `n`, goes.
    ///
    /// The rounds permute `0..2^bits`, the smallest power of two that holds `n`. A result outside of `0..n` is
    /// sent through again until it is inside (cycle walking): that takes fewer than two tries on average, ends
    /// because the cycle comes back to `x` itself, and keeps the map a bijection.
    pub fn apply(&self, x: u64) -> u64 {
        debug_assert!(x < self.n);
        let mut x = x;
        loop {
            x = self.rounds(x);
            if x < self.n {
                return x;
            }
        }
    }

    /// Adding, multiplying by an odd number and xor with one's own high bits are each invertible modulo `2^bits`.
    fn rounds(&self, x: u64) -> u64 {
        let mask = u64::MAX >> (u64::BITS - self.bits);
        self.factors.iter().fold(x.wrapping_add(self.offset) & mask, |x, factor| {
            let x = x.wrapping_mul(*factor) & mask;
            x ^ (x >> self.bits.div_ceil(2))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_key_is_reached_once(n in 1u64..5000, seed in any::<u64>()) {
            let keys = Permutation::new(n, seed);
            let mut reached = vec![false; n as usize];
            for x in 0..n {
                let key = keys.apply(x);
                prop_assert!(key < n && !reached[key as usize]);
                reached[key as usize] = true;
            }
        }

        #[test]
        fn large_spaces_stay_in_range(n in 1u64.., seed in any::<u64>(), x in any::<u64>()) {
            prop_assert!(Permutation::new(n, seed).apply(x % n) < n);
        }
    }

    #[test]
    fn neighbours_part() {
        let keys = Permutation::new(1_000_000, 1);
        let near = (0..1000).filter(|x| keys.apply(*x).abs_diff(keys.apply(x + 1)) < 1000).count();
        assert!(near < 20, "{near} of 1000 neighbours stayed neighbours");
    }
}
