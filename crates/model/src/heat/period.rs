//! Spatial period: the distance at which accesses repeat, by autocorrelation over granules (Fisher 2025, section 4.1).

/// A distance at which a region's accesses are like themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// The distance, in granules.
    pub lag: usize,
    /// The autocorrelation there: 1 is the most.
    pub height: f64,
    /// The autocorrelation of the granules' ranks there, which few very hot ones do not hide.
    pub height_of_ranks: f64,
}

/// Peaks that are reported in addition to the fundamental.
const OTHERS_MAX: usize = 7;
/// A peak stands out of what lies to both sides of it by so much.
const PROMINENCE: f64 = 0.05;
/// A period repeats in the region so often at least.
const REPEATS_MIN: usize = 3;
/// Multiples of a lag that are looked at.
const MULTIPLES_MAX: usize = 64;
/// A contrast of at least this many times the noise is significant: of thousands of lags the largest by chance has about four.
const SIGNIFICANCE: f64 = 5.0;
/// And so much at least, since no data are quite without structure.
const CONTRAST_MIN: f64 = 0.1;
/// Multiples of the period have its contrast too, but for chance: the shortest lag with such a part of the best is the period.
const NEARLY: f64 = 0.8;

/// The autocorrelation of granules' accesses at each lag from 0 to `max_lag`, normalised so that lag 0 is 1; all 0 but for lag
/// 0 if all granules are alike. Lags at or beyond the number of granules are left out.
pub fn autocorrelation(totals: &[f64], max_lag: usize) -> Vec<f64> {
    let count = totals.len();
    if count == 0 {
        return Vec::new();
    }
    let mean = totals.iter().sum::<f64>() / count as f64;
    // Zeros behind the data keep its end from meeting its start.
    let length = (2 * count).next_power_of_two();
    let mut wave: Vec<(f64, f64)> = totals.iter().map(|value| (value - mean, 0.0)).collect();
    wave.resize(length, (0.0, 0.0));
    transform(&mut wave);
    wave.iter_mut().for_each(|(re, im)| (*re, *im) = (*re * *re + *im * *im, 0.0));
    // The transform of a real, symmetric sequence is its own inverse but for a factor, which normalising takes out.
    transform(&mut wave);
    let power = wave[0].0;
    let scale = totals.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    // What is left of a difference of equal numbers is no variance.
    let is_even = power / length as f64 <= count as f64 * (scale * 1e-9).powi(2);
    (0..=max_lag.min(count - 1))
        .map(|lag| match lag {
            0 => 1.0,
            _ if is_even => 0.0,
            _ => wave[lag].0 / power,
        })
        .collect()
}

/// The granules from the first that was touched to the last.
pub fn touched_part(totals: &[f64]) -> &[f64] {
    let is_touched = |total: &f64| *total > 0.0;
    let first = totals.iter().position(is_touched).unwrap_or(totals.len());
    let end = totals.iter().rposition(is_touched).map_or(first, |last| last + 1);
    &totals[first..end]
}

/// The discrete Fourier transform in place, by halves (Cooley and Tukey 1965); the length is a power of two.
fn transform(wave: &mut [(f64, f64)]) {
    let length = wave.len();
    let bits = length.trailing_zeros();
    for at in 0..length {
        let swapped = if bits == 0 { 0 } else { at.reverse_bits() >> (usize::BITS - bits) };
        if at < swapped {
            wave.swap(at, swapped);
        }
    }
    let mut half = 1;
    while half < length {
        let angle = -std::f64::consts::PI / half as f64;
        let turns: Vec<(f64, f64)> =
            (0..half).map(|at| ((angle * at as f64).cos(), (angle * at as f64).sin())).collect();
        for block in wave.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for ((a, b), (re, im)) in low.iter_mut().zip(high).zip(&turns) {
                let turned = (b.0 * re - b.1 * im, b.0 * im + b.1 * re);
                (*b, *a) = ((a.0 - turned.0, a.1 - turned.1), (a.0 + turned.0, a.1 + turned.1));
            }
        }
        half *= 2;
    }
}

