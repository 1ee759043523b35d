//! Means, deviations, and whether two sets of trials differ: Welch's t-test.

/// Trials summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, of a sample.
    pub deviation: f64,
}

impl Summary {
    /// Of these values.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len();
        if count == 0 {
            return Summary::default();
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Summary { count, mean, deviation: (squares / (count.max(2) - 1) as f64).sqrt() }
    }
}

/// The probability that two sets whose true means are equal differ as much as these do (Welch 1947, two-sided). `None` if there are
/// fewer than two values of one, or no spread at all.
pub fn welch(a: &Summary, b: &Summary) -> Option<f64> {
    if a.count < 2 || b.count < 2 {
        return None;
    }
    let part = |it: &Summary| it.deviation.powi(2) / it.count as f64;
    let sum = part(a) + part(b);
    if sum <= 0.0 {
        return None;
    }
    let t = (a.mean - b.mean) / sum.sqrt();
    let each = |it: &Summary| part(it).powi(2) / (it.count - 1) as f64;
    let freedom = sum.powi(2) / (each(a) + each(b));
    Some(incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5))
}

/// The regularised incomplete beta function, by its continued fraction (Press et al., Numerical Recipes, 6.4; the fraction
/// evaluated by the method of Lentz 1976).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on one side of the mean, and the function is symmetrical.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let away = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..300 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            fraction *= c * d;
        }
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    (front * fraction).clamp(0.0, 1.0)
}

/// The logarithm of the gamma function of a number above 0 (Stirling's series, from where it is exact enough).
fn log_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 10.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ten(mean: f64, deviation: f64) -> Summary {
        Summary { count: 10, mean, deviation }
    }

    #[test]
    fn the_tests_of_the_work_are_what_they_are() {
        // Fisher 2025, tables 4.2 and 4.5, ten trials each; where the text's figure differs from its tables', the tables'.
        let near = |a: Summary, b: Summary, p: f64| {
            let found = welch(&a, &b).unwrap();
            assert!((found / p - 1.0).abs() < 0.15, "{found:e} {p:e}");
        };
        let (unbound, same, different) = (ten(266.4257, 0.215), ten(264.5671, 0.092), ten(266.0762, 0.098));
        near(unbound, same, 7.0e-12);
        near(unbound, different, 5e-4);
        near(ten(292.0157, 4.956), ten(285.1775, 6.885), 0.02);
        assert!(welch(&ten(285.1775, 6.885), &ten(445.0564, 5.743)).unwrap() < 1e-18);
    }

    #[test]
    fn known_values_of_the_distribution() {
        // Student's t with 10 degrees of freedom: two-sided 5% at 2.228; the incomplete beta function at a half is symmetrical.
        let x = 10.0 / (10.0 + 2.228_f64.powi(2));
        assert!((incomplete_beta(x, 5.0, 0.5) - 0.05).abs() < 1e-4);
        assert!((incomplete_beta(0.5, 3.0, 3.0) - 0.5).abs() < 1e-12);
        assert!((log_gamma(5.0) - 24.0_f64.ln()).abs() < 1e-10);
        assert!((log_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-9);
    }

    #[test]
    fn few_values_and_equal_ones_are_no_test() {
        assert_eq!(Summary::of(&[]), Summary::default());
        let one = Summary::of(&[3.0]);
        assert_eq!((one.mean, one.deviation, welch(&one, &one)), (3.0, 0.0, None));
        let equal = Summary::of(&[2.0, 2.0]);
        assert_eq!(welch(&equal, &equal), None);
        let spread = Summary::of(&[1.0, 3.0]);
        assert!((spread.deviation - 2.0_f64.sqrt()).abs() < 1e-12);
        assert!((welch(&spread, &spread).unwrap() - 1.0).abs() < 1e-9);
    }
}
