//! Popularity: its skew, as the exponent of a Zipf distribution fitted to the accesses per key.

use serde::Serialize;

use crate::generate::ycsb::zeta;

/// The Zipf exponent by two estimators, each with how well it fits. Fields are stable.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ZipfFit {
    /// Least squares through the logarithms of rank and of accesses, over ranks that grow by a tenth at a time, so that
    /// each decade of ranks weighs alike, as far as keys have five accesses. What most papers plot.
    pub alpha_least_squares: f64,
    /// The share of the variance of the logarithms that the line explains, 1 at best.
    pub r_squared: f64,
    /// Maximum likelihood for the ranks 1 to the number of keys seen; `None` under spatial sampling, which thins out
    /// the ranks. Keys that were never asked for are unknown to it, so it is a little high on short traces.
    pub alpha_likelihood: Option<f64>,
    /// The largest distance between the shares of requests to the first k keys, as seen and as fitted by maximum
    /// likelihood (Kolmogorov-Smirnov), 0 at best.
    pub ks_distance: Option<f64>,
}

/// A point of the popularity curve. Fields are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RankPoint {
    /// The rank of a key by its accesses, 1 for the most popular one; under spatial sampling estimated.
    pub rank: u64,
    /// Accesses of the key at this rank.
    pub accesses: u32,
}

/// Points of the popularity curve from counts in descending order, at ranks that grow by some 5% at a time, the last rank
/// included. `rate` is the share of keys that the counts are of.
pub(super) fn by_rank(sorted: &[u32], rate: f64) -> Vec<RankPoint> {
    let mut points = Vec::new();
    let mut rank = 1usize;
    while let Some(&accesses) = sorted.get(rank - 1) {
        points.push(RankPoint { rank: ((rank as f64 / rate).round() as u64).max(1), accesses });
        let next = rank + (rank / 20).max(1);
        rank = if rank < sorted.len() { next.min(sorted.len()) } else { next };
    }
    points
}

/// Accesses that a key must have to count in the least-squares fit: below, ranks are decided by chance.
const COUNT_MIN: u32 = 5;
/// Points that the least-squares fit must have.
const POINTS_MIN: usize = 5;
const ALPHA_LIMIT: f64 = 10.0;

/// Fits `counts`, the accesses of each key in any order; `whole` says that no key is missing. `None` if there are too
/// few keys with enough accesses. Sorts the counts: O(M log M).
pub fn fit_zipf(counts: &mut [u32], whole: bool) -> Option<ZipfFit> {
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let (alpha_least_squares, r_squared) = least_squares(counts)?;
    let alpha_likelihood = whole.then(|| likelihood(counts));
    let ks_distance = alpha_likelihood.map(|alpha| ks_distance(counts, alpha));
    Some(ZipfFit { alpha_least_squares, r_squared, alpha_likelihood, ks_distance })
}

fn least_squares(sorted: &[u32]) -> Option<(f64, f64)> {
    let mut points = Vec::new();
    let mut rank = 1usize;
    while let Some(count) = sorted.get(rank - 1).filter(|count| **count >= COUNT_MIN) {
        points.push(((rank as f64).ln(), f64::from(*count).ln()));
        rank += (rank / 10).max(1);
    }
    if points.len() < POINTS_MIN {
        return None;
    }
    let n = points.len() as f64;
    let (mean_x, mean_y) = (
        points.iter().map(|point| point.0).sum::<f64>() / n,
        points.iter().map(|point| point.1).sum::<f64>() / n,
    );
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(x - mean_x, y - mean_y)).sum::<f64>();
    let (xx, xy, yy) = (sum(|x, _| x * x), sum(|x, y| x * y), sum(|_, y| y * y));
    // Equal counts lie on a level line, but for rounding.
    if yy < 1e-20 * n {
        return Some((0.0, 1.0));
    }
    Some((-xy / xx, xy * xy / (xx * yy)))
}

