//! Units: quantities that are read and printed with their unit: `"512MiB"`, `"250ns"`.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// A text that does not name a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct UnitError {
    text: String,
    wanted: &'static str,
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bytes(pub u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nanos(pub u64);

/// Bytes in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bandwidth(pub u64);

const BYTE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

const TIME_UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Splits `"1.5GiB"` into its number and its unit's factor, and multiplies.
fn parse(text: &str, units: &[(&str, u64)], wanted: &'static str) -> Result<u64, UnitError> {
    let error = || UnitError { text: text.to_owned(), wanted };
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(error)?;
    let (number, unit) = (text[..split].trim(), text[split..].trim());
    let factor = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(error)?.1;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(error);
    }
    let value = number.parse::<f64>().map_err(|_| error())? * factor as f64;
    if value.is_finite() && (0.0..u64::MAX as f64).contains(&value) {
        Ok(value.round() as u64)
    } else {
        Err(error())
    }
}

/// The shortest whole number with a unit that is exactly `number`: the text is read back as the same quantity.
fn exact(number: u64, units: &[(&str, u64)]) -> String {
    let whole = units.iter().filter(|(_, factor)| number.is_multiple_of(*factor));
    let texts = whole.map(|(unit, factor)| format!("{}{unit}", number / factor));
    // Of equally short ones the first, which is the largest unit. Each list ends with a unit of one.
    if number == 0 {
        format!("0{}", units[units.len() - 1].0)
    } else {
        texts.min_by_key(String::len).unwrap_or_default()
    }
}

impl Bytes {
    /// To the byte; [`fmt::Display`] rounds to what people read.
    pub fn exact(self) -> String {
        exact(self.0, &BYTE_UNITS)
    }
}

impl Nanos {
    /// To the nanosecond; [`fmt::Display`] rounds to what people read.
    pub fn exact(self) -> String {
        let mut units = TIME_UNITS;
        units.reverse();
        exact(self.0, &units)
    }
}

impl Bandwidth {
    /// A bandwidth of `gb_per_s` GB a second.
    pub fn from_gb_per_s(gb_per_s: f64) -> Self {
        Bandwidth((gb_per_s * 1e9).round() as u64)
    }

    /// GB a second, which is bytes a nanosecond.
    pub fn gb_per_s(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl FromStr for Bandwidth {
    type Err = UnitError;
    /// Reads a size, with or without `/s`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError { text: text.to_owned(), wanted: "bytes a second such as 20GB/s or 2GiB/s" };
        let size = text.trim();
        let size = size.strip_suffix("/s").unwrap_or(size);
        size.parse::<Bytes>().map(|bytes| Bandwidth(bytes.0)).map_err(|_| error())
    }
}

impl fmt::Display for Bandwidth {
    /// To the byte.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Bytes(self.0).exact())
    }
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        if let Ok(plain) = text.trim().parse() {
            return Ok(Bytes(plain));
        }
        parse(text, &BYTE_UNITS, "a size such as 512MiB, 2GiB or 4096").map(Bytes)
    }
}

impl fmt::Display for Bytes {
    /// The largest binary unit that keeps three significant digits; exact multiples print whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in &BYTE_UNITS[..4] {
            if self.0 >= *factor {
                return if self.0.is_multiple_of(*factor) {
                    write!(f, "{}{unit}", self.0 / factor)
                } else {
                    write!(f, "{:.2}{unit}", self.0 as f64 / *factor as f64)
                };
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl FromStr for Nanos {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, &TIME_UNITS, "a time such as 250ns, 10us or 2s").map(Nanos)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) =
            TIME_UNITS.iter().rev().find(|(_, factor)| self.0 >= *factor).unwrap_or(&TIME_UNITS[0]);
        if self.0.is_multiple_of(*factor) {
            write!(f, "{}{unit}", self.0 / factor)
        } else {
            write!(f, "{:.2}{unit}", self.0 as f64 / *factor as f64)
        }
    }
}

macro_rules! string_form {
    ($type:ty, $exact:expr) => {
        impl TryFrom<String> for $type {
            type Error = UnitError;
            fn try_from(text: String) -> Result<Self, UnitError> {
                text.parse()
            }
        }
        impl From<$type> for String {
            /// To the last unit: what a file says must be read back as the same.
            fn from(value: $type) -> String {
                $exact(value)
            }
        }
    };
}
string_form!(Bytes, Bytes::exact);
string_form!(Nanos, Nanos::exact);
string_form!(Bandwidth, |bandwidth: Bandwidth| bandwidth.to_string());

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64B", 64),
            ("64 KiB", 65536),
            ("1.5GiB", 3 << 29),
            ("2gib", 2 << 30),
            ("1GB", 1_000_000_000),
        ] {
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes), "{text}");
        }
        for text in ["", "GiB", "1XiB", "-1MiB", "1e400GiB", "18446744073709551615KiB", "NaNB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_read_as_people_write_them() {
        assert_eq!("250ns".parse::<Nanos>().unwrap(), Nanos(250));
        assert_eq!("1.5us".parse::<Nanos>().unwrap(), Nanos(1500));
        assert!("250".parse::<Nanos>().is_err());
        assert_eq!(Nanos(1500).to_string(), "1.50us");
    }

    #[test]
    fn what_a_file_says_is_exact_and_short() {
        for (bytes, text) in [
            (0, "0B"),
            (1, "1B"),
            (512 << 20, "512MiB"),
            (3 << 29, "1536MiB"),
            (1_000_000_000, "1GB"),
            (600_000_000_000_000, "600TB"),
            (1_234_567, "1234567B"),
        ] {
            assert_eq!(Bytes(bytes).exact(), text);
        }
        assert_eq!(Nanos(1500).exact(), "1500ns");
        assert_eq!(Nanos(2_000_000_000).exact(), "2s");
        assert_eq!(Bandwidth(1_250_000_000).to_string(), "1250MB/s");
        for text in ["20GB/s", "20GB", " 20 GB/s", "20000MB/s"] {
            assert_eq!(text.parse(), Ok(Bandwidth(20_000_000_000)), "{text}");
        }
        for text in ["", "/s", "fast", "20GB/s/s", "-1GB/s"] {
            assert!(text.parse::<Bandwidth>().unwrap_err().to_string().contains("bytes a second"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn exact_forms_are_read_back_as_the_same(number: u64) {
            prop_assert_eq!(Bytes(number).exact().parse::<Bytes>().unwrap(), Bytes(number));
            prop_assert_eq!(Nanos(number).exact().parse::<Nanos>().unwrap(), Nanos(number));
            prop_assert_eq!(Bandwidth(number).to_string().parse::<Bandwidth>().unwrap(), Bandwidth(number));
        }

        #[test]
        fn whole_units_survive_a_round_trip(number in 1u64..1024, shift in prop::sample::select(vec![0u32, 10, 20, 30])) {
            let bytes = Bytes(number << shift);
            prop_assert_eq!(bytes.to_string().parse::<Bytes>().unwrap(), bytes);
        }
    }
}
