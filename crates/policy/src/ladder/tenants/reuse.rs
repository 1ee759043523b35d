//! How soon a tenant's items are used again in a tier.

/// The mean reuse time of a tenant's hits in a tier, where what was noted half a window ago and longer weighs half, and so on.
///
/// A tier's own mean ([`crate::promote::ReuseWindow`]) is that of whoever asks most. Held against it, the items of a tenant that
/// asks less often would never go up into room that is its own, and those of one that asks more often would always come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reuse {
    sum: u64,
    hits: u32,
    /// The half of a window that was noted last.
    half: u32,
}

impl Reuse {
    fn at(mut self, half: u32) -> Self {
        let passed = half.wrapping_sub(self.half);
        if passed > 0 {
            self.sum = self.sum.checked_shr(passed).unwrap_or(0);
            self.hits = self.hits.checked_shr(passed).unwrap_or(0);
            self.half = half;
        }
        self
    }

    /// Notes a hit.
    #[inline]
    pub fn note(&mut self, reuse: u64, half: u32) {
        *self = self.at(half);
        self.sum = self.sum.saturating_add(reuse);
        self.hits = self.hits.saturating_add(1);
    }

    /// Whether `reuse` is below the mean times `factor` in 1/256; everything is when there was no hit lately.
    #[inline]
    pub fn is_below_mean(&self, reuse: u64, factor: u32, half: u32) -> bool {
        let Reuse { sum, hits, .. } = self.at(half);
        hits == 0 || (u128::from(reuse) * u128::from(hits)) << 8 < u128::from(sum) * u128::from(factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promote::WHOLE;

    #[test]
    fn what_is_old_weighs_less_and_is_forgotten() {
        let mut reuse = Reuse::default();
        assert!(reuse.is_below_mean(u64::MAX, WHOLE, 0), "nobody was there yet");
        (0..64).for_each(|_| reuse.note(1000, 0));
        assert!(reuse.is_below_mean(999, WHOLE, 0) && !reuse.is_below_mean(1000, WHOLE, 0));
        // 32 of 1000 and 32 of 10.
        (0..32).for_each(|_| reuse.note(10, 1));
        assert!(reuse.is_below_mean(504, WHOLE, 1) && !reuse.is_below_mean(505, WHOLE, 1));
        assert!(reuse.is_below_mean(u64::MAX, WHOLE, 100), "long ago");
        reuse.note(7, 100);
        assert!(reuse.is_below_mean(6, WHOLE, 100) && !reuse.is_below_mean(7, WHOLE, 100));
    }
}
