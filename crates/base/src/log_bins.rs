//! Bins of a histogram whose widths grow with what they hold.

/// Values below 2^`precision_bits` have a bin each; beyond, a bin is at most 2^(1 - `precision_bits`) of its values wide. With 64-bit
/// values that is at most 2^(p-1) (66 - p) bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBins {
    precision_bits: u32,
}

impl LogBins {
    /// Bins of this precision; less than 1 is 1, more than 24 is 24.
    pub const fn new(precision_bits: u32) -> Self {
        let precision_bits = match precision_bits {
            0 => 1,
            1..=24 => precision_bits,
            _ => 24,
        };
        LogBins { precision_bits }
    }

    /// The bin of a value.
    #[inline]
    pub const fn bin(self, value: u64) -> usize {
        let bits = u64::BITS - value.leading_zeros();
        if bits <= self.precision_bits {
            return value as usize;
        }
        let shift = bits - self.precision_bits;
        // The top bit of the shifted value is always set: each octave beyond the first has half the bins.
        let half = 1usize << (self.precision_bits - 1);
        shift as usize * half + (value >> shift) as usize
    }

    /// The lowest and the highest value of a bin.
    #[inline]
    pub const fn range(self, bin: usize) -> (u64, u64) {
        let half = 1usize << (self.precision_bits - 1);
        if bin < 2 * half {
            return (bin as u64, bin as u64);
        }
        let shift = bin / half - 1;
        let lowest = ((bin - shift * half) as u64) << shift;
        (lowest, lowest + ((1u64 << shift) - 1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_value_lies_in_the_range_of_its_bin(value in any::<u64>(), shift in 0u32..64, bits in 1u32..12) {
            let bins = LogBins::new(bits);
            let value = value >> shift;
            let (lowest, highest) = bins.range(bins.bin(value));
            prop_assert!(lowest <= value && value <= highest);
            prop_assert!((highest - lowest) as f64 <= value as f64 * 2f64.powi(1 - bits as i32));
        }
    }
}
