//! `systemd-oomd`, which kills groups that swap before the kernel would.

use rustix::fs::{XattrFlags, setxattr};

use super::error::GroupError;
use super::files;
use super::group::Group;

/// Asks it to choose other groups first, as `ManagedOOMPreference=avoid` does. It hears groups of root alone.
///
/// # Errors
/// With version 1, of which it knows nothing; the system's error.
pub fn avoid_oom_daemon(group: &Group) -> Result<(), GroupError> {
    const ATTEMPTED: &str = "ask systemd-oomd to spare";
    group.existing(ATTEMPTED, "cgroup.events", files::NEEDS_VERSION_2)?;
    setxattr(group.path(), "user.oomd_avoid", b"1", XattrFlags::empty())
        .map_err(|error| GroupError::io(ATTEMPTED, group.path(), error.into()))
}
