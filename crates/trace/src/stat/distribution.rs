//! Distribution of one quantity, gathered in bounded memory.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Decimal digits to which percentiles are known.
const DIGITS: u8 = 3;
/// Classes of values: one for 0, and one for each power of two.
const OCTAVES: usize = u64::BITS as usize + 1;

/// Values gathered so far: half a mebibyte at most, however many they are.
#[derive(Clone, Debug)]
pub struct Distribution {
    percentiles: Histogram<u64>,
    octaves: [u64; OCTAVES],
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// Statistics of a distribution. Fields are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DistributionStat {
    /// Values counted; under spatial sampling of keys, the estimate of how many there are.
    pub count: u64,
    /// The smallest value.
    pub min: u64,
    /// The mean.
    pub mean: f64,
    /// The value that 50% of all values do not exceed, to three significant digits; the other percentiles likewise.
    pub p50: u64,
    /// 90%.
    pub p90: u64,
    /// 99%.
    pub p99: u64,
    /// 99.9%.
    pub p999: u64,
    /// The largest value.
    pub max: u64,
    /// How many values lie in each power of two, from the smallest to the largest one that holds any.
    pub histogram: Vec<Bucket>,
}

/// The values of one power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// The smallest value of the class: 0, or a power of two.
    pub from: u64,
    /// The largest value of the class.
    pub to: u64,
    /// Values in it, estimated as [`DistributionStat::count`] is.
    pub count: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Distribution::new()
    }
}

impl Distribution {
    /// No values yet.
    pub fn new() -> Self {
        let percentiles =
            Histogram::new_with_bounds(1, u64::MAX, DIGITS).expect("these bounds and digits are valid");
        Distribution { percentiles, octaves: [0; OCTAVES], count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Takes a value in.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.percentiles.saturating_record(value);
        self.octaves[octave(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Values taken in.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The picture; `None` without values. Counts are divided by `rate`, the share of values that were taken in.
    pub fn stat(&self, rate: f64) -> Option<DistributionStat> {
        if self.count == 0 {
            return None;
        }
        let scaled = |count: u64| if rate == 1.0 { count } else { (count as f64 / rate).round() as u64 };
        // The library rounds up within its precision; no percentile may lie outside of the values.
        let at = |share: f64| self.percentiles.value_at_quantile(share).clamp(self.min, self.max);
        let (first, last) = (octave(self.min), octave(self.max));
        let bucket = |at: usize| Bucket {
            from: if at == 0 { 0 } else { 1 << (at - 1) },
            to: if at == 0 { 0 } else { u64::MAX >> (OCTAVES - 1 - at) },
            count: scaled(self.octaves[at]),
        };
        Some(DistributionStat {
            count: scaled(self.count),
            min: self.min,
            mean: self.sum as f64 / self.count as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.max,
            histogram: (first..=last).map(bucket).collect(),
        })
    }
}

/// 0 for 0, otherwise one more than the exponent of the power of two.
fn octave(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Option<DistributionStat> {
        let mut distribution = Distribution::new();
        values.iter().for_each(|value| distribution.record(*value));
        distribution.stat(1.0)
    }

    proptest! {
        #[test]
        fn it_is_what_sorting_gives(
            values in prop::collection::vec(prop_oneof![0u64..10, 0u64..100_000, any::<u64>()], 1..300),
        ) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let stat = of(&values).unwrap();
            prop_assert_eq!((stat.min, stat.max), (sorted[0], sorted[sorted.len() - 1]));
            let mean = sorted.iter().map(|value| *value as f64).sum::<f64>() / sorted.len() as f64;
            prop_assert!((stat.mean - mean).abs() <= 1e-9 * mean);
            for (share, got) in [(0.5, stat.p50), (0.9, stat.p90), (0.99, stat.p99), (0.999, stat.p999)] {
                let rank = ((share * sorted.len() as f64).ceil() as usize).max(1);
                let exact = sorted[rank - 1];
                prop_assert!(got.abs_diff(exact) as f64 <= exact as f64 / 1000.0, "{share}: {got} for {exact}");
            }
            prop_assert_eq!(stat.histogram.iter().map(|bucket| bucket.count).sum::<u64>(), values.len() as u64);
            for bucket in &stat.histogram {
                let held = values.iter().filter(|value| (bucket.from..=bucket.to).contains(value)).count();
                prop_assert_eq!(bucket.count, held as u64);
            }
            prop_assert!(stat.histogram.windows(2).all(|pair| pair[0].to + 1 == pair[1].from));
        }
    }

    #[test]
    fn nothing_has_no_distribution() {
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn samples_are_scaled() {
        let mut distribution = Distribution::new();
        (0..10).for_each(|value| distribution.record(value));
        let stat = distribution.stat(0.1).unwrap();
        assert_eq!((stat.count, stat.histogram[0].count, stat.mean), (100, 10, 4.5));
    }
}
