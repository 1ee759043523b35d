//! Errors of block devices, and what to do about them.

use std::fmt;
use std::io;
use std::path::PathBuf;

use tiermem_sys::disk::{EDQUOT, EIO, ENOSPC};

use super::{BLOCK_BYTES, Op};

/// Why a request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The system refused, or the device failed.
    #[error("{op} of {len_bytes} bytes at byte {offset} failed: {}", io::Error::from_raw_os_error(*errno))]
    Os {
        /// What was tried.
        op: Op,
        /// Where, in bytes.
        offset: u64,
        /// How much.
        len_bytes: u64,
        /// The system's error number.
        errno: i32,
    },
    /// The file ended within the request.
    #[error(
        "{op} of {len_bytes} bytes at byte {offset} ended after {done_bytes}: the file is shorter than it was at start; \
         restore it, or start anew with an empty one"
    )]
    Short {
        /// What was tried.
        op: Op,
        /// Where, in bytes.
        offset: u64,
        /// How much.
        len_bytes: u64,
        /// How much was transferred.
        done_bytes: u64,
    },
    /// The request reaches beyond the device.
    #[error("{op} of {len_bytes} bytes at byte {offset} reaches beyond the device's {capacity_bytes} bytes")]
    OutOfRange {
        /// What was tried.
        op: Op,
        /// Where, in bytes.
        offset: u64,
        /// How much.
        len_bytes: u64,
        /// The device's bytes.
        capacity_bytes: u64,
    },
    /// The request does not begin at a block.
    #[error("{op} at byte {offset}, which is no multiple of {BLOCK_BYTES}")]
    Unaligned {
        /// What was tried.
        op: Op,
        /// Where, in bytes.
        offset: u64,
    },
}

impl BlockError {
    /// An error of the device itself (`EIO`).
    pub fn device(op: Op, offset: u64, len_bytes: usize) -> Self {
        BlockError::Os { op, offset, len_bytes: len_bytes as u64, errno: EIO }
    }

    /// A full disk (`ENOSPC`).
    pub fn full(op: Op, offset: u64, len_bytes: usize) -> Self {
        BlockError::Os { op, offset, len_bytes: len_bytes as u64, errno: ENOSPC }
    }

    /// Whether the disk, or the user's share of it, is full: writing elsewhere will not help, reading still works.
    pub fn is_full(&self) -> bool {
        matches!(self, BlockError::Os { errno, .. } if [ENOSPC, EDQUOT].contains(errno))
    }

    pub(super) fn from_io(op: Op, offset: u64, len_bytes: usize, error: &io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(EIO);
        BlockError::Os { op, offset, len_bytes: len_bytes as u64, errno }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Sync => "sync",
        })
    }
}

/// Why a file or device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A capacity that no device has.
    #[error("{path}: a capacity of {capacity_bytes} bytes; it must be a multiple of {BLOCK_BYTES} and not 0")]
    Capacity {
        /// The file.
        path: PathBuf,
        /// What was asked.
        capacity_bytes: u64,
    },
    /// Neither a regular file nor a block device.
    #[error("{path} is neither a regular file nor a block device")]
    Kind {
        /// What it is about.
        path: PathBuf,
    },
    /// Another process has the lock, or holds the device.
    #[error(
        "{path} is in use by another store, or is a device that is mounted; give each store a file or device of its own, \
         or stop the other one"
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A block device that is too small.
    #[error(
        "{path} has {has_bytes} bytes, fewer than the capacity of {wanted_bytes}; ask for no more than it has"
    )]
    DeviceTooSmall {
        /// The device.
        path: PathBuf,
        /// Its bytes.
        has_bytes: u64,
        /// The bytes asked for.
        wanted_bytes: u64,
    },
    /// The disk has no room for the file.
    #[error(
        "no room for {path} of {wanted_bytes} bytes: its disk has {free_bytes} bytes left beside the {has_bytes} that the \
         file has; free some, ask for a smaller capacity, or put the file elsewhere"
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The bytes asked for.
        wanted_bytes: u64,
        /// The bytes that the file had.
        has_bytes: u64,
        /// The bytes that the file system had left afterwards, for this user.
        free_bytes: u64,
    },
    /// The file system cannot promise space.
    #[error(
        "the file system of {path} cannot reserve space (fallocate), so it could be full in the midst of work; put the \
         file on another (ext4, xfs, btrfs, tmpfs), or use a block device"
    )]
    NoReservation {
        /// The file.
        path: PathBuf,
    },
    /// io_uring was asked for by name and is not available.
    #[error(
        "io_uring cannot be used for {path}: {source}; allow it (sysctl kernel.io_uring_disabled=0, and the container's \
         seccomp profile), or use threads"
    )]
    Uring {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Anything else.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was tried: a verb.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}
