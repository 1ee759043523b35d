//! One control group: creation, removal, its processes, its memory usage.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Access, access};

use super::error::GroupError;
use super::files;
use super::version::Version;

/// A group of the memory controller, by its folder. Dropping this leaves the group as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    version: Version,
    path: PathBuf,
}

impl Group {
    /// The group of this folder.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(version: Version, path: PathBuf) -> Result<Self, GroupError> {
        match fs::metadata(path.join("cgroup.procs")) {
            Ok(_) => Ok(Group { version, path }),
            Err(error) => Err(GroupError::io("open the control group", &path, error)),
        }
    }

    /// Makes a group below this one. With version 2 this one then hands the memory controller on, which it cannot as long as it
    /// has processes itself (but for the root).
    ///
    /// # Errors
    /// The system's error: the right is missing, there is one of this name, `EBUSY` for the processes.
    pub fn create(&self, name: &str) -> Result<Group, GroupError> {
        let path = self.path.join(name);
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(GroupError::form(&path, name, "a name for a control group"));
        }
        if self.version == Version::Two {
            self.hand_memory_on()?;
        }
        fs::create_dir(&path).map_err(|error| GroupError::io("make the control group", &path, error))?;
        Ok(Group { version: self.version, path })
    }

    fn hand_memory_on(&self) -> Result<(), GroupError> {
        const ATTEMPTED: &str = "have groups below limit memory through";
        let file = self.path.join("cgroup.subtree_control");
        let handed = files::read(ATTEMPTED, &file)?;
        if handed.split_whitespace().any(|name| name == "memory") {
            return Ok(());
        }
        files::write(ATTEMPTED, &file, "+memory")
    }

    /// Removes it.
    ///
    /// # Errors
    /// `EBUSY` while it has processes or groups below.
    pub fn remove(self) -> Result<(), GroupError> {
        fs::remove_dir(&self.path)
            .map_err(|error| GroupError::io("remove the control group", &self.path, error))
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The file of this name, or why there is none.
    pub(super) fn existing(
        &self,
        attempted: &'static str,
        name: &'static str,
        needs: &'static str,
    ) -> Result<PathBuf, GroupError> {
        files::existing(attempted, (self.version, &self.path), name, needs)
    }

    /// Whether this user may make groups below.
    pub fn may_be_changed(&self) -> bool {
        access(&self.path, Access::WRITE_OK | Access::EXEC_OK).is_ok()
    }

    /// Moves a process here, with all its threads. What it has in memory stays charged to the group where it was.
    ///
    /// # Errors
    /// The system's error; `ESRCH` if it has gone.
    pub fn add(&self, pid: u32) -> Result<(), GroupError> {
        files::write("move a process to", &self.file("cgroup.procs"), &pid.to_string())
    }

    /// Has a process that is going to be started move here by itself before it runs its program: all that the program has in memory
    /// is charged here.
    ///
    /// # Errors
    /// The system's error: the right to move processes here is missing.
    pub fn add_child(&self, command: &mut Command) -> Result<(), GroupError> {
        let path = self.file("cgroup.procs");
        let opened = OpenOptions::new().write(true).open(&path);
        let file = opened.map_err(|error| GroupError::io("move a process to", &path, error))?;
        // The file lives as long as the command, and is closed in the process when it runs its program.
        let ask = move || {
            // SAFETY: between fork and exec the closure makes one system call, which takes no locks and allocates nothing; the byte
            // outlives it. `0` means the process that writes.
            match unsafe { libc::write(file.as_raw_fd(), b"0".as_ptr().cast(), 1) } {
                1 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure is fit to run between fork and exec, as said in it.
        unsafe { command.pre_exec(ask) };
        Ok(())
    }

    /// The processes in it, without those of groups below.
    ///
    /// # Errors
    /// The system's error.
    pub fn processes(&self) -> Result<Vec<u32>, GroupError> {
        let file = self.file("cgroup.procs");
        let text = files::read("list the processes of", &file)?;
        let wrong = |line: &str| GroupError::form(&file, line, "a process's number");
        text.lines().map(|line| line.parse().map_err(|_| wrong(line))).collect()
    }

    /// Bytes that are charged to it and to groups below: memory with its file cache.
    ///
    /// # Errors
    /// The system's error.
    pub fn usage_bytes(&self) -> Result<u64, GroupError> {
        let file = match self.version {
            Version::One => "memory.usage_in_bytes",
            Version::Two => "memory.current",
        };
        self.bytes_of(file)
    }

    /// The most that was charged since it was made.
    ///
    /// # Errors
    /// The system's error; with version 2 before Linux 5.19 there is none.
    pub fn peak_bytes(&self) -> Result<u64, GroupError> {
        const ATTEMPTED: &str = "read the peak of";
        match self.version {
            Version::One => self.bytes_of("memory.max_usage_in_bytes"),
            Version::Two => {
                self.existing(ATTEMPTED, "memory.peak", "it needs Linux 5.19, and a group below the root")?;
                self.bytes_of("memory.peak")
            }
        }
    }

    /// Bytes of swap that are charged to it and to groups below.
    ///
    /// # Errors
    /// The system's error, or that swap is not counted here.
    pub fn swap_usage_bytes(&self) -> Result<u64, GroupError> {
        const ATTEMPTED: &str = "read the swap of";
        match self.version {
            Version::One => {
                let file = self.existing(ATTEMPTED, "memory.stat", "")?;
                let stat = self.stat()?;
                let wrong =
                    || GroupError::form(&file, "", "a table with `total_swap` (boot with swapaccount=1)");
                stat.get("total_swap").copied().ok_or_else(wrong)
            }
            Version::Two => {
                self.existing(
                    ATTEMPTED,
                    "memory.swap.current",
                    "it needs a kernel with swap, and a group below the root",
                )?;
                self.bytes_of("memory.swap.current")
            }
        }
    }

    /// The most that was in swap since it was made. Version 1 knows the peak of memory and swap together: it is at least that, less the peak
    /// of memory.
    ///
    /// # Errors
    /// The system's error, or that swap is not counted here; with version 2 before Linux 6.5 there is none.
    pub fn swap_peak_bytes(&self) -> Result<u64, GroupError> {
        const ATTEMPTED: &str = "read the peak of swap of";
        match self.version {
            Version::One => {
                let both = "memory.memsw.max_usage_in_bytes";
                self.existing(
                    ATTEMPTED,
                    both,
                    "it needs a kernel that counts swap by group: boot with swapaccount=1",
                )?;
                Ok(self.bytes_of(both)?.saturating_sub(self.peak_bytes()?))
            }
            Version::Two => {
                self.existing(
                    ATTEMPTED,
                    "memory.swap.peak",
                    "it needs Linux 6.5, and a group below the root",
                )?;
                self.bytes_of("memory.swap.peak")
            }
        }
    }

    /// The table `memory.stat`; its names differ between versions.
    ///
    /// # Errors
    /// The system's error.
    pub fn stat(&self) -> Result<BTreeMap<String, u64>, GroupError> {
        let file = self.file("memory.stat");
        files::table(&file, &files::read("read the statistics of", &file)?)
    }

    fn bytes_of(&self, name: &str) -> Result<u64, GroupError> {
        let file = self.file(name);
        let text = files::read("read the usage of", &file)?;
        files::number(&file, &text)?.ok_or_else(|| GroupError::form(&file, &text, "a number of bytes"))
    }
}
