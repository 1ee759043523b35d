//! Hierarchy of control groups: where the memory controller is mounted, and in which group this process is.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::error::GroupError;
use super::files;
use super::group::Group;
use super::version::Version;
use crate::proc_text::unescaped;

/// A mounted hierarchy that has the memory controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    version: Version,
    /// Where it is mounted.
    mount_point: PathBuf,
    /// Which of its groups is mounted there: `/` but in containers.
    mounted_group: PathBuf,
}

impl Hierarchy {
    /// The one of this process.
    ///
    /// # Errors
    /// If none has the memory controller, or `/proc` does not tell.
    pub fn of_memory() -> Result<Self, GroupError> {
        const MOUNTS: &str = "/proc/self/mountinfo";
        let mounts = fs::read(MOUNTS).map_err(|error| GroupError::io("read", Path::new(MOUNTS), error))?;
        Hierarchy::among(&mounts)
    }

    /// The first of these mounts that has the memory controller, as `/proc/self/mountinfo` lists them.
    pub(super) fn among(mounts: &[u8]) -> Result<Self, GroupError> {
        let all = mounts.split(|byte| *byte == b'\n').filter_map(mount);
        let mut with_memory = all.filter(|(hierarchy, options)| match hierarchy.version {
            Version::One => options.split(',').any(|option| option == "memory"),
            // The controller belongs to one hierarchy at a time; which ones this has, its root says.
            Version::Two => fs::read_to_string(hierarchy.mount_point.join("cgroup.controllers"))
                .is_ok_and(|text| text.split_whitespace().any(|name| name == "memory")),
        });
        with_memory.next().map(|(hierarchy, _)| hierarchy).ok_or(GroupError::NoController)
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// The group that a user names so: by its folder, or by its name, as `/proc/PID/cgroup` has it.
    ///
    /// # Errors
    /// If there is none.
    pub fn group_at(&self, path: &Path) -> Result<Group, GroupError> {
        let is_folder = path.starts_with(&self.mount_point);
        let named = if is_folder {
            path.to_owned()
        } else {
            let below = path.strip_prefix("/").unwrap_or(path);
            self.mount_point.join(below)
        };
        // Without links and detours, so that one group has one path.
        match fs::canonicalize(&named) {
            Ok(folder) if folder.starts_with(&self.mount_point) => Group::open(self.version, folder),
            Ok(folder) => Err(GroupError::io("open the control group", &folder, ErrorKind::NotFound.into())),
            Err(error) => Err(GroupError::io("open the control group", &named, error)),
        }
    }

    /// Whether this is the group at the top, which has no limits.
    pub fn is_top(&self, group: &Group) -> bool {
        group.path() == self.mount_point
    }

    /// The group of this process.
    ///
    /// # Errors
    /// If `/proc` does not tell, or the group lies outside of what is mounted.
    pub fn own_group(&self) -> Result<Group, GroupError> {
        const FILE: &str = "/proc/self/cgroup";
        self.group_in(&files::read("read", Path::new(FILE))?)
    }

    /// The group of a process.
    ///
    /// # Errors
    /// As [`Self::own_group`]; if there is no such process.
    pub fn group_of(&self, pid: u32) -> Result<Group, GroupError> {
        self.group_in(&files::read("read", Path::new(&format!("/proc/{pid}/cgroup")))?)
    }

    /// A group and those above it, but for the one at the top.
    pub fn lineage(&self, group: &Group) -> Vec<Group> {
        let below_top = |path: &&Path| path.starts_with(&self.mount_point) && *path != self.mount_point;
        let above = group.path().ancestors().take_while(below_top);
        above.filter_map(|path| Group::open(self.version, path.to_owned()).ok()).collect()
    }

    /// The group that a process's `/proc/PID/cgroup` names.
    pub(super) fn group_in(&self, text: &str) -> Result<Group, GroupError> {
        let name = text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let is_it = match self.version {
                Version::One => controllers.split(',').any(|name| name == "memory"),
                Version::Two => controllers.is_empty(),
            };
            is_it.then_some(path)
        });
        let name = name.ok_or(GroupError::NoController)?;
        // Below what is mounted; in a container that has the host's names it is the mounted group itself that is meant.
        let below = Path::new(name).strip_prefix(&self.mounted_group).unwrap_or(Path::new(""));
        Group::open(self.version, self.mount_point.join(below))
    }
}

/// `36 35 0:30 /group /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory`: the hierarchy, and the options of the
/// file system.
fn mount(line: &[u8]) -> Option<(Hierarchy, String)> {
    let text = |field: &[u8]| PathBuf::from(OsString::from_vec(unescaped(field)));
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let (root, mount_point) = (fields.get(3)?, fields.get(4)?);
    let version = match *fields.get(dash + 1)? {
        b"cgroup" => Version::One,
        b"cgroup2" => Version::Two,
        _ => return None,
    };
    let options = String::from_utf8_lossy(fields.get(dash + 3)?).into_owned();
    Some((Hierarchy { version, mount_point: text(mount_point), mounted_group: text(root) }, options))
}
