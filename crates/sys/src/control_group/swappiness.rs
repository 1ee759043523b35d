//! How much a group's reclaim takes from what is written to swap, against pages of files.

use super::error::GroupError;
use super::files::{self, NEEDS_VERSION_1};
use super::group::Group;

const NAME: &str = "memory.swappiness";

/// A group's swappiness, 0 to 200: at 100 both kinds of pages cost the same to have back.
///
/// # Errors
/// With version 2, whose groups have the machine's; the system's error.
pub fn swappiness(group: &Group) -> Result<u32, GroupError> {
    const ATTEMPTED: &str = "read the swappiness of";
    let file = group.existing(ATTEMPTED, NAME, NEEDS_VERSION_1)?;
    let text = files::read(ATTEMPTED, &file)?;
    text.parse().map_err(|_| GroupError::form(&file, &text, "a number"))
}

/// Sets a group's swappiness.
///
/// # Errors
/// With version 2; `EINVAL` above 200; the system's error.
pub fn set_swappiness(group: &Group, swappiness: u32) -> Result<(), GroupError> {
    const ATTEMPTED: &str = "set the swappiness of";
    files::write(ATTEMPTED, &group.existing(ATTEMPTED, NAME, NEEDS_VERSION_1)?, &swappiness.to_string())
}
