//! The sizes of generated values. A key keeps its size for ever, as items of a real store mostly do.

/// How a value's size follows from its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Every value has this many bytes.
    Fixed(u32),
    /// Sizes are uniform between the two, both included, chosen by a hash of the key and `seed`.
    Uniform {
        /// The smallest size in bytes.
        min: u32,
        /// The largest size in bytes.
        max: u32,
        /// Chooses which key gets which size.
        seed: u64,
    },
}

impl Sizes {
    /// Bytes of the value of `key`.
    pub fn of(&self, key: u64) -> u32 {
        match *self {
            Sizes::Fixed(size) => size,
            Sizes::Uniform { min, max, seed } => {
                let span = u64::from(max.saturating_sub(min)) + 1;
                // The high half of the product maps 64 random bits evenly onto the span.
                let step = (u128::from(mix(key ^ mix(seed))) * u128::from(span)) >> 64;
                min + step as u32
            }
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection whose output bits all depend on all
/// input bits.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sizes_keep_to_their_range(a in any::<u32>(), b in any::<u32>(), seed in any::<u64>(), key in any::<u64>()) {
            let (min, max) = (a.min(b), a.max(b));
            let sizes = Sizes::Uniform { min, max, seed };
            prop_assert!((min..=max).contains(&sizes.of(key)));
            prop_assert_eq!(sizes.of(key), sizes.of(key));
        }
    }

    #[test]
    fn neighbouring_keys_get_sizes_over_the_whole_range() {
        let sizes = Sizes::Uniform { min: 64, max: 1023, seed: 1 };
        let mean = (0..10_000).map(|key| f64::from(sizes.of(key))).sum::<f64>() / 10_000.0;
        // The deviation of the mean is 277 / 100.
        assert!((mean - 543.5).abs() < 14.0, "{mean}");
    }
}