/// The lags at which accesses repeat: the period first, then other peaks of the autocorrelation, highest first. Empty if
/// nothing repeats at least three times.
///
/// A period's multiples are like it. So lags are told by the contrast of all their multiples to all lags: noise cancels out,
/// trends have none, and an error of one granule in the lag is many in a high multiple.
///
/// What lies before the first granule with accesses and behind the last is left out: memory that nobody touches has no period, and
/// would hide that of the rest.
pub fn periods(totals: &[f64]) -> Vec<Peak> {
    let totals = touched_part(totals);
    let count = totals.len();
    if count < 2 * REPEATS_MIN {
        return Vec::new();
    }
    let curve = autocorrelation(totals, count / 2);
    // A few granules may have most accesses, and hide what the others do: ranks have no such few.
    let ranks = ranks(totals);
    let by_rank = autocorrelation(&ranks, count / 2);
    let best = [(&curve, totals), (&by_rank, &ranks)].map(|(curve, values)| {
        let (lag, contrast) = fundamental(curve, count)?;
        Some((refined(values, lag), contrast))
    });
    let found = best.into_iter().flatten().max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((lag, _)) = found else { return Vec::new() };
    let others = others(&curve, lag);
    let peak = |lag: usize| Peak { lag, height: curve[lag], height_of_ranks: by_rank[lag] };
    [lag].into_iter().chain(others).map(peak).collect()
}

/// The period near `lag` that says most of the values: folded by it, they differ most between places in it, and least at one
/// place (the F statistic). Unlike the autocorrelation this uses all pairs of repeats at once.
fn refined(values: &[f64], lag: usize) -> usize {
    let count = values.len();
    let folded = Folded::new(values);
    let statistic = |period: usize| {
        let between = folded.between(period);
        between / (period - 1) as f64 / (folded.within(between) / (count - period) as f64)
    };
    let reach = (lag / 16).clamp(1, 8);
    let near = (lag - reach).max(2)..=(lag + reach).min(count / REPEATS_MIN).max(lag);
    let best = near.map(|period| (period, statistic(period))).max_by(|a, b| a.1.total_cmp(&b.1));
    let mut period = best.map_or(lag, |(period, _)| period);
    // A multiple of the period says as much as it, but for the noise that its places may follow too.
    while let Some(part) = [2, 3, 5, 7]
        .map(|divisor| period / divisor * usize::from(period.is_multiple_of(divisor)))
        .into_iter()
        .find(|part| *part >= 2 && !folded.says_more(period, *part))
    {
        period = part;
    }
    period
}

/// Values of which each is to be told by its place in a period.
struct Folded<'a> {
    values: &'a [f64],
    mean: f64,
    /// The sum of all squares of distances from the mean.
    all: f64,
}

impl<'a> Folded<'a> {
    fn new(values: &'a [f64]) -> Self {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let all = values.iter().map(|value| (value - mean).powi(2)).sum();
        Folded { values, mean, all }
    }

    /// The sum of squares that the places in a period say.
    fn between(&self, period: usize) -> f64 {
        let mut sums = vec![(0.0, 0_u32); period];
        for (at, value) in self.values.iter().enumerate() {
            let place = &mut sums[at % period];
            *place = (place.0 + value - self.mean, place.1 + 1);
        }
        sums.iter().map(|(sum, count)| sum * sum / f64::from((*count).max(1))).sum()
    }

    /// What they leave unsaid; not quite nothing.
    fn within(&self, between: f64) -> f64 {
        (self.all - between).max(self.all * 1e-12)
    }

    /// Whether a period says more than its part by three standard deviations of what it would by chance (the F test of nested
    /// models).
    fn says_more(&self, period: usize, part: usize) -> bool {
        let (long, short) = (self.between(period), self.between(part));
        let (more, rest) = ((period - part) as f64, (self.values.len() - period) as f64);
        let statistic = (long - short) / more / (self.within(long) / rest);
        statistic > 1.0 + 3.0 * (2.0 / more + 2.0 / rest).sqrt()
    }
}

/// The rank of each value, equal ones sharing the middle of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut next = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        equal.iter().for_each(|at| ranks[*at] = next as f64 + (equal.len() - 1) as f64 / 2.0);
        next += equal.len();
    }
    ranks
}

