//! Access rate of pages, estimated from the shares touched within windows of several lengths.
//!
//! A page table shows whether a page was touched, not how often. But of many pages that are touched at a rate, each
//! at its own times, a share of 1 - exp(-rate x window) is touched within a window. So short windows distinguish
//! hot granules, in which every page is touched within a long one, and long windows distinguish cold ones.

/// What a window saw of a granule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SampleWindow {
    /// Its length in seconds.
    pub seconds: f64,
    /// Pages that were touched in it.
    pub touched: u32,
    /// Pages that could have been.
    pub pages: u32,
}

/// The most likely touches of a page in a second, given what some windows saw. 0 if nothing was touched; where every page
/// was in every window, the rate at which that is as likely as not.
pub(super) fn touches_per_s(windows: &[SampleWindow]) -> f64 {
    let touched: u64 = windows.iter().map(|window| u64::from(window.touched)).sum();
    let pages: u64 = windows.iter().map(|window| u64::from(window.pages)).sum();
    if touched == 0 || pages == 0 {
        return 0.0;
    }
    let shortest =
        windows.iter().filter(|it| it.pages > 0).map(|it| it.seconds).fold(f64::INFINITY, f64::min);
    let per_window = windows.iter().filter(|it| it.seconds <= shortest).map(|it| it.pages).sum::<u32>();
    // With n pages, (1 - exp(-rate x window))^n is a half where exp(-rate x window) is about ln(2) / n.
    let largest = (f64::from(per_window.max(1)) / std::f64::consts::LN_2).max(2.0).ln() / shortest;
    // The derivative of the logarithm of the likelihood falls with the rate, so bisection finds where it is 0.
    let slope = |rate: f64| -> f64 {
        let of = |window: &SampleWindow| {
            let untouched = f64::from(window.pages.saturating_sub(window.touched));
            let odds = 1.0 / (rate * window.seconds).exp_m1();
            window.seconds * (f64::from(window.touched) * odds - untouched)
        };
        windows.iter().map(of).sum()
    };
    let longest: f64 = windows.iter().map(|window| window.seconds).sum();
    let (mut low, mut high) = (1e-3 / (longest * pages as f64), largest);
    if slope(high) >= 0.0 {
        return high;
    }
    for _ in 0..40 {
        let middle = (low * high).sqrt();
        if slope(middle) > 0.0 { low = middle } else { high = middle }
    }
    (low * high).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tiermem_base::Rng;

    #[test]
    fn nothing_touched_is_no_rate_and_everything_is_a_bound() {
        let window = |seconds, touched, pages| SampleWindow { seconds, touched, pages };
        assert_eq!(touches_per_s(&[]), 0.0);
        assert_eq!(touches_per_s(&[window(0.1, 0, 1024), window(0.5, 0, 1024)]), 0.0);
        let full = touches_per_s(&[window(0.1, 1024, 1024), window(0.5, 1024, 1024)]);
        let nearly = touches_per_s(&[window(0.1, 1020, 1024), window(0.5, 1024, 1024)]);
        assert!(full > nearly && nearly > 50.0, "{full} {nearly}");
    }

    proptest! {
        #[test]
        fn rates_are_found_over_three_decades(seed in any::<u64>(), exponent in -0.5..2.3_f64) {
            let rate = 10_f64.powf(exponent);
            let mut rng = Rng::seeded(seed);
            let windows: Vec<SampleWindow> = [0.01, 0.04, 0.16, 0.64].map(|seconds: f64| {
                let share = 1.0 - (-rate * seconds).exp();
                let touched = (0..1024).filter(|_| rng.unit_f64() < share).count() as u32;
                SampleWindow { seconds, touched, pages: 1024 }
            }).to_vec();
            let found = touches_per_s(&windows);
            prop_assert!((found / rate).ln().abs() < 0.25, "{rate} {found}");
        }

        #[test]
        fn whatever_windows_say_the_rate_is_a_number(
            windows in prop::collection::vec((1e-6..100.0_f64, 0..5000_u32, 0..5000_u32), 0..8),
        ) {
            let windows: Vec<SampleWindow> =
                windows.into_iter().map(|(seconds, touched, pages)| SampleWindow { seconds, touched, pages }).collect();
            let rate = touches_per_s(&windows);
            prop_assert!(rate.is_finite() && rate >= 0.0);
        }
    }
}
