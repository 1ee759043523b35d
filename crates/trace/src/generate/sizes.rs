//! The sizes of generated values. A key keeps its size for ever, as items of a real store mostly do.

use std::fmt;
use std::str::FromStr;

use tiermem_base::units::Bytes;

use super::elementary::{exp, ln};

/// How the sizes of values are distributed over keys. In text:
///
/// | text | means |
/// | --- | --- |
/// | `300`, `4KiB` | every value has this size |
/// | `64-1024` | uniform, both ends included |
/// | `lognormal(300,1.2)` | the logarithm is normal: the median, and the deviation of the logarithm |
/// | `pareto(64,1.5)`, `pareto(64,1.5,1MiB)` | a share `(64/x)^1.5` is larger than x; cut at the third number |
/// | `choice(64:0.7,4KiB:0.3)` | one of these sizes, with these weights |
#[derive(Clone, Debug, PartialEq)]
pub enum SizeDistribution {
    /// Every value has this many bytes.
    Fixed(u32),
    /// Uniform between the two, both included.
    Uniform {
        /// The smallest size in bytes.
        min: u32,
        /// The largest size in bytes.
        max: u32,
    },
    /// The logarithm of the size is normally distributed; sizes are at least 1.
    Lognormal {
        /// Half of the values are smaller.
        median: u32,
        /// The deviation of the natural logarithm, from 0 to 10.
        sigma: f64,
    },
    /// A power law: the share `(min / x)^shape` of values is larger than `x`.
    Pareto {
        /// The smallest size in bytes, at least 1.
        min: u32,
        /// The exponent, from 0.01 to 100: the mean is finite above 1.
        shape: f64,
        /// Larger values are given this size.
        max: u32,
    },
    /// One of a few sizes: bytes, and weights that need not sum to 1.
    Choice(Vec<(u32, f64)>),
}

/// The text forms of a size distribution, for error messages.
pub const SIZE_FORMS: &str = "bytes such as 300, 4KiB or a range 64-1024, or lognormal(300,1.2), pareto(64,1.5), choice(64:0.7,4KiB:0.3)";

impl SizeDistribution {
    /// The size at which the share `u`, from 0 up to 1, of all values is smaller: the inverse of the distribution.
    pub fn quantile(&self, u: f64) -> u32 {
        match self {
            SizeDistribution::Fixed(size) => *size,
            SizeDistribution::Uniform { min, max } => {
                let span = f64::from(max.saturating_sub(*min)) + 1.0;
                min + ((u * span) as u32).min(max.saturating_sub(*min))
            }
            SizeDistribution::Lognormal { median, sigma } => {
                (f64::from(*median) * exp(sigma * normal_quantile(u))).round().max(1.0) as u32
            }
            SizeDistribution::Pareto { min, shape, max } => {
                let size = f64::from(*min) * exp(-ln((1.0 - u).max(f64::MIN_POSITIVE)) / shape);
                (size as u32).min(*max)
            }
            SizeDistribution::Choice(sizes) => {
                let total: f64 = sizes.iter().map(|(_, weight)| weight).sum();
                let mut left = u * total;
                for (size, weight) in sizes {
                    if left < *weight {
                        return *size;
                    }
                    left -= weight;
                }
                // Rounding may leave a rest behind the last.
                sizes.last().map_or(0, |(size, _)| *size)
            }
        }
    }
}

impl FromStr for SizeDistribution {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or(SIZE_FORMS)
    }
}

fn bytes(text: &str) -> Option<u32> {
    text.trim().parse::<Bytes>().ok().and_then(|bytes| u32::try_from(bytes.0).ok())
}

