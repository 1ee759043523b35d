//! Cache sizes on the command line: numbers, percentages, or a number of sizes over the working set.

use std::str::FromStr;

use tiermem_base::Bytes;
use tiermem_trace::parse_count;

/// One `--size`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// This number of objects or bytes.
    Units(u64),
    /// This share of the working set.
    Share(f64),
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_suffix('%') else {
            let units = text.parse::<Bytes>().map(|bytes| bytes.0).ok().or_else(|| parse_count(text));
            return units.map(Size::Units).ok_or_else(|| {
                format!("{text:?} is not a size such as 4096, 10k, 512MiB or 10% of the working set")
            });
        };
        let share = percent.trim().parse::<f64>().ok().filter(|share| share.is_finite() && *share > 0.0);
        share
            .map(|share| Size::Share(share / 100.0))
            .ok_or_else(|| format!("{text:?} is not a percentage above 0, such as 10%"))
    }
}

impl Size {
    /// The size in units, for a working set of this size; never 0 of a working set that is not empty.
    pub fn units(self, working_set: u64) -> u64 {
        match self {
            Size::Units(units) => units,
            Size::Share(share) => {
                ((working_set as f64 * share).round() as u64).max(u64::from(working_set > 0))
            }
        }
    }
}

/// `count` sizes that divide the working set evenly, the last of them all of it.
pub fn evenly(count: u32) -> impl Iterator<Item = Size> {
    (1..=count).map(move |at| Size::Share(f64::from(at) / f64::from(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_or_percentages() {
        assert_eq!("1000".parse(), Ok(Size::Units(1000)));
        assert_eq!("4MiB".parse(), Ok(Size::Units(4 << 20)));
        assert_eq!("10k".parse(), Ok(Size::Units(10_000)));
        assert_eq!("12.5%".parse(), Ok(Size::Share(0.125)));
        for wrong in ["", "%", "0%", "-1%", "nan%", "ten"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
        assert_eq!(Size::Share(0.125).units(1000), 125);
        assert_eq!(Size::Share(0.00001).units(1000), 1);
        assert_eq!(evenly(4).map(|size| size.units(1000)).collect::<Vec<_>>(), [250, 500, 750, 1000]);
    }
}
