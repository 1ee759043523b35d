//! Where the accesses of each slice gather, and so the way that a hotspot takes (Fisher 2025, figures 4.7 and 4.13).

use tiermem_base::Heat;

/// Where the accesses of one slice gather.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spot {
    /// Its middle, in granules from the region's start; a granule's own middle is a half.
    pub granule: f64,
    /// How far it reaches to each side, in granules.
    pub spread_granules: f64,
}

/// The spot of each slice; `None` where there is no access. What every slice does to a granule is taken away first, so that the
/// spot is what this slice does more.
pub fn path(heat: &Heat) -> Vec<Option<Spot>> {
    let mean: Vec<f64> = heat.totals().iter().map(|total| total / heat.slices().max(1) as f64).collect();
    (0..heat.slices())
        .map(|slice| {
            let row = heat.row(slice);
            let sum: f64 = row.iter().map(|value| f64::from(*value)).sum();
            if sum <= 0.0 {
                return None;
            }
            let more = |at: usize| (f64::from(row[at]) - mean[at]).max(0.0);
            let excess: f64 = (0..row.len()).map(more).sum();
            // A slice that does nothing more than the others has its spot where its accesses are.
            let weight = |at: usize| if excess > 0.0 { more(at) } else { f64::from(row[at]) };
            let total: f64 = (0..row.len()).map(weight).sum();
            let middle = (0..row.len()).map(|at| weight(at) * (at as f64 + 0.5)).sum::<f64>() / total;
            let variance =
                (0..row.len()).map(|at| weight(at) * (at as f64 + 0.5 - middle).powi(2)).sum::<f64>() / total;
            Some(Spot { granule: middle, spread_granules: variance.sqrt() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spot_that_moves_is_followed() {
        let heat = Heat::of(4096, 4, vec![9.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 9.0]);
        let path = path(&heat);
        assert!(path[0].is_some_and(|spot| spot.granule < 1.0));
        assert_eq!(path[1], None);
        assert!(path[2].is_some_and(|spot| spot.granule > 3.0));
    }
}
