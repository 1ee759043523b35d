//! Access rate of pages, estimated from the shares touched within windows of several lengths.
//!
//! A page table shows whether a page was touched, not how often. But of many pages that are touched at a rate, each
//! at its own times, a share of 1 - exp(-rate x window) is touched within a window. So short windows distinguish
//! hot granules, in which every page is touched within a long one, and long windows distinguish cold ones.
//!
//! Where a few pages of a granule are hot and the others are not touched at all, a long window sees no more of them than a short
//! one. So a share of *active* pages is estimated too, if windows say clearly that there is one.

/// What a window saw of pages, all of which were untouched at its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleWindow {
    /// Its length in seconds.
    pub seconds: f64,
    /// Seconds for which these pages had been untouched before, since they were cleared.
    pub before_s: f64,
    /// Pages that were touched in it.
    pub touched: f64,
    /// Pages that could have been.
    pub pages: f64,
}

/// How often pages are accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Share of the pages that are accessed at all.
    pub active: f64,
    /// Accesses of such a page in a second.
    pub per_s: f64,
    /// Whether each page was touched in every window, so that the rate may be higher.
    pub is_bound: bool,
}

impl Rate {
    /// Accesses of a page in a second, on the average.
    pub fn per_page_s(self) -> f64 {
        self.active * self.per_s
    }
}

/// Likelihood ratio, as a logarithm, from which on some pages are held to be inactive: one in a thousand by chance.
pub(super) const CLEARLY: f64 = 6.0;
/// Relative error to which a most likely rate is sought.
const PRECISION: f64 = 2e-3;
/// Windows whose lengths differ by no more than this become one.
const ALIKE: f64 = 1.5;

/// The most likely rate, given what some windows saw. 0 if nothing was touched; where every page was in every window, the rate
/// at which that is as likely as not.
pub fn rate_of(windows: &[SampleWindow]) -> Rate {
    let touched: f64 = windows.iter().map(|window| window.touched).sum();
    let pages: f64 = windows.iter().map(|window| window.pages).sum();
    if touched <= 0.0 || pages <= 0.0 {
        return Rate::default();
    }
    let seen = || windows.iter().filter(|it| it.pages > 0.0);
    let shortest = seen().map(|it| it.seconds).fold(f64::INFINITY, f64::min);
    let per_window: f64 = seen().filter(|it| it.seconds <= shortest).map(|it| it.pages).sum();
    // With n pages, (1 - exp(-rate x window))^n is a half where exp(-rate x window) is about ln(2) / n.
    let largest = (per_window.max(1.0) / std::f64::consts::LN_2).max(2.0).ln() / shortest;
    if seen().all(|it| it.touched >= it.pages) {
        return Rate { active: 1.0, per_s: largest, is_bound: true };
    }
    let longest: f64 = windows.iter().map(|window| window.seconds).sum();
    let least = 1e-3 / (longest * pages.max(1.0));
    let uniform = Rate { active: 1.0, per_s: of_uniform(windows, least, largest), is_bound: false };
    // No fewer can be active than were touched in one window.
    let least_active = (seen().map(|it| it.touched / it.pages).fold(0.0, f64::max) * 1.02).min(1.0);
    if least_active > 0.9 || windows.len() < 2 {
        return uniform;
    }
    let by_chance = log_likelihood(windows, uniform.active, uniform.per_s);
    if log_likelihood_at_most(windows) <= by_chance + CLEARLY {
        return uniform;
    }
    [1.0, 0.875, 0.75, 0.625, 0.5, 0.25]
        .map(|exponent| least_active.powf(exponent))
        .map(|active| {
            // The fewer are active, the oftener each of them is accessed.
            let per_s = of_active(windows, active, uniform.per_s, largest);
            (log_likelihood(windows, active, per_s), Rate { active, per_s, is_bound: false })
        })
        .into_iter()
        .filter(|(likelihood, _)| *likelihood > by_chance + CLEARLY)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map_or(uniform, |(_, rate)| rate)
}

/// Whether windows say clearly that the rate is not this one.
pub fn contradict(windows: &[SampleWindow], rate: Rate) -> bool {
    let clearly = log_likelihood(windows, rate.active, rate.per_s) + CLEARLY / 2.0;
    if log_likelihood_at_most(windows) <= clearly {
        return false;
    }
    let own = rate_of(windows);
    own != Rate::default() && log_likelihood(windows, own.active, own.per_s) > clearly
}

