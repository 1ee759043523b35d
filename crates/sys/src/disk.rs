//! Files on a disk, beyond the standard library: direct I/O, space that is really allocated, and an exclusive lock.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{
    Advice, FallocateFlags, FlockOperation, OFlags, SeekFrom, fadvise, fallocate, fdatasync, flock, fstatvfs,
    seek,
};
use rustix::io::Errno;

use crate::aligned::AlignedBuffer;

/// The error number of an input or output error of the device.
pub const EIO: i32 = Errno::IO.raw_os_error();
/// The error number of a full disk.
pub const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
/// `stat` counts a file's space in these.
const STAT_BLOCK_BYTES: u64 = 512;
/// The error number of a user's exhausted share of a disk.
pub const EDQUOT: i32 = Errno::DQUOT.raw_os_error();
/// The file system is mounted read-only.
pub const EROFS: i32 = Errno::ROFS.raw_os_error();

/// Opens a regular file to read and write, made empty if it is not there; or a block device, if nothing else (a mounted
/// file system, another holder) has it.
pub fn open(path: &Path) -> io::Result<File> {
    let device = std::fs::metadata(path).is_ok_and(|it| it.file_type().is_block_device());
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if device {
        // Without O_CREAT this asks that no other process holds the device.
        options.custom_flags(OFlags::EXCL.bits() as i32);
    } else {
        options.create(true).truncate(false);
    }
    options.open(path)
}

/// Opens a regular file or block device that is there, as it is. To write to a block device, nothing else may have it.
pub fn open_existing(path: &Path, read_only: bool) -> io::Result<File> {
    let device = std::fs::metadata(path)?.file_type().is_block_device();
    // Without waiting: opening a pipe would wait until it has a writer.
    let mut flags = OFlags::NONBLOCK;
    if device && !read_only {
        flags |= OFlags::EXCL;
    }
    OpenOptions::new().read(true).write(!read_only).custom_flags(flags.bits() as i32).open(path)
}

