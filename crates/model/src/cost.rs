//! Cost of memory and value of its hits: from a miss-ratio curve to money.

use serde::{Deserialize, Serialize};
use tiermem_base::TierKind;
use tiermem_base::tier::{HOURS_PER_MONTH, Price};

use crate::mrc::{Curve, Unit};

/// Memory that can be bought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Its name.
    pub name: String,
    /// Its price by the gigabyte.
    pub price: Price,
}

impl Offer {
    /// Memory of this kind at the price that it is taken to have; of kinds of which nothing is assumed it costs nothing.
    pub fn usual(name: &str, kind: TierKind) -> Self {
        let price = Price::usual(kind).unwrap_or_else(|| Price::dollars_per_gb(0.0));
        Offer { name: name.to_owned(), price }
    }
}

/// Prices of memory and misses, all in one currency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// The fast memory.
    pub fast: Offer,
    /// The slow memory.
    pub slow: Offer,
    /// Months over which one-time payments are spread.
    pub months: f64,
    /// The share of the hits that fast memory shall serve where both are bought, 0 to 1.
    pub fast_hit_share: f64,
    /// Of a million misses, if that is known.
    pub per_million_misses: Option<f64>,
}

impl Default for Prices {
    /// DRAM and CXL memory at what tiers of their kinds are taken to cost. Three years.
    fn default() -> Self {
        Prices {
            fast: Offer::usual("DRAM", TierKind::Dram),
            slow: Offer::usual("CXL", TierKind::Emulated),
            months: 36.0,
            fast_hit_share: 0.8,
            per_million_misses: None,
        }
    }
}

/// The memory that reaches a hit ratio, and its cost per month.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Hits over requests.
    pub hit_ratio: f64,
    /// All memory.
    pub bytes: f64,
    /// The fast memory of it, where the rest is slow.
    pub fast_bytes: f64,
    /// All of it bought as fast memory.
    pub all_fast: f64,
    /// All of it bought as slow memory.
    pub all_slow: f64,
    /// Both.
    pub tiered: f64,
    /// The misses that are left, if their price and the rate of requests are known.
    pub misses: Option<f64>,
}

impl Prices {
    /// The cost of a memory of `bytes`, of which `fast_bytes` are fast, per month.
    pub fn per_month(&self, bytes: f64, fast_bytes: f64) -> f64 {
        let slow_bytes = (bytes - fast_bytes).max(0.0);
        self.fast.price.per_month(fast_bytes, self.months)
            + self.slow.price.per_month(slow_bytes, self.months)
    }

    /// The cost of a cache of `bytes`, given its miss-ratio curve in bytes. In a chain of two tiers under one order of eviction,
    /// the fast one serves the hits of a cache of its own size: its part is the smallest that has its share of the hits.
    pub fn of_size(&self, curve: &Curve, bytes: f64, requests_per_second: Option<f64>) -> Cost {
        debug_assert!(curve.unit == Unit::Bytes, "memory is bought in bytes");
        let hit_ratio = 1.0 - curve.miss_ratio(bytes.round() as u64);
        let fast = size_for(curve, 1.0 - self.fast_hit_share * hit_ratio).unwrap_or(bytes).min(bytes);
        const SECONDS_PER_MONTH: f64 = HOURS_PER_MONTH * 3600.0;
        let misses = self
            .per_million_misses
            .zip(requests_per_second)
            .map(|(price, rate)| price * rate * SECONDS_PER_MONTH * (1.0 - hit_ratio) / 1e6);
        Cost {
            hit_ratio,
            bytes,
            fast_bytes: fast,
            all_fast: self.per_month(bytes, bytes),
            all_slow: self.per_month(bytes, 0.0),
            tiered: self.per_month(bytes, fast),
            misses,
        }
    }
}

