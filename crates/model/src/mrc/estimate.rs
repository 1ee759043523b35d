//! Estimate of a ratio of the whole, and of its error, from the counts of a sample.

use super::curve::student_95;

/// Counts of a part of a sample, of the sample, or of the whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartCounts {
    pub keys: f64,
    pub requests: f64,
}

/// How many standard errors a slope must exceed before it is trusted, squared.
const SIGNIFICANT: f64 = 12.0;
/// Misses per request of the whole, and the half-width of its 95% interval, from a sample in which `misses` were counted
/// and independent parts of it with theirs.
///
/// The estimator is the ratio of misses to keys, times the known number of keys; where the parts show clearly that
/// misses also grow with the requests per key (a trace of few hot keys), it is corrected for the difference between
/// the sample's requests per key and the known ones (a regression estimator, Cochran, Sampling Techniques, chapter 7; the
/// slope is shrunk towards zero as far as it is uncertain).
pub(super) fn ratio_by_keys(
    sample: PartCounts,
    misses: f64,
    parts: &[(PartCounts, f64)],
    known: PartCounts,
) -> (f64, f64) {
    let filled: Vec<&(PartCounts, f64)> = parts.iter().filter(|part| part.0.keys > 0.0).collect();
    let total = |of: fn(&(PartCounts, f64)) -> f64| filled.iter().map(|part| of(part)).sum::<f64>();
    let (keys, requests, part_misses) = (total(|p| p.0.keys), total(|p| p.0.requests), total(|p| p.1));
    let per_request = known.keys / known.requests.max(1.0);
    let per_key = misses / sample.keys;
    if filled.len() < 3 {
        return (per_key * per_request, 1.0);
    }
    // Deviations from what a part of this many keys would have on average.
    let deviations: Vec<(f64, f64)> = filled
        .iter()
        .map(|(counts, misses)| {
            (counts.requests - requests / keys * counts.keys, misses - part_misses / keys * counts.keys)
        })
        .collect();
    let sum = |of: fn(&(f64, f64)) -> f64| deviations.iter().map(of).sum::<f64>();
    let (xx, xy, yy) = (sum(|d| d.0 * d.0), sum(|d| d.0 * d.1), sum(|d| d.1 * d.1));
    let degrees = filled.len() as f64 - 2.0;
    let slope = if xx > 0.0 {
        let slope = (xy / xx).clamp(0.0, 1.0);
        let variance = ((yy - xy * xy / xx).max(0.0) / degrees) / xx;
        slope * (1.0 - SIGNIFICANT * variance / (slope * slope).max(1e-12)).max(0.0)
    } else {
        0.0
    };
    let estimate = per_key + slope * (known.requests / known.keys - sample.requests / sample.keys);
    let rest: f64 = deviations.iter().map(|d| (d.1 - slope * d.0).powi(2)).sum();
    let count = filled.len() as f64;
    let standard_error = (rest * count / (count - 1.0)).sqrt() / keys;
    (estimate * per_request, student_95(filled.len() - 1) * standard_error * per_request)
}
