//! The position of the hotspot in each slice, and so its path (Fisher 2025, figures 4.7 and 4.13).

use tiermem_base::Heat;

/// Where the accesses of one slice gather.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spot {
    /// Its middle, in granules from the region's start; a granule's own middle is a half.
    pub granule: f64,
    /// How far it reaches to each side, in granules: the standard deviation of its accesses' places.
    pub spread_granules: f64,
}

/// A hotspot that moves through a region again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sweep {
    /// The first granule of the stretch that it moves through.
    pub first: usize,
    /// The granules of that stretch.
    pub granules: usize,
    /// How many granules it moves in a second; negative if towards lower addresses.
    pub granules_per_s: f64,
    /// From one pass to the next.
    pub period_ns: u64,
    /// Granules that are hot in one slice.
    pub hot_granules: usize,
    /// The share of slices whose hotspot is where the speed says, from the one before.
    pub steady: f64,
}

/// A slice has a hotspot only if it stands out by at least this many times the deviation of the slice's granules.
const STANDS_OUT: f64 = 3.0;
/// Nor is what has less than such a part of the most that stands out: places that are visited less often than others stand out
/// a little in every slice.
const PART_OF_MOST: f64 = 0.3;
/// A sweep moves as its speed says in such a share of slices at least.
const STEADY_MIN: f64 = 0.5;
/// And a slice's step is as the speed says if it is off by no more than such a part of it, or of the stretch.
const STEP_TOLERANCE: f64 = 0.5;
/// The part of the stretch: samples place a hotspot no better.
const PLACE_TOLERANCE: f64 = 0.05;
/// A quarter of the way on it is where the speed says to within such a part of the stretch, in such a share of slices; by chance it
/// would be in a quarter of them.
const FAR_TOLERANCE: f64 = 0.125;
const ARRIVING_MIN: f64 = 0.45;
/// A place is known to within a granule. On a stretch of fewer granules than these that is more than the part above, and what
/// stands still would seem to move by chance.
const STRETCH_MIN: usize = (1.0 / FAR_TOLERANCE) as usize;
/// Slices with a hotspot that a sweep is told from.
const SLICES_MIN: usize = 6;

/// The accesses of each granule in a slice beyond those that it has in every slice, and beyond noise; all of them where nothing
/// stands out.
fn excess(heat: &Heat, slice: usize, mean: &[f64]) -> Vec<f64> {
    let row = heat.row(slice);
    let more: Vec<f64> = row.iter().zip(mean).map(|(value, mean)| f64::from(*value) - mean).collect();
    // Medians are not moved by the hotspot itself, unless that is half of the region.
    let level = median(more.iter().copied());
    let noise = median(more.iter().map(|value| (value - level).abs())) * 1.48;
    let most = more.iter().copied().fold(0.0, f64::max) - level;
    let least = (STANDS_OUT * noise).max(most * PART_OF_MOST);
    let beyond: Vec<f64> =
        more.iter().map(|value| value - level).map(|value| if value > least { value } else { 0.0 }).collect();
    if beyond.iter().any(|value| *value > 0.0) {
        return beyond;
    }
    // A slice that does nothing more than the others has its spot where its accesses are.
    let positive: Vec<f64> = more.iter().map(|value| value.max(0.0)).collect();
    let has_more = positive.iter().any(|value| *value > 0.0);
    if has_more { positive } else { row.iter().map(|value| f64::from(*value)).collect() }
}

/// The spot of each slice; `None` where there is no access. What every slice does to a granule is taken away first, so that the
/// spot is what this slice does more.
pub fn path(heat: &Heat) -> Vec<Option<Spot>> {
    let mean: Vec<f64> = heat.totals().iter().map(|total| total / heat.slices().max(1) as f64).collect();
    let spot = |slice: usize| {
        let row = heat.row(slice);
        if row.iter().all(|value| *value <= 0.0) {
            return None;
        }
        let weights = excess(heat, slice, &mean);
        let total: f64 = weights.iter().sum();
        let place = |at: usize| at as f64 + 0.5;
        let middle = weights.iter().enumerate().map(|(at, weight)| weight * place(at)).sum::<f64>() / total;
        let square = |(at, weight): (usize, &f64)| weight * (place(at) - middle).powi(2);
        let variance = weights.iter().enumerate().map(square).sum::<f64>() / total;
        Some(Spot { granule: middle, spread_granules: variance.sqrt() })
    };
    (0..heat.slices()).map(spot).collect()
}