/// The smallest size at which the curve is down to `miss_ratio`: linear between points, and from 1 at size 0. `None` if the
/// curve never gets there.
pub fn size_for(curve: &Curve, miss_ratio: f64) -> Option<f64> {
    let (mut left_size, mut left_ratio) = (0.0, 1.0);
    if miss_ratio >= left_ratio {
        return Some(0.0);
    }
    for point in &curve.points {
        let size = point.size as f64;
        if point.miss_ratio <= miss_ratio {
            let share = (left_ratio - miss_ratio) / (left_ratio - point.miss_ratio);
            return Some(left_size + share * (size - left_size));
        }
        (left_size, left_ratio) = (size, point.miss_ratio);
    }
    None
}

/// Hit ratio that each of `parts` equal parts of a memory of `size` adds to the parts before it. They sum up to the hit ratio
/// of the whole.
pub fn gains(curve: &Curve, size: u64, parts: u32) -> Vec<f64> {
    let at = |part: u32| match part {
        0 => 1.0,
        _ => curve.miss_ratio((size as f64 * f64::from(part) / f64::from(parts)).round() as u64),
    };
    (0..parts).map(|part| at(part) - at(part + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mrc::Point;
    use proptest::prelude::*;

    fn curve(ratios: &[f64]) -> Curve {
        let point = |(at, miss_ratio): (usize, &f64)| Point {
            size: (at as u64 + 1) * 1_000_000_000,
            miss_ratio: *miss_ratio,
            error: 0.0,
        };
        Curve { unit: Unit::Bytes, requests: 100.0, points: ratios.iter().enumerate().map(point).collect() }
    }

    #[test]
    fn a_gigabyte_costs_its_price_over_the_months() {
        let prices = Prices { months: 10.0, fast_hit_share: 0.5, ..Prices::default() };
        // Half of the hits at 2 GB (0.6) are those of 0.6 GB.
        let cost = prices.of_size(&curve(&[0.5, 0.4, 0.4]), 2e9, Some(1.0));
        assert!((cost.hit_ratio - 0.6).abs() < 1e-9 && (cost.fast_bytes - 0.6e9).abs() < 1.0, "{cost:?}");
        assert!((cost.all_fast - 0.975).abs() < 1e-9 && (cost.all_slow - 0.4875).abs() < 1e-9);
        assert!((cost.tiered - (0.6 * 0.4875 + 1.4 * 0.24375)).abs() < 1e-9);
        assert_eq!(cost.misses, None);
        // 2,629,800 seconds a month, 40% of whose requests miss.
        let priced = Prices { per_million_misses: Some(2.0), ..prices };
        let misses = priced.of_size(&curve(&[0.5, 0.4]), 2e9, Some(1.0)).misses.unwrap();
        assert!((misses - 2.0 * 2.6298 * 0.4).abs() < 1e-9, "{misses}");
    }

    proptest! {
        #[test]
        fn sizes_are_where_the_curve_gets_there(
            mut ratios in prop::collection::vec(0.0f64..1.0, 1..10),
            wanted in 0.0f64..1.0,
        ) {
            ratios.sort_by(|a, b| b.total_cmp(a));
            let curve = curve(&ratios);
            match size_for(&curve, wanted) {
                Some(size) => prop_assert!((curve.miss_ratio(size.round() as u64) - wanted).abs() < 1e-6),
                None => prop_assert!(ratios.last().unwrap() > &wanted),
            }
        }

        #[test]
        fn gains_sum_up_to_the_hit_ratio(ratios in prop::collection::vec(0.0f64..1.0, 1..10), parts in 1u32..20) {
            let curve = curve(&ratios);
            let size = 1_000_000_000 * ratios.len() as u64;
            let sum: f64 = gains(&curve, size, parts).iter().sum();
            prop_assert!((sum - (1.0 - ratios.last().unwrap())).abs() < 1e-9);
        }
    }

    #[test]
    fn what_cannot_be_reached_has_no_size() {
        assert_eq!(size_for(&curve(&[0.5, 0.2]), 0.1), None);
        assert_eq!(size_for(&curve(&[0.5, 0.2]), 1.0), Some(0.0));
    }
}
