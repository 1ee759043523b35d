//! Miss-ratio curve: the miss ratio at a number of sizes, as data.

use serde::{Deserialize, Serialize};

use super::Unit;

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Of the cache, in the curve's unit.
    pub size: u64,
    /// Misses over requests, 0 to 1.
    pub miss_ratio: f64,
    /// The truth lies within `miss_ratio` plus or minus this in 95 of 100 samples; 0 where nothing was sampled.
    pub error: f64,
}

/// Miss ratios at ascending sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The unit of sizes.
    pub unit: Unit,
    /// Requests that the curve speaks of: its weight in a mean.
    pub requests: f64,
    /// Ascending in size.
    pub points: Vec<Point>,
}

impl Curve {
    /// The miss ratio at `size`: linear between points, constant beyond the last, and from 1 at size 0 to the first.
    pub fn miss_ratio(&self, size: u64) -> f64 {
        let right = self.points.partition_point(|point| point.size < size);
        let (left_size, left_ratio) = match right.checked_sub(1).map(|left| self.points[left]) {
            Some(left) => (left.size, left.miss_ratio),
            None => (0, 1.0),
        };
        match self.points.get(right) {
            None => left_ratio,
            Some(right) => {
                let share = (size - left_size) as f64 / (right.size - left_size) as f64;
                left_ratio + share * (right.miss_ratio - left_ratio)
            }
        }
    }

    /// The mean of curves of parts of a workload that were told apart by a hash of the key, at the sizes of the first
    /// curve: each part is a spatial sample, scaled to the whole. Weights are requests; the errors follow from how much
    /// the parts differ. `None` for no curve.
    pub fn mean(parts: &[Curve]) -> Option<Curve> {
        let first = parts.first()?;
        let requests: f64 = parts.iter().map(|part| part.requests).sum();
        let point = |point: &Point| {
            let values: Vec<(f64, f64)> =
                parts.iter().map(|part| (part.requests, part.miss_ratio(point.size))).collect();
            let (miss_ratio, error) = weighted_mean(&values);
            Point { size: point.size, miss_ratio, error }
        };
        Some(Curve { unit: first.unit, requests, points: first.points.iter().map(point).collect() })
    }

    /// The lower envelope of several curves at the sizes of the first, and for each of its points the number of the curve
    /// that is lowest there: the merged curve of a cache that may choose its policy or its K (Wang 2024,
    /// section 4.1.1). Of equal ones the first is taken. `None` for no curve.
    pub fn lower_envelope(curves: &[Curve]) -> Option<(Curve, Vec<usize>)> {
        let first = curves.first()?;
        let mut chosen = Vec::with_capacity(first.points.len());
        let mut points = Vec::with_capacity(first.points.len());
        for (at, point) in first.points.iter().enumerate() {
            let (mut lowest, mut best) = (0, *point);
            for (number, curve) in curves.iter().enumerate().skip(1) {
                // Curves usually have the same sizes; then the error comes along.
                let other = match curve.points.get(at) {
                    Some(other) if other.size == point.size => *other,
                    _ => Point { size: point.size, miss_ratio: curve.miss_ratio(point.size), error: 0.0 },
                };
                if other.miss_ratio < best.miss_ratio {
                    (lowest, best) = (number, other);
                }
            }
            chosen.push(lowest);
            points.push(best);
        }
        Some((Curve { unit: first.unit, requests: first.requests, points }, chosen))
    }

    /// The mean of the differences between two curves' miss ratios, without sign, at the points of this one.
    pub fn mean_absolute_error(&self, truth: &Curve) -> f64 {
        let difference = |point: &Point| (point.miss_ratio - truth.miss_ratio(point.size)).abs();
        self.points.iter().map(difference).sum::<f64>() / self.points.len().max(1) as f64
    }
}

/// The mean of (weight, value) pairs and the half-width of its 95% interval by Student's distribution; the variance is
/// that of the ratio estimator of section 6.4 in Cochran's Sampling Techniques.
pub(super) fn weighted_mean(values: &[(f64, f64)]) -> (f64, f64) {
    let total: f64 = values.iter().map(|value| value.0).sum();
    if total <= 0.0 {
        return (0.0, 0.0);
    }
    let mean = values.iter().map(|value| value.0 * value.1).sum::<f64>() / total;
    let count = values.len() as f64;
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = values.iter().map(|value| (value.0 * (value.1 - mean)).powi(2)).sum();
    let variance = squares * count / (count - 1.0) / (total * total);
    (mean, student_95(values.len() - 1) * variance.sqrt())
}

/// The two-sided 95% quantile of Student's distribution.
pub(super) fn student_95(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    match degrees {
        0 => f64::INFINITY,
        1..=30 => TABLE[degrees - 1],
        // Correct to 0.001 from here on.
        _ => 1.960 + 2.5 / degrees as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(ratios: &[f64]) -> Curve {
        let point =
            |(at, &miss_ratio): (usize, &f64)| Point { size: 10 * (at as u64 + 1), miss_ratio, error: 0.0 };
        Curve { unit: Unit::Objects, requests: 100.0, points: ratios.iter().enumerate().map(point).collect() }
    }

    #[test]
    fn is_linear_between_its_points() {
        let curve = curve(&[0.8, 0.4]);
        let at: Vec<f64> = [0, 5, 10, 15, 20, 1000].iter().map(|&size| curve.miss_ratio(size)).collect();
        let expected = [1.0, 0.9, 0.8, 0.6, 0.4, 0.4];
        assert!(at.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{at:?}");
    }

    #[test]
    fn the_envelope_is_the_lowest_and_says_which() {
        let (envelope, which) =
            Curve::lower_envelope(&[curve(&[0.8, 0.5, 0.2]), curve(&[0.7, 0.6, 0.2])]).unwrap();
        assert_eq!(envelope, curve(&[0.7, 0.5, 0.2]));
        assert_eq!(which, [1, 0, 0]);
        assert_eq!(Curve::lower_envelope(&[]), None);
    }

    #[test]
    fn means_carry_an_error() {
        let mean = Curve::mean(&[curve(&[0.4, 0.2]), curve(&[0.6, 0.2])]).unwrap();
        assert!((mean.points[0].miss_ratio - 0.5).abs() < 1e-12 && mean.points[0].error > 0.1);
        assert_eq!((mean.points[1].miss_ratio, mean.points[1].error), (0.2, 0.0));
        assert_eq!(mean.requests, 200.0);
        assert!((curve(&[0.5, 0.3]).mean_absolute_error(&mean) - 0.05).abs() < 1e-12);
    }
}
