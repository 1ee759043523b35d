//! Exponential and logarithm that give the same bits everywhere.
//!
//! `f64::ln` and `f64::exp` call the system's mathematics library, whose last bit differs between versions, and
//! one different bit sends a generated trace another way. These use only `+ - * /`, which IEEE 754 fixes, and
//! are good to about 1e-15, far below what a sample can show.

const LN_2: f64 = std::f64::consts::LN_2;

/// `atanh(s) / s` by its series, for `|s| <= 0.21`.
fn atanh_ratio(s: f64) -> f64 {
    let square = s * s;
    // The term after these is below 0.21^24 / 25 = 2e-18.
    (0..12).rev().fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1))
}

/// The natural logarithm of a finite, normal, positive `x`.
pub fn ln(x: f64) -> f64 {
    debug_assert!(x.is_normal() && x > 0.0);
    const MANTISSA_BITS: u32 = 52;
    let bits = x.to_bits();
    let mut exponent = (bits >> MANTISSA_BITS) as i32 - 1023;
    let mut mantissa = f64::from_bits(bits & ((1 << MANTISSA_BITS) - 1) | 1023 << MANTISSA_BITS);
    // Into sqrt(1/2)..sqrt(2), where the series converges fast.
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    f64::from(exponent) * LN_2 + 2.0 * s * atanh_ratio(s)
}

/// `(e^t - 1) / t`, and 1 at `t = 0`, without cancellation near 0.
pub fn exp_minus_1_ratio(t: f64) -> f64 {
    if t.abs() > 0.5 {
        return (exp(t) - 1.0) / t;
    }
    // 1 + t/2 (1 + t/3 (1 + t/4 ...)); the term left out is below 0.5^15 / 16! = 2e-18.
    (2..17).rev().fold(1.0, |rest, n| 1.0 + t / f64::from(n) * rest)
}

/// `ln(1 + t) / t`, and 1 at `t = 0`, without cancellation near 0; for `t > -1`.
pub fn ln_plus_1_ratio(t: f64) -> f64 {
    if t.abs() > 0.4 {
        return ln(1.0 + t) / t;
    }
    // ln(1 + t) = 2 atanh(t / (2 + t)), and here |t / (2 + t)| <= 0.25: one more term than atanh_ratio has
    // would be below 0.25^24 / 25 = 2e-16.
    2.0 / (2.0 + t) * atanh_ratio(t / (2.0 + t))
}

/// `e^x`, saturating at 0 and infinity.
pub fn exp(x: f64) -> f64 {
    if x < -700.0 {
        return 0.0;
    }
    if x > 700.0 {
        return f64::INFINITY;
    }
    let steps = (x * (1.0 / LN_2)).round();
    // ln 2 in two parts, the first with trailing zero bits, so that `steps * high` is exact.
    let (high, low) = (6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10);
    let rest = (x - steps * high) - steps * low;
    // |rest| <= ln 2 / 2, so the term left out is below 0.35^18 / 18! = 1e-24.
    let power = (1..18).rev().fold(1.0, |sum, n| 1.0 + rest / f64::from(n) * sum);
    power * f64::from_bits(((steps as i64 + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(ours: f64, wanted: f64) -> bool {
        (ours - wanted).abs() <= 4e-15 * wanted.abs().max(1e-300)
    }

    proptest! {
        #[test]
        fn they_agree_with_the_systems_functions(x in -40.0f64..40.0, positive in 1e-12f64..1e18) {
            prop_assert!(close(exp(x), x.exp()), "exp({x})");
            prop_assert!((ln(positive) - positive.ln()).abs() < 1e-14 * positive.ln().abs().max(0.1));
            prop_assert!(close(exp_minus_1_ratio(x), x.exp_m1() / x), "expm1({x})/{x}");
        }

        #[test]
        fn the_ratios_keep_their_digits_near_zero(small in -0.99f64..0.99, scale in 0i32..15) {
            let t = small * 10f64.powi(-scale);
            prop_assume!(t != 0.0);
            prop_assert!(close(exp_minus_1_ratio(t), t.exp_m1() / t), "expm1({t})/{t}");
            prop_assert!((ln_plus_1_ratio(t) - t.ln_1p() / t).abs() < 2e-14, "ln1p({t})/{t}");
        }
    }

    #[test]
    fn the_ends_are_what_they_should_be() {
        assert_eq!((exp(-1e9), exp(1e9), exp(0.0)), (0.0, f64::INFINITY, 1.0));
        assert_eq!((exp_minus_1_ratio(0.0), ln_plus_1_ratio(0.0), ln(1.0)), (1.0, 1.0, 0.0));
    }
}
