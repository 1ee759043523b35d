//! Wanted fields: which fields of a record a reader should yield, and which of its addresses.

use std::ops::BitOr;
use std::str::FromStr;

/// Fields of [`tiermem_base::Access`] that a consumer needs; the key always belongs to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields(u8);

impl Fields {
    /// The key alone.
    pub const KEY: Fields = Fields(0);
    /// The time.
    pub const TIME: Fields = Fields(1);
    /// The operation.
    pub const OP: Fields = Fields(2);
    /// The size.
    pub const SIZE: Fields = Fields(4);
    /// The tenant.
    pub const TENANT: Fields = Fields(8);
    /// The time to live.
    pub const TTL: Fields = Fields(16);
    /// The key's size.
    pub const KEY_SIZE: Fields = Fields(32);
    /// Everything.
    pub const ALL: Fields = Fields(63);

    /// Whether all of `other` are among these.
    pub const fn contains(self, other: Fields) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Default for Fields {
    fn default() -> Self {
        Fields::ALL
    }
}

impl BitOr for Fields {
    type Output = Fields;

    fn bitor(self, other: Fields) -> Fields {
        Fields(self.0 | other.0)
    }
}

/// The address of a memory trace that its records have as their key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addresses {
    /// The one that the program used; the key as it stands in the trace.
    #[default]
    Virtual,
    /// The one that the memory device saw: the frame in which the page lay, and the place within it.
    Physical,
}

impl Addresses {
    /// The error of a trace that has virtual addresses alone.
    pub(crate) const NO_FRAMES: &str = "the trace has no physical addresses (no column `frame`); \
        `tiermem record --physical` makes traces that have, as Parquet";
}

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "virtual" => Ok(Addresses::Virtual),
            "physical" => Ok(Addresses::Physical),
            _ => Err(format!("there are no {text:?} addresses; they are virtual or physical")),
        }
    }
}
