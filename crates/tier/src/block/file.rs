//! File or block device opened for a store: locked, with its space allocated, and with
//! two handles, one for direct I/O and one through the page cache for small requests.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tiermem_sys::disk;

use super::{BLOCK_BYTES, BlockError, Op, OpenError, check_range};

/// Whether it is a block device; an error when it is not a regular file either.
pub(super) fn is_device(path: &Path, file: &File) -> Result<bool, OpenError> {
    let looked = file.metadata();
    let metadata =
        looked.map_err(|source| OpenError::Io { what: "look at", path: path.to_owned(), source })?;
    let is_device = metadata.file_type().is_block_device();
    if is_device || metadata.is_file() {
        Ok(is_device)
    } else {
        Err(OpenError::Kind { path: path.to_owned() })
    }
}

/// An open file, shared by what does requests on it.
#[derive(Debug)]
pub(super) struct BlockFile {
    pub(super) path: PathBuf,
    /// For requests.
    pub(super) requests: Arc<File>,
    /// For what is small; it also holds the lock.
    pub(super) buffered: Arc<File>,
    capacity_bytes: AtomicU64,
    /// Whether requests go past the page cache.
    pub(super) direct: bool,
}

impl BlockFile {
    pub(super) fn open(path: &Path, capacity_bytes: u64) -> Result<Self, OpenError> {
        let path = path.to_owned();
        if capacity_bytes == 0 || !capacity_bytes.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(OpenError::Capacity { path, capacity_bytes });
        }
        let failed = |what| {
            let path = path.clone();
            move |source| OpenError::Io { what, path, source }
        };
        let is_new = !path.exists();
        let buffered = match disk::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(OpenError::InUse { path });
            }
            other => other.map_err(failed("open"))?,
        };
        let is_device = is_device(&path, &buffered)?;
        if !disk::lock(&buffered).map_err(failed("lock"))? {
            return Err(OpenError::InUse { path });
        }
        reserve(&path, &buffered, is_device, capacity_bytes).inspect_err(|_| {
            // Nobody else has it: it was made and locked here.
            if is_new {
                let _ = std::fs::remove_file(&path);
            }
        })?;
        Self::with_locked(&path, buffered, capacity_bytes, false)
    }

    /// Adds the way past the page cache to a file that is open and locked.
    pub(super) fn with_locked(
        path: &Path,
        file: File,
        capacity_bytes: u64,
        read_only: bool,
    ) -> Result<Self, OpenError> {
        let (path, buffered) = (path.to_owned(), Arc::new(file));
        let (requests, direct) = match disk::open_direct(&path, &buffered, read_only) {
            Ok(Some(file)) => (Arc::new(file), true),
            Ok(None) => (buffered.clone(), false),
            Err(source) => return Err(OpenError::Io { what: "open past the page cache", path, source }),
        };
        let capacity_bytes = AtomicU64::new(capacity_bytes);
        Ok(BlockFile { path, requests, buffered, capacity_bytes, direct })
    }

    /// See [`BlockIo::capacity_bytes`].
    pub(super) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Relaxed)
    }

    /// See [`BlockIo::grow`].
    pub(super) fn grow(&self, capacity_bytes: u64) -> Result<(), OpenError> {
        if capacity_bytes <= self.capacity_bytes() {
            return Ok(());
        }
        let failed = |source| OpenError::Io { what: "extend", path: self.path.clone(), source };
        reserve(&self.path, &self.buffered, is_device(&self.path, &self.buffered)?, capacity_bytes)?;
        disk::sync_data(&self.buffered).map_err(failed)?;
        self.capacity_bytes.store(capacity_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// See [`BlockIo::write_at`].
    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        check_range(Op::Write, offset, bytes.len() as u64, self.capacity_bytes())?;
        let error = |error| BlockError::from_io(Op::Write, offset, bytes.len(), &error);
        self.buffered.write_all_at(bytes, offset).map_err(error)
    }

    /// See [`BlockIo::read_at`].
    pub(super) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        let len_bytes = bytes.len() as u64;
        check_range(Op::Read, offset, len_bytes, self.capacity_bytes())?;
        self.buffered.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                BlockError::Short { op: Op::Read, offset, len_bytes, done_bytes: 0 }
            }
            _ => BlockError::from_io(Op::Read, offset, len_bytes as usize, &error),
        })
    }

    /// See [`BlockIo::sync`].
    pub(super) fn sync(&self) -> Result<(), BlockError> {
        disk::sync_data(&self.buffered).map_err(|error| BlockError::from_io(Op::Sync, 0, 0, &error))
    }

    /// Progress of a request when `got` more bytes of it came after `done`; `None` when it cannot
    /// continue. With direct I/O only whole blocks count, since it must continue at the beginning of one.
    pub(super) fn advance(&self, done: usize, got: usize) -> Option<usize> {
        let now = done + got;
        let now = if self.direct { now / BLOCK_BYTES * BLOCK_BYTES } else { now };
        (now > done).then_some(now)
    }
}

/// Sees to it that a device has so many bytes, or a file the space for them. A file that cannot have it keeps its length.
fn reserve(path: &Path, file: &File, is_device: bool, capacity_bytes: u64) -> Result<(), OpenError> {
    let path = path.to_owned();
    if is_device {
        return match io::Seek::seek(&mut &*file, io::SeekFrom::End(0)) {
            Ok(has_bytes) if has_bytes < capacity_bytes => {
                Err(OpenError::DeviceTooSmall { path, has_bytes, wanted_bytes: capacity_bytes })
            }
            Ok(_) => Ok(()),
            Err(source) => Err(OpenError::Io { what: "size", path, source }),
        };
    }
    let (len, has_bytes) = file.metadata().map_or((0, 0), |it| (it.len(), it.blocks().saturating_mul(512)));
    let no_space = |path| {
        let free_bytes = disk::free_bytes(file).unwrap_or(0);
        OpenError::NoSpace { path, wanted_bytes: capacity_bytes, has_bytes, free_bytes }
    };
    let Err(source) = disk::reserve(file, capacity_bytes) else { return Ok(()) };
    let _ = file.set_len(len);
    Err(match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => no_space(path),
        io::ErrorKind::Unsupported => OpenError::NoReservation { path },
        _ => OpenError::Io { what: "reserve space for", path, source },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_had_is_not_left_behind_and_one_that_was_there_stays() {
        let path = std::env::temp_dir().join(format!("tiermem-block-file-new-{}", std::process::id()));
        let too_much = u64::MAX / 4 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        assert!(BlockFile::open(&path, too_much).is_err() && !path.exists());
        std::fs::write(&path, [1; 100]).unwrap();
        assert!(BlockFile::open(&path, too_much).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), [1; 100]);
        std::fs::remove_file(path).unwrap();
    }

    /// With direct I/O a transfer that ended in the middle of a block continues at the block's beginning,
    /// and one that did not get there cannot continue; through the page cache every byte counts.
    #[test]
    fn a_short_transfer_goes_on_where_it_can() {
        let path = std::env::temp_dir().join(format!("tiermem-block-file-short-{}", std::process::id()));
        let mut file = BlockFile::open(&path, 1 << 20).unwrap();
        std::fs::remove_file(path).unwrap();
        file.direct = false;
        assert_eq!((file.advance(0, 100), file.advance(100, 0)), (Some(100), None));
        file.direct = true;
        assert_eq!(
            (file.advance(0, 5000), file.advance(4096, 4095), file.advance(0, 0)),
            (Some(4096), None, None)
        );
    }
}
