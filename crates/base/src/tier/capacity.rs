//! Capacity of a tier: bytes, or a share of the working set.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// How large a tier is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Capacity {
    /// This many bytes.
    Bytes(Bytes),
    /// A percentage of the working set, above 0: for simulators, which know it from the trace.
    Percent(f64),
}

impl Capacity {
    /// The bytes for a working set of `working_set_bytes`; never 0 of a working set that has any.
    pub fn of_working_set(self, working_set_bytes: u64) -> u64 {
        match self {
            Capacity::Bytes(bytes) => bytes.0,
            Capacity::Percent(percent) => {
                let bytes = working_set_bytes as f64 * (percent / 100.0);
                (bytes.round() as u64).max(u64::from(working_set_bytes > 0))
            }
        }
    }
}

impl fmt::Display for Capacity {
    /// To the byte, so that reading it gives the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Capacity::Bytes(bytes) => f.write_str(&bytes.exact()),
            Capacity::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for Capacity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_suffix('%') else {
            return text.parse().map(Capacity::Bytes).map_err(|_| {
                format!("{text:?} is not a size such as 512MiB, 2GiB or 4096, nor 10% of the working set")
            });
        };
        let number = percent.trim().parse::<f64>().ok();
        let number = number.filter(|percent| percent.is_finite() && *percent > 0.0);
        number
            .map(Capacity::Percent)
            .ok_or_else(|| format!("{text:?} is not a percentage above 0, such as 10%"))
    }
}

impl TryFrom<String> for Capacity {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Capacity> for String {
    fn from(capacity: Capacity) -> String {
        capacity.to_string()
    }
}
