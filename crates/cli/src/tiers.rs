//! Tiers that commands read from a configuration file.

use std::path::Path;

use tiermem_base::TierSpec;
use tiermem_base::tier::TierError;
use tiermem_live::config::{self, FileError};

use crate::failure::Failure;

/// The tiers of a file, fastest first; there is at least one.
pub fn read(path: &Path) -> Result<Vec<TierSpec>, Failure> {
    config::read_tiers(path).map_err(Failure::usage)
}

/// A tier is not suitable for a command; it comes from this file, or from a flag.
pub fn unfit(file: Option<&Path>, error: TierError) -> Failure {
    match file {
        Some(path) => Failure::usage(FileError::Tiers { path: path.to_owned(), source: error }),
        None => Failure::usage(error),
    }
}