/// The period by a curve, and its contrast; `None` if there is none.
fn fundamental(curve: &[f64], count: usize) -> Option<(usize, f64)> {
    // Later lags have fewer pairs of granules.
    let unbiased = |lag: usize| curve[lag] * count as f64 / (count - lag) as f64;
    // Sums of all lags up to each.
    let mut up_to = vec![0.0; curve.len()];
    (1..curve.len()).for_each(|lag| up_to[lag] = up_to[lag - 1] + unbiased(lag));
    let contrast = |lag: usize| -> f64 {
        let multiples = ((curve.len() - 1) / lag).min(MULTIPLES_MAX);
        let at_multiples: f64 = (1..=multiples).map(|multiple| unbiased(multiple * lag)).sum();
        // What lies before the first multiple's half is nearer to lag 0 than the rest, so all reach half a lag further.
        let (from, to) = (lag / 2, (multiples * lag + lag / 2).min(curve.len() - 1));
        at_multiples / multiples as f64 - (up_to[to] - up_to[from]) / (to - from) as f64
    };
    let longest = (count / REPEATS_MIN).min(curve.len() - 1);
    let contrasts: Vec<f64> = (0..=longest).map(|lag| if lag < 2 { 0.0 } else { contrast(lag) }).collect();
    let mean = up_to[curve.len() - 1] / (curve.len() - 1) as f64;
    let is_significant = |lag: usize| {
        let multiples = ((curve.len() - 1) / lag).min(MULTIPLES_MAX);
        let noise = (4.0 / (count as f64 * multiples as f64)).sqrt();
        if contrasts[lag] < CONTRAST_MIN.max(SIGNIFICANCE * noise) {
            return false;
        }
        // A half or a third of a period is like the period at few of its multiples.
        let mut heights: Vec<f64> = (1..=multiples).map(|multiple| unbiased(multiple * lag) - mean).collect();
        heights.sort_by(f64::total_cmp);
        heights[(multiples - 1) / 2] >= contrasts[lag] / 2.0
    };
    let most = (2..=longest).filter(|lag| is_significant(*lag)).map(|lag| contrasts[lag]).fold(0.0, f64::max);
    let near = (2..=longest).find(|lag| is_significant(*lag) && contrasts[*lag] >= NEARLY * most)?;
    // The first that is nearly as good may lie on the slope of the best.
    let mut top = near;
    while top < longest && contrasts[top + 1] > contrasts[top] {
        top += 1;
    }
    Some((top, contrasts[top]))
}

