//! Working set: the bytes that most of the accesses go to.

use tiermem_base::Heat;

/// Bytes of the hottest granules that have the share `share` (from 0 to 1) of all accesses. Beside the heat of each region stand the bytes
/// of its granules that were touched.
pub fn bytes_for_share(regions: &[(&Heat, &[u64])], share: f64) -> u64 {
    let mut granules: Vec<(f64, u64)> = regions
        .iter()
        .flat_map(|(heat, touched)| heat.totals().into_iter().zip(*touched))
        .filter(|(total, _)| *total > 0.0)
        .map(|(total, touched)| (total, *touched))
        .collect();
    // The most accesses for a byte first.
    let density = |granule: &(f64, u64)| granule.0 / granule.1.max(1) as f64;
    granules.sort_by(|a, b| density(b).total_cmp(&density(a)));
    let wanted = granules.iter().map(|granule| granule.0).sum::<f64>() * share.clamp(0.0, 1.0);
    let (mut sum, mut bytes) = (0.0, 0);
    for (total, touched) in granules {
        // A hair of rounding is no reason for one more granule.
        if sum >= wanted * (1.0 - 1e-12) {
            break;
        }
        sum += total;
        bytes += touched;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_bytes_come_first() {
        let heat = Heat::of(10, 3, vec![1.0, 0.0, 0.0, 1.0, 8.0, 0.0]);
        let whole = [10, 10, 0];
        assert_eq!(bytes_for_share(&[(&heat, &whole)], 0.8), 10);
        assert_eq!(bytes_for_share(&[(&heat, &whole)], 1.0), 20);
        // Two accesses to one byte are more than eight to ten.
        let mostly_empty = [1, 10, 0];
        assert_eq!(bytes_for_share(&[(&heat, &mostly_empty)], 0.2), 1);
        assert_eq!(bytes_for_share(&[(&heat, &mostly_empty)], 1.0), 11);
        assert_eq!(bytes_for_share(&[], 0.5), 0);
    }
}