/// Opens `path` once more so that reads and writes go past the page cache; `None` where its file system refuses that.
/// An error when the path now leads to another file than `same`.
pub fn open_direct(path: &Path, same: &File, read_only: bool) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(!read_only).custom_flags(OFlags::DIRECT.bits() as i32);
    let direct = match options.open(path) {
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

/// Locks the file for this process alone; false if another process has it. The lock ends with the last handle of the file.
pub fn lock(file: &File) -> io::Result<bool> {
    flock_soon(file, FlockOperation::NonBlockingLockExclusive)
}

/// Gives a lock of the file back before the file is closed.
pub fn unlock(file: &File) -> io::Result<()> {
    Ok(flock(file, FlockOperation::Unlock)?)
}

/// Takes a shared lock of the file; false if another process has it alone. A shared lock keeps others from taking it alone.
pub fn lock_shared(file: &File) -> io::Result<bool> {
    flock_soon(file, FlockOperation::NonBlockingLockShared)
}

/// Whether another handle of the file has it locked alone ([`lock`]).
///
/// # Errors
/// If the file system has no locks, say: it is not known then.
pub fn is_locked(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => unlock(file).map(|()| false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Time for the files of a process that was killed to be let go. The kernel ends its requests to io_uring only after the process
/// itself, so whoever starts the next one at once still finds them locked, on some file systems for a tenth of a second.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

fn flock_soon(file: &File, operation: FlockOperation) -> io::Result<bool> {
    let began = Instant::now();
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if began.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The space that a file has on the disk, in bytes.
pub fn held_bytes(about: &Metadata) -> u64 {
    about.blocks().saturating_mul(STAT_BLOCK_BYTES)
}

/// Makes the first `len_bytes` of a regular file exist and have their space on the disk, holes filled.
///
/// # Errors
/// [`ENOSPC`] if the file system has less room than that. It is looked at beforehand: the kernel would take all that is left before it
/// finds out, so that for a moment nobody else could write.
pub fn reserve(file: &File, len_bytes: u64) -> io::Result<()> {
    let held_bytes = held_bytes(&file.metadata()?);
    if free_bytes(file).is_ok_and(|free| len_bytes.saturating_sub(held_bytes) > free) {
        return Err(Errno::NOSPC.into());
    }
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, len_bytes) {
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}

/// Gives the space of these bytes back; they read as zeroes, and the file's length stays. `false` where that cannot be done.
pub fn punch_hole(file: &File, offset: u64, len_bytes: u64) -> io::Result<bool> {
    fallocate_if_known(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len_bytes)
}

/// Makes these bytes read as zeroes and keeps their space; the file's length stays. `false` where that cannot be done.
pub fn zero_range(file: &File, offset: u64, len_bytes: u64) -> io::Result<bool> {
    fallocate_if_known(file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, offset, len_bytes)
}

fn fallocate_if_known(file: &File, how: FallocateFlags, offset: u64, len_bytes: u64) -> io::Result<bool> {
    loop {
        match fallocate(file, how, offset, len_bytes) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => return Ok(false),
            other => return other.map(|()| true).map_err(io::Error::from),
        }
    }
}

/// Tells the page cache to keep no more of this file than what is asked for.
pub fn read_nothing_ahead(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::Random)?)
}

/// Bytes that the file system of `file` still has for this user.
pub fn free_bytes(file: &File) -> io::Result<u64> {
    let stat = fstatvfs(file)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Where from byte `offset` on data are, or a hole: `None` if that is unknown, as of a device. A hole reads as zeroes. It moves the
/// file's own position, which nothing else here uses.
pub fn data_or_hole(file: &File, offset: u64, end: u64) -> io::Result<Option<(bool, u64)>> {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(data) if data > offset => Ok(Some((false, data.min(end)))),
        Ok(_) => match seek(file, SeekFrom::Hole(offset)) {
            Ok(hole) => Ok(Some((true, hole.clamp(offset + 1, end)))),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
            Err(error) => Err(error.into()),
        },
        // No data behind it.
        Err(Errno::NXIO) => Ok(Some((false, end))),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
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

/// Writes back what the kernel has of all files and devices.
pub fn write_back_everything() {
    rustix::fs::sync();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_had_when_who_holds_it_goes_and_refused_where_nobody_does() {
        let path = std::env::temp_dir().join(format!("tiermem-lock-{}", std::process::id()));
        let (held, wanted) = (open(&path).unwrap(), open(&path).unwrap());
        assert!(lock(&held).unwrap());
        assert!(!lock(&wanted).unwrap() && !lock_shared(&wanted).unwrap());
        let goes = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            drop(held);
        });
        assert!(lock(&wanted).unwrap());
        goes.join().unwrap();
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn space_that_is_not_there_is_refused_before_any_is_taken() {
        let path = std::env::temp_dir().join(format!("tiermem-reserve-{}", std::process::id()));
        let file = open(&path).unwrap();
        let more = free_bytes(&file).unwrap() + (1 << 30);
        assert_eq!(reserve(&file, more).unwrap_err().raw_os_error(), Some(ENOSPC));
        assert_eq!(file.metadata().unwrap().blocks(), 0);
        reserve(&file, 100_000).unwrap();
        // What it has is not asked for again.
        reserve(&file, 100_000).unwrap();
        assert!(
            file.metadata().unwrap().len() == 100_000 && file.metadata().unwrap().blocks() >= 100_000 / 512
        );
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_lock_holds_against_another_handle_and_goes_with_its_own() {
        let path = std::env::temp_dir().join(format!("tiermem-disk-{}", std::process::id()));
        let (first, second) = (open(&path).unwrap(), open(&path).unwrap());
        assert!(lock(&first).unwrap());
        assert!(!lock(&second).unwrap());
        drop(first);
        let shared = open_existing(&path, true).unwrap();
        assert!(lock_shared(&second).unwrap() && lock_shared(&shared).unwrap() && !lock(&second).unwrap());
        drop(shared);
        assert!(lock(&second).unwrap());
        reserve(&second, 8192).unwrap();
        assert_eq!(second.metadata().unwrap().len(), 8192);
        assert!(second.metadata().unwrap().blocks() * 512 >= 8192);
        sync_data(&second).unwrap();
        let mut bytes = [1; 3];
        for zeroed in [zero_range, punch_hole] {
            second.write_at(&[7; 3], 8189).unwrap();
            if zeroed(&second, 8190, 4096).unwrap() {
                second.read_at(&mut bytes, 8189).unwrap();
                assert_eq!(bytes, [7, 0, 0]);
            }
            assert_eq!(second.metadata().unwrap().len(), 8192);
        }
        assert!(free_bytes(&second).is_ok());
        std::fs::remove_file(&path).unwrap();
        // The path is free for another file, which is not the one that was opened.
        let third = open(&path).unwrap();
        assert!(
            open_direct(&path, &second, false).is_err()
                || open_direct(&path, &third, false).unwrap().is_none()
        );
        std::fs::remove_file(path).unwrap();
    }
}