/// Peaks that stand out of what lies around them, but for the period itself.
fn others(curve: &[f64], period: usize) -> Vec<usize> {
    let stands_out = |lag: usize| {
        let reach = (period / 8).max(1);
        let (from, to) = (lag.saturating_sub(reach).max(1), (lag + reach).min(curve.len() - 1));
        let is_top = (from..=to).all(|at| at == lag || curve[at] < curve[lag]);
        let lowest = |mut range: std::ops::RangeInclusive<usize>| {
            range.try_fold(f64::INFINITY, |low, at| Some(low.min(*curve.get(at)?))).unwrap_or(f64::INFINITY)
        };
        is_top && curve[lag] - lowest(from..=lag).max(lowest(lag..=to)) >= PROMINENCE && curve[lag] > 0.0
    };
    let mut lags: Vec<usize> =
        (2..curve.len().saturating_sub(1)).filter(|lag| *lag != period && stands_out(*lag)).collect();
    lags.sort_by(|a, b| curve[*b].total_cmp(&curve[*a]).then(a.cmp(b)));
    lags.truncate(OTHERS_MAX);
    lags
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tiermem_base::Rng;

    /// A number from the normal distribution, of variance 1, near enough.
    fn normal(rng: &mut Rng) -> f64 {
        (0..12).map(|_| rng.unit_f64()).sum::<f64>() - 6.0
    }

    /// A pattern that repeats, of variance 1, with as much noise.
    fn noisy(shape: &dyn Fn(usize) -> f64, count: usize, seed: u64) -> Vec<f64> {
        let pure: Vec<f64> = (0..count).map(shape).collect();
        let mean = pure.iter().sum::<f64>() / count as f64;
        let deviation = (pure.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count as f64).sqrt();
        let mut rng = Rng::seeded(seed);
        pure.iter().map(|value| 10.0 + (value - mean) / deviation + normal(&mut rng)).collect()
    }

    #[test]
    fn what_repeats_has_its_period_and_what_does_not_has_none() {
        let comb: Vec<f64> = (0..200).map(|at| if at % 20 == 3 { 9.0 } else { 1.0 }).collect();
        assert_eq!(periods(&comb)[0].lag, 20);
        assert_eq!(autocorrelation(&comb, 40)[0], 1.0);
        let ramp: Vec<f64> = (0..500).map(f64::from).collect();
        let step: Vec<f64> = (0..500).map(|at| if at < 250 { 1.0 } else { 5.0 }).collect();
        let dull = [&[][..], &[1.0], &[2.0; 100], &[0.0; 100], &ramp, &step];
        for (number, dull) in dull.into_iter().enumerate() {
            assert_eq!(periods(dull), [], "{number}");
        }
        assert_eq!(autocorrelation(&[3.0; 3], 9), [1.0, 0.0, 0.0]);
    }

    #[test]
    fn memory_that_nobody_touches_hides_no_period() {
        let comb = |count: usize| (0..count).map(|at| if at % 16 == 0 { 5.0 } else { 0.0 });
        let nothing = |count: usize| std::iter::repeat_n(0.0, count);
        let totals: Vec<f64> = nothing(900).chain(comb(160)).chain(nothing(9_000)).collect();
        assert_eq!(periods(&totals).first().map(|peak| peak.lag), Some(16));
        assert_eq!(touched_part(&totals).len(), 145);
        assert_eq!(touched_part(&[0.0; 3]), [0.0; 0]);
    }

    #[test]
    fn one_granule_that_has_most_accesses_hides_no_period() {
        let mut totals: Vec<f64> = (0..600).map(|at| if at % 30 == 0 { 5.0 } else { 1.0 }).collect();
        totals[77] = 1e6;
        assert_eq!(periods(&totals).first().map(|peak| peak.lag), Some(30));
    }

    #[test]
    fn a_part_of_a_period_is_never_named() {
        // A few hot granules in a row at each period, as layers of a model have them.
        for period in [90_usize, 200, 540] {
            for repeats in [2.2, 2.6, 3.2, 3.8, 5.5] {
                let shape = |at: usize| match at % period {
                    0..4 => 12.0,
                    rest if rest < period / 9 => 3.0,
                    _ => 1.0,
                };
                let count = (period as f64 * repeats) as usize;
                let found = |totals: &[f64]| periods(totals).first().map(|peak| peak.lag);
                let wanted = (repeats > REPEATS_MIN as f64).then_some(period);
                let pure: Vec<f64> = (0..count).map(shape).collect();
                assert_eq!(found(&pure), wanted, "{period} granules, {repeats} times");
                // In noise, so few may be too few to be sure.
                let noisy = found(&noisy(&shape, count, period as u64));
                assert!(noisy.is_none() || noisy == wanted, "{noisy:?}: {period} granules, {repeats} times");
            }
        }
    }

    proptest! {
        #[test]
        fn autocorrelation_is_what_its_definition_says(totals in prop::collection::vec(0.0..100.0_f64, 1..70)) {
            let mean = totals.iter().sum::<f64>() / totals.len() as f64;
            let variance: f64 = totals.iter().map(|value| (value - mean).powi(2)).sum();
            for (lag, found) in autocorrelation(&totals, 100).into_iter().enumerate().skip(1) {
                let pairs = totals.iter().zip(&totals[lag..]);
                let naive = pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / variance;
                prop_assert!(variance < 1e-6 || (found - naive).abs() < 1e-9, "{found} {naive}");
            }
        }

        #[test]
        fn periods_are_exact_with_as_much_noise_as_signal(
            seed in any::<u64>(), period in 8..120_usize, repeats in 20..50_usize, shape in 0..4_usize,
        ) {
            let shapes: [&dyn Fn(usize) -> f64; 4] = [
                // One hot granule, two of different heat, a wave, a ramp.
                &|at| if at % period == 0 { 1.0 } else { 0.0 },
                &|at| match at % period { 0 => 1.0, rest if rest == period / 3 => 0.6, _ => 0.0 },
                &|at| (at as f64 / period as f64 * std::f64::consts::TAU).sin(),
                &|at| (at % period) as f64,
            ];
            let totals = noisy(shapes[shape], period * repeats, seed);
            let found = periods(&totals);
            prop_assert_eq!(found.first().map(|peak| peak.lag), Some(period), "{:?}", found);
        }

        #[test]
        fn noise_has_no_period(seed in any::<u64>(), count in 100..3000_usize) {
            let mut rng = Rng::seeded(seed);
            let totals: Vec<f64> = (0..count).map(|_| 10.0 + normal(&mut rng)).collect();
            prop_assert_eq!(periods(&totals), []);
        }
    }
}
