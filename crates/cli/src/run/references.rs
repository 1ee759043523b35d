//! `--references`: what a policy hears of uses.

use std::str::FromStr;

use anyhow::anyhow;
use tiermem_base::Bytes;
use tiermem_policy::evict;
use tiermem_policy::paging::GRANULE_BYTES;

use crate::failure::Failure;

/// Granules are whole pages.
const PAGE_BYTES: u64 = 4096;

/// What the policy of a live program hears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum References {
    /// Page faults, and first uses of what was fetched ahead.
    #[default]
    Faults,
    /// Also which granules were used.
    ByGranule(Bytes),
}

impl References {
    /// The size of granules, if they are looked at.
    pub fn granule_bytes(self) -> Option<u64> {
        match self {
            References::Faults => None,
            References::ByGranule(Bytes(bytes)) => Some(bytes),
        }
    }

    /// Fails if there is no policy to hear it.
    pub fn check(self, evict: Option<evict::Named>) -> Result<(), Failure> {
        if self != References::Faults && evict.is_none() {
            return Err(Failure::usage(anyhow!(
                "--references granule is for a policy of tiermem's: name one, such as --evict arc; the kernel sees for each page by itself \
                 whether it was used"
            )));
        }
        Ok(())
    }
}

impl FromStr for References {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match granule(text) {
            _ if text == "faults" => Ok(References::Faults),
            Some(size) if size.as_ref().is_ok_and(|size| size.0 < PAGE_BYTES) => {
                Err(format!("a granule has at least one page of {}", Bytes(PAGE_BYTES)))
            }
            Some(size) => size.map(References::ByGranule),
            None => Err(format!("{text:?} is neither faults nor granule nor granule=SIZE")),
        }
    }
}

/// The size of granules, as `granule` or `granule=SIZE`; `None` for another word.
pub fn granule(text: &str) -> Option<Result<Bytes, String>> {
    if text == "granule" {
        return Some(Ok(Bytes(GRANULE_BYTES)));
    }
    let size = text.strip_prefix("granule=")?.parse::<Bytes>().map_err(|error| format!("{error}"));
    Some(size.and_then(|size| match size.0.is_power_of_two() {
        true => Ok(size),
        false => Err("a granule has a power of two of bytes, such as 256KiB".to_owned()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_granule_is_a_power_of_two_of_at_least_a_page() {
        let references = |text: &str| text.parse::<References>();
        assert_eq!(references("faults"), Ok(References::Faults));
        assert_eq!(references("granule").unwrap().granule_bytes(), Some(GRANULE_BYTES));
        assert_eq!(references("granule=64KiB").unwrap().granule_bytes(), Some(64 << 10));
        for (wrong, said) in [
            ("told", "neither faults nor"),
            ("granule=100000", "power of two"),
            ("granule=2KiB", "at least one page"),
            ("granule=", "granule"),
        ] {
            assert!(
                references(wrong).is_err_and(|error| error.contains(said) || wrong == "granule="),
                "{wrong}"
            );
        }
    }

    #[test]
    fn granules_are_for_a_policy() {
        assert!(References::Faults.check(None).is_ok());
        assert!(References::ByGranule(Bytes(GRANULE_BYTES)).check(None).is_err());
        assert!(References::ByGranule(Bytes(GRANULE_BYTES)).check(Some(evict::Named::Lru)).is_ok());
    }
}
