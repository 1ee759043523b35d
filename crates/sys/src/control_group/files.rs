//! Files of a group: their names in each version, and reading and writing them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::GroupError;
use super::version::Version;

/// The remedy for a file that a version lacks.
pub(super) const NEEDS_VERSION_2: &str = "mount control groups of version 2";
pub(super) const NEEDS_VERSION_1: &str = "version 1 alone has it";

/// Reads a file of a group, without the line's end.
pub(super) fn read(attempted: &'static str, file: &Path) -> Result<String, GroupError> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text.trim_end().to_owned()),
        Err(error) => Err(GroupError::io(attempted, file, error)),
    }
}

/// Writes a file of a group in one call, as the kernel wants it.
pub(super) fn write(attempted: &'static str, file: &Path, text: &str) -> Result<(), GroupError> {
    // None is made: a file that a group does not have cannot be written.
    let opened = OpenOptions::new().write(true).truncate(true).open(file);
    opened
        .and_then(|mut opened| opened.write_all(text.as_bytes()))
        .map_err(|error| GroupError::io(attempted, file, error))
}

/// A number of bytes, or none where the file says that there is no limit.
pub(super) fn number(file: &Path, text: &str) -> Result<Option<u64>, GroupError> {
    match text {
        "max" | "-1" => Ok(None),
        text => match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(GroupError::form(file, text, "a number")),
        },
    }
}

/// Lines of a name and a number.
pub(super) fn table(file: &Path, text: &str) -> Result<BTreeMap<String, u64>, GroupError> {
    let line = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    let wrong = |text: &str| GroupError::form(file, text, "a name and a number");
    text.lines().map(|text| line(text).ok_or_else(|| wrong(text))).collect()
}

/// The file of this name in a group, or why there is none.
pub(super) fn existing(
    attempted: &'static str,
    (version, group): (Version, &Path),
    file: &'static str,
    needs: &'static str,
) -> Result<PathBuf, GroupError> {
    let path = group.join(file);
    if path.exists() {
        return Ok(path);
    }
    // A group that has gone is another matter than one that lacks a file.
    match fs::metadata(group) {
        Err(error) => Err(GroupError::io(attempted, group, error)),
        Ok(_) => Err(GroupError::Unsupported { attempted, group: group.to_owned(), version, file, needs }),
    }
}