/// Adds a window to others. It becomes one with another that is about as long, so that there are few.
pub fn add_to(windows: &mut Vec<SampleWindow>, window: SampleWindow) {
    let about = |one: f64, other: f64| one.max(other) <= one.min(other) * ALIKE;
    let is_full = |it: &SampleWindow| it.touched >= it.pages;
    let alike = windows.iter_mut().find(|it| {
        about(it.seconds, window.seconds)
            && about(it.before_s, window.before_s)
            && is_full(it) == is_full(&window)
    });
    match alike {
        Some(it) => {
            let part = window.pages / (it.pages + window.pages);
            it.seconds += (window.seconds - it.seconds) * part;
            it.before_s += (window.before_s - it.before_s) * part;
            it.touched += window.touched;
            it.pages += window.pages;
        }
        None => windows.push(window),
    }
}

/// The most likely rate if all pages have the same.
fn of_uniform(windows: &[SampleWindow], least: f64, largest: f64) -> f64 {
    // The derivative of the logarithm of the likelihood falls with the rate, so bisection finds where it is 0.
    let slope = |rate: f64| -> f64 {
        let of = |window: &SampleWindow| {
            let untouched = (window.pages - window.touched).max(0.0);
            let odds = 1.0 / (rate * window.seconds).exp_m1();
            window.seconds * (window.touched * odds - untouched)
        };
        windows.iter().map(of).sum()
    };
    if slope(largest) >= 0.0 {
        return largest;
    }
    let (mut low, mut high) = (least.min(largest), largest);
    while high > low * (1.0 + PRECISION) {
        let middle = (low * high).sqrt();
        if slope(middle) > 0.0 { low = middle } else { high = middle }
    }
    (low * high).sqrt()
}

/// The most likely rate of active pages, of which there is such a share: its likelihood has one maximum.
fn of_active(windows: &[SampleWindow], active: f64, least: f64, largest: f64) -> f64 {
    /// The golden section: of two places within a range, one is such a place within the range that is left.
    const SECTION: f64 = 0.618_033_988_749_894_9;
    let of = |rate: f64| log_likelihood(windows, active, rate.exp());
    let (mut low, mut high) = (least.min(largest).ln(), largest.ln());
    let (mut one, mut other) = (high - SECTION * (high - low), low + SECTION * (high - low));
    let (mut of_one, mut of_other) = (of(one), of(other));
    while high - low > PRECISION {
        if of_one < of_other {
            (low, one, of_one) = (one, other, of_other);
            other = low + SECTION * (high - low);
            of_other = of(other);
        } else {
            (high, other, of_other) = (other, one, of_one);
            one = high - SECTION * (high - low);
            of_one = of(one);
        }
    }
    f64::midpoint(low, high).exp()
}

pub(super) fn log_likelihood(windows: &[SampleWindow], active: f64, rate: f64) -> f64 {
    /// A page that windows tell of is never impossible, only unlikely.
    const LEAST: f64 = 1e-12;
    let untouched_until =
        |seconds: f64| if seconds > 0.0 { 1.0 - active + active * (-rate * seconds).exp() } else { 1.0 };
    let of = |window: &SampleWindow| {
        let before = untouched_until(window.before_s).max(LEAST);
        let stays = (untouched_until(window.before_s + window.seconds) / before).clamp(LEAST, 1.0 - LEAST);
        log_likelihood_of(window, stays)
    };
    windows.iter().map(of).sum()
}

/// What no rate exceeds: each window has the share that it saw.
fn log_likelihood_at_most(windows: &[SampleWindow]) -> f64 {
    let seen = windows.iter().filter(|window| window.pages > 0.0);
    seen.map(|window| log_likelihood_of(window, 1.0 - window.touched / window.pages)).sum()
}

