//! What a file on a disk needs beyond the standard library: reads and writes past the page cache, space that is
//! really there, and an exclusive lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, fdatasync, flock, fstatvfs};
use rustix::io::Errno;

use crate::aligned::AlignedBuffer;

/// The error number of an input or output error of the device.
pub const EIO: i32 = Errno::IO.raw_os_error();
/// The error number of a full disk.
pub const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
/// The error number of a user's exhausted share of a disk.
pub const EDQUOT: i32 = Errno::DQUOT.raw_os_error();

/// Opens a regular file to read and write, made empty if it is not there; or a block device, if nothing else (a mounted
/// file system, another holder) has it.
pub fn open(path: &Path) -> io::Result<File> {
    let device = std::fs::metadata(path).is_ok_and(|it| it.file_type().is_block_device());
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if device {
        // Without O_CREAT this asks that nobody else holds the device.
        options.custom_flags(OFlags::EXCL.bits() as i32);
    } else {
        options.create(true).truncate(false);
    }
    options.open(path)
}

/// Opens `path` once more so that reads and writes go past the page cache; `None` where its file system refuses that.
/// An error when the path now leads to another file than `same`.
pub fn open_direct(path: &Path, same: &File) -> io::Result<Option<File>> {
    let direct =
        OpenOptions::new().read(true).write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path);
    let direct = match direct {
        Ok(file) => file,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (one, other) = (direct.metadata()?, same.metadata()?);
    if (one.dev(), one.ino()) != (other.dev(), other.ino()) {
        return Err(io::Error::other("the path was turned to another file while it was opened"));
    }
    // Some refuse only the transfer: blocks larger than ours, or file systems that encrypt.
    let probe = direct.read_at(&mut AlignedBuffer::zeroed(1), 0);
    let refused = probe.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::INVAL));
    Ok((!refused).then_some(direct))
}

/// Takes the file for this process; false if somebody has it. The lock goes with the last handle of the file.
pub fn lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Makes the first `len_bytes` of a regular file exist and have their space on the disk, holes filled.
pub fn reserve(file: &File, len_bytes: u64) -> io::Result<()> {
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, len_bytes) {
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}

/// Bytes that the file system of `file` still has for this user.
pub fn free_bytes(file: &File) -> io::Result<u64> {
    let stat = fstatvfs(file)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Makes what was written to the file durable, and of its metadata what is needed to find that again.
pub fn sync_data(file: &File) -> io::Result<()> {
    loop {
        match fdatasync(file) {
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_holds_against_another_handle_and_goes_with_its_own() {
        let path = std::env::temp_dir().join(format!("tiermem-disk-{}", std::process::id()));
        let (first, second) = (open(&path).unwrap(), open(&path).unwrap());
        assert!(lock(&first).unwrap());
        assert!(!lock(&second).unwrap());
        drop(first);
        assert!(lock(&second).unwrap());
        reserve(&second, 8192).unwrap();
        assert_eq!(second.metadata().unwrap().len(), 8192);
        assert!(second.metadata().unwrap().blocks() * 512 >= 8192);
        sync_data(&second).unwrap();
        assert!(free_bytes(&second).is_ok());
        std::fs::remove_file(&path).unwrap();
        // The path is free for another file, which is not the one that was opened.
        let third = open(&path).unwrap();
        assert!(open_direct(&path, &second).is_err() || open_direct(&path, &third).unwrap().is_none());
        std::fs::remove_file(path).unwrap();
    }
}
