//! Opening of a file or block device, and the choice of its I/O backend.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tiermem_sys::disk;

use super::file::{BlockFile, is_device};
use super::{BLOCK_BYTES, BlockIo, OpenError, PolledFile, ThreadedFile, UringFile};

/// Threads of [`Backend::Threads`]: as many requests as the kernel sees at once.
const THREADS: usize = 16;

/// I/O backend: how requests reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// io_uring where the kernel allows it, threads otherwise.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// A pool of threads that read and write.
    Threads,
}

/// Opens `path` as a device of `capacity_bytes`. A regular file is created or extended, and its
/// space reserved, so that a full disk is reported here and not during operation; it is never made
/// smaller. A block device is taken as it is. The file stays locked as long as the device lives.
pub fn open(path: &Path, capacity_bytes: u64, backend: Backend) -> Result<Box<dyn BlockIo>, OpenError> {
    use_file(&Arc::new(BlockFile::open(path, capacity_bytes)?), backend)
}

/// The same for a caller that waits for the device's descriptor ([`BlockIo::pollable`]): no thread comes between it and the kernel where
/// that has io_uring.
pub fn open_polled(path: &Path, capacity_bytes: u64) -> Result<Box<dyn BlockIo>, OpenError> {
    let file = Arc::new(BlockFile::open(path, capacity_bytes)?);
    match PolledFile::with_ring(file.clone()) {
        Ok(device) => Ok(Box::new(device)),
        Err(_) => use_file(&file, Backend::Threads),
    }
}

/// Opens the file for several users in one process, each with threads or a ring
/// of its own; the users must ensure that they do not write to the same bytes.
pub fn open_shared(
    path: &Path,
    capacity_bytes: u64,
    backend: Backend,
    users: usize,
) -> Result<Vec<Box<dyn BlockIo>>, OpenError> {
    let file = Arc::new(BlockFile::open(path, capacity_bytes)?);
    (0..users).map(|_| use_file(&file, backend)).collect()
}

fn use_file(file: &Arc<BlockFile>, backend: Backend) -> Result<Box<dyn BlockIo>, OpenError> {
    if backend != Backend::Threads {
        match UringFile::with_ring(file.clone()) {
            Ok(device) => return Ok(Box::new(device)),
            Err(source) if backend == Backend::Uring => {
                return Err(OpenError::Uring { path: file.path.clone(), source });
            }
            Err(_) => {}
        }
    }
    Ok(Box::new(ThreadedFile::with_threads(file.clone(), THREADS)?))
}

/// A file or device that was there before, opened as it is.
pub struct Existing {
    /// Its whole blocks; `None` when it has not one.
    pub blocks: Option<Box<dyn BlockIo>>,
    /// The file itself through the page cache, for the bytes behind the last whole block and for what else one does with a
    /// file. It holds the lock. Reading ahead is off, so that the page cache holds nothing that a request past it changes.
    pub file: Arc<File>,
    /// All its bytes.
    pub size_bytes: u64,
}

/// Opens `path` without creating, extending or reserving anything, whatever its
/// size. Read-only, it is locked against writers; otherwise against all others.
pub fn open_existing(path: &Path, read_only: bool, backend: Backend) -> Result<Existing, OpenError> {
    let failed = |what| {
        let path = path.to_owned();
        move |source| OpenError::Io { what, path, source }
    };
    let file = match disk::open_existing(path, read_only) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            return Err(OpenError::InUse { path: path.to_owned() });
        }
        other => other.map_err(failed("open"))?,
    };
    is_device(path, &file)?;
    let locked = if read_only { disk::lock_shared(&file) } else { disk::lock(&file) };
    if !locked.map_err(failed("lock"))? {
        return Err(OpenError::InUse { path: path.to_owned() });
    }
    let size_bytes = io::Seek::seek(&mut &file, io::SeekFrom::End(0)).map_err(failed("size"))?;
    disk::read_nothing_ahead(&file).map_err(failed("advise on"))?;
    let capacity_bytes = size_bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    let block_file = BlockFile::with_locked(path, file, capacity_bytes, read_only)?;
    let file = block_file.buffered.clone();
    let blocks = if capacity_bytes == 0 { None } else { Some(use_file(&Arc::new(block_file), backend)?) };
    Ok(Existing { blocks, file, size_bytes })
}

#[cfg(test)]
mod tests {
    use super::super::{AlignedBuffer, Completion, Request};
    use super::*;

    fn buffered(name: &str) -> Arc<BlockFile> {
        let path = std::env::temp_dir().join(format!("tiermem-block-file-{name}-{}", std::process::id()));
        let mut file = BlockFile::open(&path, 1 << 20).unwrap();
        std::fs::remove_file(path).unwrap();
        file.requests = file.buffered.clone();
        file.direct = false;
        Arc::new(file)
    }

    fn one(device: &mut dyn BlockIo, request: Request) -> Completion {
        device.submit(request);
        let mut done = Vec::new();
        device.wait(&mut done);
        done.pop().unwrap()
    }

    /// Most file systems have a way past the page cache, so where there is none must be made here.
    #[test]
    fn a_file_without_a_way_past_the_page_cache_serves_as_well() {
        let mut devices: Vec<Box<dyn BlockIo>> =
            vec![Box::new(ThreadedFile::with_threads(buffered("threads"), 2).unwrap())];
        if let Ok(device) = UringFile::with_ring(buffered("uring")) {
            devices.push(Box::new(device));
        }
        for mut device in devices {
            assert!(device.describe().ends_with("through the page cache"));
            let mut buffer = AlignedBuffer::zeroed(3 * BLOCK_BYTES);
            buffer.fill(3);
            assert_eq!(one(&mut device, Request::write(1, 8192, buffer)).result, Ok(()));
            assert_eq!(one(&mut device, Request::sync(2)).result, Ok(()));
            let back = one(&mut device, Request::read(3, 4096, AlignedBuffer::zeroed(2 * BLOCK_BYTES)));
            assert_eq!((back.result, back.buffer[4095], back.buffer[4096]), (Ok(()), 0, 3));
        }
    }
}