/// Of a window, if so many of its pages stay untouched.
pub(super) fn log_likelihood_of(window: &SampleWindow, stays: f64) -> f64 {
    // What was not seen adds nothing, whatever its probability.
    let times = |count: f64, share: f64| if count > 0.0 { count * share.ln() } else { 0.0 };
    times(window.touched, 1.0 - stays) + times(window.pages - window.touched, stays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tiermem_base::Rng;

    fn window(seconds: f64, touched: f64, pages: f64) -> SampleWindow {
        SampleWindow { seconds, before_s: 0.0, touched, pages }
    }

    #[test]
    fn nothing_touched_is_no_rate_and_everything_is_a_bound() {
        assert_eq!(rate_of(&[]), Rate::default());
        assert_eq!(rate_of(&[window(0.1, 0.0, 1024.0), window(0.5, 0.0, 1024.0)]), Rate::default());
        let full = rate_of(&[window(0.1, 1024.0, 1024.0), window(0.5, 1024.0, 1024.0)]);
        let nearly = rate_of(&[window(0.1, 1020.0, 1024.0), window(0.5, 1024.0, 1024.0)]);
        assert!(full.per_s > nearly.per_s && nearly.per_s > 50.0, "{full:?} {nearly:?}");
        assert!(full.is_bound && !nearly.is_bound);
    }

    #[test]
    fn a_few_hot_pages_among_untouched_ones_are_told_from_many_warm_ones() {
        // 64 of 1024 pages are touched 1000 times a second: the second window finds no more.
        let first = window(0.001, 40.0, 1024.0);
        let second = SampleWindow { seconds: 0.25, before_s: 0.001, touched: 24.0, pages: 984.0 };
        let rate = rate_of(&[first, second]);
        assert!((500.0..2000.0).contains(&rate.per_s) && (0.05..0.08).contains(&rate.active), "{rate:?}");
    }

    proptest! {
        #[test]
        fn rates_are_found_over_three_decades(seed in any::<u64>(), exponent in -0.5..2.3_f64) {
            let rate = 10_f64.powf(exponent);
            let mut rng = Rng::seeded(seed);
            let windows: Vec<SampleWindow> = [0.01, 0.04, 0.16, 0.64].map(|seconds: f64| {
                let share = 1.0 - (-rate * seconds).exp();
                window(seconds, (0..1024).filter(|_| rng.unit_f64() < share).count() as f64, 1024.0)
            }).to_vec();
            let found = rate_of(&windows).per_page_s();
            prop_assert!((found / rate).ln().abs() < 0.25, "{rate} {found}");
        }

        #[test]
        fn windows_that_became_one_say_about_the_same(seed in any::<u64>(), exponent in 0.0..2.0_f64) {
            let rate = 10_f64.powf(exponent);
            let mut rng = Rng::seeded(seed);
            let (mut all, mut merged) = (Vec::new(), Vec::new());
            for _ in 0..64 {
                let seconds = 1.5 / rate * (2.0 * rng.unit_f64() - 1.0).exp();
                let share = 1.0 - (-rate * seconds).exp();
                let one = window(seconds, (0..64).filter(|_| rng.unit_f64() < share).count() as f64, 64.0);
                all.push(one);
                add_to(&mut merged, one);
            }
            prop_assert!(merged.len() <= 16, "{}", merged.len());
            let (one, other) = (rate_of(&all).per_page_s(), rate_of(&merged).per_page_s());
            prop_assert!((one / other).ln().abs() < 0.06, "{one} {other}");
        }

        #[test]
        fn whatever_windows_say_the_rate_is_a_number(
            windows in prop::collection::vec((1e-6..100.0_f64, 0.0..1.0_f64, 0..5000_u32, 0..5000_u32), 0..8),
        ) {
            let windows: Vec<SampleWindow> = windows.into_iter().map(|(seconds, before_s, touched, pages)| {
                SampleWindow { seconds, before_s, touched: f64::from(touched), pages: f64::from(pages) }
            }).collect();
            let rate = rate_of(&windows);
            let likelihood = log_likelihood(&windows, rate.active, rate.per_s);
            let most = log_likelihood_at_most(&windows);
            let is_sound = windows.iter().all(|window| window.touched <= window.pages);
            prop_assert!(!is_sound || likelihood <= most + 1e-6, "{likelihood} {most}");
            prop_assert!(rate.per_page_s().is_finite() && rate.per_page_s() >= 0.0, "{rate:?}");
        }
    }
}
