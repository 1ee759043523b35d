//! Errors of swap.

use std::io;
use std::path::{Path, PathBuf};

/// Why swap was not made, turned on or turned off.
#[derive(Debug, thiserror::Error)]
pub enum SwapError {
    /// The system refused.
    #[error("cannot {attempted} {}: {source}{advice}", path.display())]
    Io {
        /// The operation that was attempted.
        attempted: &'static str,
        /// With what.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
        /// Advice; empty or a part of the sentence.
        advice: &'static str,
    },
    /// The file system cannot hold swap.
    #[error(
        "cannot use {} for swap: it lies on {file_system}, from which the kernel cannot swap; choose a path on ext4 or xfs, or a \
         block device",
        path.display()
    )]
    FileSystem {
        /// The file.
        path: PathBuf,
        /// The kind of file system.
        file_system: &'static str,
    },
    /// The file has fewer bytes on the disk than in its length.
    #[error(
        "cannot use {} for swap: it has holes ({on_disk_bytes} of {bytes} bytes are on the disk); make it anew, or fill it with \
         zeros",
        path.display()
    )]
    Holes {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The bytes of it on the disk.
        on_disk_bytes: u64,
    },
    /// There is no swap in it.
    #[error("cannot use {} for swap: it {problem}", path.display())]
    NotSwap {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        problem: &'static str,
    },
    /// A size, label or priority that cannot be.
    #[error("cannot make swap in {}: {problem}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
}

impl SwapError {
    pub(super) fn io(attempted: &'static str, path: &Path, source: io::Error, advice: &'static str) -> Self {
        SwapError::Io { attempted, path: path.to_owned(), source, advice }
    }

    /// The system's error, if it was one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            SwapError::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}