/// The part of a region that a sweep goes through: the shortest stretch with nearly all accesses. An allocator may have put other
/// things before and behind.
fn busy(totals: &[f64]) -> std::ops::Range<usize> {
    /// The share of accesses that may lie outside, at each end.
    const OUTSIDE: f64 = 0.01;
    // What is hot all the time does not count for more than what is passed through.
    let level = median(totals.iter().copied().filter(|total| *total > 0.0)) * 2.0;
    let all: f64 = totals.iter().map(|total| total.min(level)).sum();
    let end_of = |totals: &mut dyn Iterator<Item = f64>| {
        let mut sum = 0.0;
        totals
            .take_while(|total| {
                sum += total.min(level);
                sum <= all * OUTSIDE
            })
            .count()
    };
    let from = end_of(&mut totals.iter().copied());
    let behind = end_of(&mut totals.iter().rev().copied());
    from..totals.len().saturating_sub(behind).max(from)
}

/// The sweep that a region's hotspot makes, if it moves at one speed in one direction most of the time, and comes around again
/// from the end to the start. `slices` are start and end of each, in nanoseconds. A sweep that passes through the region
/// more than twice in a slice leaves no trace of it.
pub fn sweep(heat: &Heat, slices: &[(u64, u64)]) -> Option<Sweep> {
    let totals = heat.totals();
    let span = busy(&totals);
    if span.len() < STRETCH_MIN {
        return None;
    }
    let ring = span.len() as f64;
    let mean: Vec<f64> = totals.iter().map(|total| total / heat.slices().max(1) as f64).collect();
    let (mut places, mut hot) = (Vec::new(), Vec::new());
    for (slice, (start, end)) in slices.iter().enumerate().take(heat.slices()) {
        if heat.row(slice)[span.clone()].iter().all(|value| *value <= 0.0) {
            continue;
        }
        let weights = &excess(heat, slice, &mean)[span.clone()];
        let Some(middle) = ring_middle(weights) else { continue };
        places.push(((start + end) as f64 / 2.0, middle));
        hot.push(granules_of_most(weights.to_vec()));
    }
    if places.len() < SLICES_MIN {
        return None;
    }
    let steps: Vec<(f64, f64)> = places
        .windows(2)
        .map(|pair| {
            let moved = (pair[1].1 - pair[0].1 + ring / 2.0).rem_euclid(ring) - ring / 2.0;
            ((pair[1].0 - pair[0].0) / 1e9, moved)
        })
        .collect();
    let mut speeds: Vec<f64> =
        steps.iter().filter(|(time, _)| *time > 0.0).map(|(time, moved)| moved / time).collect();
    speeds.sort_by(f64::total_cmp);
    let median = *speeds.get(speeds.len() / 2)?;
    let expected = |time: f64| median * time;
    let fits = |(time, moved): &&(f64, f64)| {
        (moved - expected(*time)).abs()
            <= (expected(*time).abs() * STEP_TOLERANCE).max(1.0).max(ring * PLACE_TOLERANCE)
    };
    let steady = steps.iter().filter(fits).count() as f64 / steps.len() as f64;
    // Steady steps say the speed better than the median of all does.
    let (time, moved) =
        steps.iter().filter(fits).fold((0.0, 0.0), |sum, step| (sum.0 + step.0, sum.1 + step.1));
    let granules_per_s = moved / time;
    let typical = expected(time / steps.len().max(1) as f64).abs();
    let moves = granules_per_s.is_finite() && typical >= 0.25 && granules_per_s.abs() * time >= ring / 2.0;
    // Small steps are as the speed says by chance, so it must say as well where the hotspot is a quarter of the way on.
    let far = (ring / 4.0 / typical.max(0.25)).round().clamp(1.0, places.len() as f64 / 2.0) as usize;
    let arrives = |pair: &[(f64, f64)]| {
        let (from, to) = (pair[0], pair[far]);
        let error = to.1 - from.1 - granules_per_s * (to.0 - from.0) / 1e9;
        ((error + ring / 2.0).rem_euclid(ring) - ring / 2.0).abs() <= ring * FAR_TOLERANCE
    };
    let arrived = places.windows(far + 1).filter(|pair| arrives(pair)).count() as f64;
    let arriving = arrived / (places.len() - far) as f64;
    if steady < STEADY_MIN || arriving < ARRIVING_MIN || !moves {
        return None;
    }
    hot.sort_unstable();
    let period_ns = (ring / granules_per_s.abs() * 1e9) as u64;
    let (first, granules) = (span.start, span.len());
    Some(Sweep {
        first,
        granules,
        granules_per_s,
        period_ns,
        hot_granules: hot[hot.len() / 2].max(1),
        steady,
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The middle of weights on a ring; `None` if they are spread all around it.
fn ring_middle(weights: &[f64]) -> Option<f64> {
    let turn = std::f64::consts::TAU / weights.len() as f64;
    let pull = |(at, weight): (usize, &f64)| {
        let angle = (at as f64 + 0.5) * turn;
        (weight * angle.cos(), weight * angle.sin(), *weight)
    };
    let (x, y, sum) =
        weights.iter().enumerate().map(pull).fold((0.0, 0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
    (sum > 0.0 && f64::hypot(x, y) > 0.1 * sum).then(|| (y.atan2(x) / turn).rem_euclid(weights.len() as f64))
}

/// How many granules have nine tenths of the weight, the heaviest first.
fn granules_of_most(mut weights: Vec<f64>) -> usize {
    weights.sort_by(|a, b| b.total_cmp(a));
    let wanted = weights.iter().sum::<f64>() * 0.9;
    let mut sum = 0.0;
    weights
        .iter()
        .take_while(|weight| {
            let before = sum;
            sum += **weight;
            before < wanted
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tiermem_base::Rng;

    #[test]
    fn a_spot_that_moves_is_followed() {
        let heat = Heat::of(4096, 4, vec![9.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 9.0]);
        let path = path(&heat);
        assert!(path[0].is_some_and(|spot| spot.granule < 1.0));
        assert_eq!(path[1], None);
        assert!(path[2].is_some_and(|spot| spot.granule > 3.0));
    }

    /// A hotspot of `hot` granules that moves `speed` granules in each slice of 0.1 s, over a background.
    fn moving(granules: usize, slices: usize, speed: f64, hot: f64, seed: u64) -> (Heat, Vec<(u64, u64)>) {
        let mut rng = Rng::seeded(seed);
        let mut heat = Heat::cold(4096, granules, slices);
        for slice in 0..slices {
            let start = (slice as f64 * speed).rem_euclid(granules as f64);
            for at in 0..granules {
                let ahead = (at as f64 + 0.5 - start).rem_euclid(granules as f64);
                let level = if ahead < hot { 100.0 } else { 10.0 };
                heat.row_mut(slice)[at] = (level * (0.8 + 0.4 * rng.unit_f64())) as f32;
            }
        }
        (heat, (0..slices as u64).map(|slice| (slice * 100_000_000, (slice + 1) * 100_000_000)).collect())
    }

    proptest! {
        #[test]
        fn sweeps_have_their_speed(
            seed in any::<u64>(), granules in 40..300_usize, part in 0.02..0.4_f64, down in any::<bool>(),
        ) {
            let speed = granules as f64 * part * if down { -1.0 } else { 1.0 };
            let hot = (granules as f64 * 0.1).max(3.0);
            let slices = ((3.0 / part) as usize).clamp(8, 200);
            let (heat, times) = moving(granules, slices, speed, hot, seed);
            let found = sweep(&heat, &times);
            prop_assert!(found.is_some());
            let found = found.unwrap();
            prop_assert!((found.granules_per_s / (speed * 10.0) - 1.0).abs() < 0.1, "{speed} {found:?}");
            prop_assert!((found.hot_granules as f64) < hot * 1.5 + 2.0, "{hot} {found:?}");
        }

        #[test]
        fn spots_are_within_one_granule_of_the_truth(seed in any::<u64>(), granules in 40..300_usize) {
            let (hot, speed) = (8.0, 1.7);
            let slices = ((granules as f64 - hot) / speed) as usize;
            let (heat, _) = moving(granules, slices, speed, hot, seed);
            for (slice, spot) in path(&heat).into_iter().enumerate() {
                let truth = slice as f64 * speed + hot / 2.0;
                prop_assert!((spot.unwrap().granule - truth).abs() < 1.0, "{slice}: {spot:?} {truth}");
            }
        }

        #[test]
        fn what_does_not_move_is_no_sweep(seed in any::<u64>(), granules in 4..200_usize) {
            let (heat, times) = moving(granules, 60, 0.0, 5.0, seed);
            prop_assert_eq!(sweep(&heat, &times), None);
        }
    }
}
