//! Versions of control groups.

use std::fmt;

/// The version of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller, or a few.
    One,
    /// One hierarchy for all.
    Two,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::One => "version 1",
            Version::Two => "version 2",
        })
    }
}
