//! Working set: the bytes used in each slice, since the start, and for most of the accesses.

use tiermem_base::Heat;

/// Slices of the longest.
fn slices(heats: &[&Heat]) -> usize {
    heats.iter().map(|heat| heat.slices()).max().unwrap_or(0)
}

/// Bytes of the granules that each slice touches.
pub fn per_slice(heats: &[&Heat]) -> Vec<u64> {
    let touched = |heat: &&Heat, slice: usize| match slice < heat.slices() {
        true => heat.row(slice).iter().filter(|value| **value > 0.0).count() as u64 * heat.granule_bytes(),
        false => 0,
    };
    (0..slices(heats)).map(|slice| heats.iter().map(|heat| touched(heat, slice)).sum()).collect()
}

/// Bytes of the granules that were touched up to the end of each slice: the curve of the working set's size.
pub fn curve(heats: &[&Heat]) -> Vec<u64> {
    let mut seen: Vec<Vec<bool>> = heats.iter().map(|heat| vec![false; heat.granules()]).collect();
    let mut bytes = 0;
    (0..slices(heats))
        .map(|slice| {
            for (heat, seen) in heats.iter().zip(&mut seen).filter(|(heat, _)| slice < heat.slices()) {
                for (value, seen) in heat.row(slice).iter().zip(seen) {
                    if *value > 0.0 && !*seen {
                        *seen = true;
                        bytes += heat.granule_bytes();
                    }
                }
            }
            bytes
        })
        .collect()
}

/// Bytes of the hottest granules that have the share `share` (from 0 to 1) of all accesses.
pub fn bytes_for_share(heats: &[&Heat], share: f64) -> u64 {
    let mut granules: Vec<(f64, u64)> = heats
        .iter()
        .flat_map(|heat| heat.totals().into_iter().map(|total| (total, heat.granule_bytes())))
        .filter(|(total, _)| *total > 0.0)
        .collect();
    // The most accesses for a byte first.
    granules.sort_by(|a, b| (b.0 / b.1 as f64).total_cmp(&(a.0 / a.1 as f64)));
    let wanted = granules.iter().map(|granule| granule.0).sum::<f64>() * share.clamp(0.0, 1.0);
    let (mut sum, mut bytes) = (0.0, 0);
    for (total, granule_bytes) in granules {
        // A hair of rounding is no reason for one more granule.
        if sum >= wanted * (1.0 - 1e-12) {
            break;
        }
        sum += total;
        bytes += granule_bytes;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granules_are_counted_once_and_the_hottest_come_first() {
        let heat = Heat::of(10, 3, vec![1.0, 0.0, 0.0, 1.0, 8.0, 0.0]);
        assert_eq!(per_slice(&[&heat]), [10, 20]);
        assert_eq!(curve(&[&heat]), [10, 20]);
        assert_eq!(bytes_for_share(&[&heat], 0.8), 10);
        assert_eq!(bytes_for_share(&[&heat], 1.0), 20);
        assert_eq!(bytes_for_share(&[], 0.5), 0);
    }
}
