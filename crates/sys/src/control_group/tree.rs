//! A group as part of the tree: which one it is, and who is in it and below.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::error::GroupError;
use super::group::Group;

/// The processes in a group and in all groups below, each once.
///
/// # Errors
/// The system's error, of this group; one below may go at any time.
pub fn all_processes(group: &Group) -> Result<Vec<u32>, GroupError> {
    let mut all = group.processes()?;
    let mut folders = vec![group.path().to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir())) {
            if let Ok(below) = Group::open(group.version(), entry.path()) {
                all.extend(below.processes().unwrap_or_default());
                folders.push(entry.path());
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// A number that no other group of this boot has at this place: a group of the same name that is made later has another one.
///
/// # Errors
/// The system's error.
pub fn number_of(group: &Group) -> Result<u64, GroupError> {
    let folder = fs::metadata(group.path());
    folder
        .map(|folder| folder.ino())
        .map_err(|error| GroupError::io("read the number of", group.path(), error))
}
