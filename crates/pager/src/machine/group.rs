//! The control group of a run.

use std::path::Path;

use tiermem_sys::control_group::{Group, GroupError, Hierarchy, Version};

use super::error::MachineError;
use super::register::{Entry, Locked};

/// Groups of runs have names that begin so.
const PREFIX: &str = "tiermem-pager-";

/// Makes it, below the group of this process if that can be, else below the nearest one above that allows it: with version 2 a group that
/// has processes, as ours has, cannot limit the memory of groups below.
pub fn make(hierarchy: &Hierarchy, locked: &Locked<'_>, entry: &mut Entry) -> Result<Group, MachineError> {
    let own = hierarchy.own_group()?;
    let name = format!("{PREFIX}{}", entry.id);
    let mut first_refusal: Option<GroupError> = None;
    let is_below = |path: &&Path| path.starts_with(hierarchy.mount_point());
    for above in own.path().ancestors().take_while(is_below) {
        let above = Group::open(own.version(), above.to_owned())?;
        entry.group = Some((above.path().join(&name), above.version() == Version::Two));
        locked.write(entry)?;
        match above.create(&name) {
            Ok(group) => return Ok(group),
            // The nearest one says most about what is missing.
            Err(error) => first_refusal = first_refusal.or(Some(error)),
        }
    }
    entry.group = None;
    locked.write(entry)?;
    Err(first_refusal.unwrap_or(GroupError::NoController).into())
}