/// The exponent at which the mean logarithm of the rank is the one seen. The mean falls with the exponent.
fn likelihood(sorted: &[u32]) -> f64 {
    let n = sorted.len() as u64;
    let total: f64 = sorted.iter().map(|count| f64::from(*count)).sum();
    let logs = sorted.iter().zip(1u64..).map(|(count, rank)| f64::from(*count) * (rank as f64).ln());
    let mean = logs.sum::<f64>() / total;
    // The mean is the derivative of -ln zeta.
    let mean_at = |alpha: f64| {
        const STEP: f64 = 1e-4;
        (zeta(n, alpha - STEP).ln() - zeta(n, alpha + STEP).ln()) / (2.0 * STEP)
    };
    let (mut low, mut high) = (0.0, ALPHA_LIMIT);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if mean_at(middle) > mean { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

fn ks_distance(sorted: &[u32], alpha: f64) -> f64 {
    let total: f64 = sorted.iter().map(|count| f64::from(*count)).sum();
    let scale = zeta(sorted.len() as u64, alpha);
    let (mut seen, mut fitted, mut largest) = (0.0, 0.0, 0.0f64);
    for (count, rank) in sorted.iter().zip(1u64..) {
        seen += f64::from(*count) / total;
        fitted += (rank as f64).powf(-alpha) / scale;
        largest = largest.max((seen - fitted).abs());
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::ZipfRanks;
    use tiermem_base::Rng;

    #[test]
    fn the_popularity_curve_has_both_ends() {
        let counts: Vec<u32> = (0..1000).map(|at| 1000 - at).collect();
        let points = by_rank(&counts, 1.0);
        assert_eq!(points[0], RankPoint { rank: 1, accesses: 1000 });
        assert_eq!(*points.last().unwrap(), RankPoint { rank: 1000, accesses: 1 });
        assert!(points.windows(2).all(|two| two[0].rank < two[1].rank) && points.len() < 150);
        // Of a tenth of the keys, the first one is about the tenth of all.
        assert_eq!(by_rank(&counts, 0.1)[0].rank, 10);
        assert_eq!(by_rank(&[], 1.0), []);
    }

    fn drawn(objects: u64, alpha: f64, draws: u32) -> Vec<u32> {
        let ranks = ZipfRanks::new(objects, alpha).unwrap();
        let mut rng = Rng::seeded(3);
        let mut counts = vec![0; objects as usize];
        (0..draws).for_each(|_| counts[ranks.draw(&mut rng) as usize] += 1);
        counts.retain(|count| *count > 0);
        counts
    }

    #[test]
    fn both_estimators_find_the_exponent_that_was_drawn_from() {
        for alpha in [0.5, 0.8, 0.99, 1.0, 1.2, 1.6] {
            let fit = fit_zipf(&mut drawn(2000, alpha, 1_000_000), true).unwrap();
            let likelihood = fit.alpha_likelihood.unwrap();
            assert!((likelihood - alpha).abs() < 0.02, "{alpha}: {fit:?}");
            assert!((fit.alpha_least_squares - alpha).abs() < 0.05, "{alpha}: {fit:?}");
            assert!(fit.r_squared > 0.98 && fit.ks_distance.unwrap() < 0.01, "{alpha}: {fit:?}");
        }
    }

    #[test]
    fn exact_counts_are_fitted_exactly() {
        let mut counts: Vec<u32> = (1..=100).map(|rank| 1_000_000 / rank).collect();
        let fit = fit_zipf(&mut counts, true).unwrap();
        assert!((fit.alpha_least_squares - 1.0).abs() < 1e-3 && fit.r_squared > 0.9999);
        assert!((fit.alpha_likelihood.unwrap() - 1.0).abs() < 1e-3 && fit.ks_distance.unwrap() < 1e-3);
    }

    #[test]
    fn what_is_level_has_exponent_zero_and_what_is_no_zipf_fits_badly() {
        let fit = fit_zipf(&mut [50; 1000], true).unwrap();
        assert!(fit.alpha_least_squares == 0.0 && fit.alpha_likelihood.unwrap() < 1e-3);
        // Two levels.
        let mut counts = vec![10_000; 500];
        counts.extend([10; 500]);
        assert!(fit_zipf(&mut counts, true).unwrap().ks_distance.unwrap() > 0.2);
    }

    #[test]
    fn too_little_to_fit_is_not_fitted() {
        assert_eq!(fit_zipf(&mut [], true), None);
        assert_eq!(fit_zipf(&mut [9, 4, 4, 4, 4, 4], true), None);
        assert_eq!(fit_zipf(&mut [9, 8, 7, 6, 5], false).unwrap().alpha_likelihood, None);
    }
}