fn parse(text: &str) -> Option<SizeDistribution> {
    let Some((name, rest)) = text.split_once('(') else {
        let (min, max) = match text.split_once('-') {
            Some((min, max)) => (bytes(min)?, bytes(max)?),
            None => (bytes(text)?, bytes(text)?),
        };
        return match min.cmp(&max) {
            std::cmp::Ordering::Less => Some(SizeDistribution::Uniform { min, max }),
            std::cmp::Ordering::Equal => Some(SizeDistribution::Fixed(min)),
            std::cmp::Ordering::Greater => None,
        };
    };
    let arguments: Vec<&str> = rest.strip_suffix(')')?.split(',').map(str::trim).collect();
    let number = |text: &str, min: f64, max: f64| {
        text.parse::<f64>().ok().filter(|number| (min..=max).contains(number))
    };
    match (name.trim(), arguments.as_slice()) {
        ("lognormal", [median, sigma]) => Some(SizeDistribution::Lognormal {
            median: bytes(median).filter(|median| *median > 0)?,
            sigma: number(sigma, 0.0, 10.0)?,
        }),
        ("pareto", [min, shape, rest @ ..]) if rest.len() <= 1 => {
            let min = bytes(min).filter(|min| *min > 0)?;
            let max = rest.first().map_or(Some(u32::MAX), |max| bytes(max))?;
            let shape = number(shape, 0.01, 100.0)?;
            (min <= max).then_some(SizeDistribution::Pareto { min, shape, max })
        }
        ("choice", sizes) => {
            let one = |text: &&str| {
                let (size, weight) = text.split_once(':')?;
                Some((bytes(size)?, number(weight.trim(), 0.0, 1e9)?))
            };
            let sizes = sizes.iter().map(one).collect::<Option<Vec<_>>>()?;
            let total: f64 = sizes.iter().map(|(_, weight)| weight).sum();
            (total > 0.0).then_some(SizeDistribution::Choice(sizes))
        }
        _ => None,
    }
}

impl fmt::Display for SizeDistribution {
    /// A text that reads back as the same distribution.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeDistribution::Fixed(size) => write!(f, "{size}"),
            SizeDistribution::Uniform { min, max } => write!(f, "{min}-{max}"),
            SizeDistribution::Lognormal { median, sigma } => write!(f, "lognormal({median},{sigma})"),
            SizeDistribution::Pareto { min, shape, max: u32::MAX } => write!(f, "pareto({min},{shape})"),
            SizeDistribution::Pareto { min, shape, max } => write!(f, "pareto({min},{shape},{max})"),
            SizeDistribution::Choice(sizes) => {
                let sizes: Vec<_> = sizes.iter().map(|(size, weight)| format!("{size}:{weight}")).collect();
                write!(f, "choice({})", sizes.join(","))
            }
        }
    }
}

/// Gives each key its size.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    distribution: SizeDistribution,
    seed: u64,
}

impl Sizes {
    /// Sizes of this distribution; `seed` chooses which key gets which.
    pub fn new(distribution: SizeDistribution, seed: u64) -> Self {
        Sizes { distribution, seed }
    }

    /// Bytes of the value of `key`.
    pub fn of(&self, key: u64) -> u32 {
        match &self.distribution {
            SizeDistribution::Fixed(size) => *size,
            SizeDistribution::Uniform { min, max } => {
                let span = u64::from(max.saturating_sub(*min)) + 1;
                // The high half of the product maps 64 random bits evenly onto the span.
                let step = (u128::from(self.random(key)) * u128::from(span)) >> 64;
                min + step as u32
            }
            other => other.quantile((self.random(key) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)),
        }
    }

