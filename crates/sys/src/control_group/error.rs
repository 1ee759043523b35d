//! Errors of control groups.

use std::io;
use std::path::{Path, PathBuf};

use super::version::Version;

/// Why a group was not made, changed or read.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The machine has no memory controller in a mounted hierarchy.
    #[error(
        "cannot use control groups: no mount of /proc/self/mountinfo has the memory controller; mount one (mount -t cgroup2 none \
         /sys/fs/cgroup), or run where one is (in a container: with the host's groups writable)"
    )]
    NoController,
    /// The system refused.
    #[error("cannot {attempted} {}: {source}{advice}", path.display())]
    Io {
        /// The operation that was attempted.
        attempted: &'static str,
        /// The group, or its file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
        /// Advice; empty or a part of the sentence.
        advice: &'static str,
    },
    /// This version has no such thing, or this kernel.
    #[error("cannot {attempted} {}: control groups of {version} have no {file} here; {needs}", group.display())]
    Unsupported {
        /// The operation that was attempted.
        attempted: &'static str,
        /// The group.
        group: PathBuf,
        /// The version.
        version: Version,
        /// The file that would do it.
        file: &'static str,
        /// The requirement that is missing.
        needs: &'static str,
    },
    /// A file does not hold what it should.
    #[error("cannot read {}: {text:?} is not {wanted}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Its content, cut short.
        text: String,
        /// The expected form.
        wanted: &'static str,
    },
    /// Some processes do not end.
    #[error("cannot end the processes of {}: {left} are left after {waited_ms} ms", group.display())]
    StillThere {
        /// The group.
        group: PathBuf,
        /// How many.
        left: usize,
        /// How long was waited.
        waited_ms: u128,
    },
}

impl GroupError {
    pub(super) fn io(attempted: &'static str, path: &Path, source: io::Error) -> Self {
        let advice = match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
                "; it needs root, or a group that was handed to this user (systemd-run --user --scope -p Delegate=yes)"
            }
            Some(libc::EBUSY) => {
                "; the group has processes or groups below it, or more memory than it could give up: end them, or ask for less"
            }
            Some(libc::ESRCH) => "; the process has gone",
            _ => "",
        };
        GroupError::Io { attempted, path: path.to_owned(), source, advice }
    }

    pub(super) fn form(path: &Path, text: &str, wanted: &'static str) -> Self {
        GroupError::Form { path: path.to_owned(), text: text.chars().take(60).collect(), wanted }
    }

    /// The system's error, if it was one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            GroupError::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}