    fn random(&self, key: u64) -> u64 {
        mix(key ^ mix(self.seed))
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection whose output bits all depend on all
/// input bits.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The inverse of the standard normal distribution, by P. J. Acklam's rational approximation (2003), whose relative
/// error is below 1.2e-9. The ends 0 and 1 are taken as the nearest shares that a hash of 53 bits can give.
fn normal_quantile(u: f64) -> f64 {
    const TAIL: f64 = 0.02425;
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 6] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 5] =
        [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0];
    let polynomial = |factors: &[f64], x: f64| factors.iter().fold(0.0, |sum, factor| sum * x + factor);
    let tail = |share: f64| {
        let x = (-2.0 * ln(share)).sqrt();
        polynomial(&C, x) / polynomial(&D, x)
    };
    let u = u.clamp(2f64.powi(-54), 1.0 - 2f64.powi(-53));
    if u < TAIL {
        tail(u)
    } else if u > 1.0 - TAIL {
        -tail(1.0 - u)
    } else {
        let x = u - 0.5;
        x * polynomial(&A, x * x) / polynomial(&B, x * x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sizes_keep_to_their_range(a in any::<u32>(), b in any::<u32>(), seed in any::<u64>(), key in any::<u64>()) {
            let (min, max) = (a.min(b), a.max(b));
            let sizes = Sizes::new(SizeDistribution::Uniform { min, max }, seed);
            prop_assert!((min..=max).contains(&sizes.of(key)));
            prop_assert_eq!(sizes.of(key), sizes.of(key));
        }

        #[test]
        fn quantiles_rise(a in 0.0f64..1.0, b in 0.0f64..1.0, min in 1u32..1 << 20, number in 0.01f64..10.0) {
            for distribution in [
                SizeDistribution::Uniform { min, max: min + 100 },
                SizeDistribution::Lognormal { median: min, sigma: number },
                SizeDistribution::Pareto { min, shape: number, max: u32::MAX },
            ] {
                prop_assert!(distribution.quantile(a.min(b)) <= distribution.quantile(a.max(b)));
            }
        }

        #[test]
        fn texts_read_back(min in 1u32.., more in 0u32..1000, number in 0.01f64..10.0, weight in 0.1f64..9.0) {
            let max = min.saturating_add(more);
            for distribution in [
                "300".parse().unwrap(),
                SizeDistribution::Lognormal { median: min, sigma: number },
                SizeDistribution::Pareto { min, shape: number, max },
                SizeDistribution::Choice(vec![(min, weight), (max, number)]),
            ] {
                prop_assert_eq!(distribution.to_string().parse(), Ok(distribution));
            }
        }
    }

    #[test]
    fn texts_are_read_as_documented() {
        for (text, wanted) in [
            ("4KiB", SizeDistribution::Fixed(4096)),
            ("64-1024", SizeDistribution::Uniform { min: 64, max: 1024 }),
            ("lognormal(300, 1.2)", SizeDistribution::Lognormal { median: 300, sigma: 1.2 }),
            ("pareto(64,1.5)", SizeDistribution::Pareto { min: 64, shape: 1.5, max: u32::MAX }),
            ("pareto(64,1.5,1MiB)", SizeDistribution::Pareto { min: 64, shape: 1.5, max: 1 << 20 }),
            ("choice(64:0.7,4KiB:0.3)", SizeDistribution::Choice(vec![(64, 0.7), (4096, 0.3)])),
        ] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
        }
        for text in [
            "",
            "-",
            "9-3",
            "5GiB",
            "lognormal",
            "lognormal(0,1)",
            "lognormal(1,-1)",
            "lognormal(1,1",
            "pareto(1)",
            "pareto(9,1,3)",
            "pareto(1,0)",
            "choice()",
            "choice(1:0)",
            "choice(1)",
            "gauss(1,2)",
            "choice(1:nan)",
        ] {
            assert_eq!(text.parse::<SizeDistribution>(), Err(SIZE_FORMS), "{text}");
        }
    }

    #[test]
    fn neighbouring_keys_get_sizes_over_the_whole_range() {
        let sizes = Sizes::new(SizeDistribution::Uniform { min: 64, max: 1023 }, 1);
        let mean = (0..10_000).map(|key| f64::from(sizes.of(key))).sum::<f64>() / 10_000.0;
        // The deviation of the mean is 277 / 100.
        assert!((mean - 543.5).abs() < 14.0, "{mean}");
    }

    #[test]
    fn the_normal_quantile_is_the_tabulated_one() {
        for (share, wanted) in [
            (0.5, 0.0),
            (0.841_344_746_068_543, 1.0),
            (0.975, 1.959_963_984_540_054),
            (0.01, -2.326_347_874_040_841),
            (0.999, 3.090_232_306_167_814),
            (1e-6, -4.753_424_308_822_899),
        ] {
            assert!((normal_quantile(share) - wanted).abs() < 1e-8, "{share}");
        }
    }

    /// The share of 100,000 keys whose size is at most `limit`.
    fn share_up_to(text: &str, limit: u32) -> f64 {
        let sizes = Sizes::new(text.parse().unwrap(), 3);
        (0..100_000).filter(|key| sizes.of(*key) <= limit).count() as f64 / 1e5
    }

    #[test]
    fn sizes_follow_their_formula() {
        // Shares of 100,000 keys: deviations are at most 0.0016.
        let close = |share: f64, wanted: f64| assert!((share - wanted).abs() < 0.008, "{share} for {wanted}");
        close(share_up_to("lognormal(1000,0.5)", 1000), 0.5);
        // e^0.5 medians lie one deviation above the median.
        close(share_up_to("lognormal(1000,0.5)", 1649), 0.8413);
        // (100/200)^1.5 and (100/1000)^1.5 are larger.
        close(share_up_to("pareto(100,1.5)", 200), 1.0 - 0.353_55);
        close(share_up_to("pareto(100,1.5)", 1000), 1.0 - 0.031_62);
        assert_eq!(share_up_to("pareto(100,0.5,1000)", 1000), 1.0);
        close(share_up_to("choice(64:7,4KiB:3)", 64), 0.7);
        assert_eq!(share_up_to("choice(64:7,4KiB:3)", 4096), 1.0);
    }
}
