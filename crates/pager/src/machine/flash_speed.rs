//! Read speed of flash, as a program under swap can have it: a plan for the pager is judged by it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use tiermem_sys::aligned::AlignedBuffer;
use tiermem_sys::disk;

/// Bytes that are read: some tens of milliseconds of a fast device.
const FILE_BYTES: u64 = 128 << 20;
/// Read at once, and by how many threads: what reading ahead makes of many pages.
const READ_BYTES: usize = 256 << 10;
const THREADS: u64 = 4;
const ROUNDS: usize = 3;

/// Bytes a second that can be read from a file in this folder, many at a time and past the page cache: the median of several rounds. The
/// file is made for that and removed.
///
/// # Errors
/// If there is no room for it, or its file system reads through the page cache alone.
pub fn flash_read_speed(folder: &Path) -> io::Result<f64> {
    let path = folder.join(format!(".tiermem-flash-speed-{}", std::process::id()));
    let written = OneFile::fill(path)?;
    let direct = disk::open_direct(&written.path, &written.file, true)?;
    let direct =
        direct.ok_or_else(|| io::Error::other("its file system reads through the page cache alone"))?;
    let mut rates = (0..ROUNDS).map(|_| read_all(&direct)).collect::<io::Result<Vec<f64>>>()?;
    rates.sort_by(f64::total_cmp);
    Ok(rates[ROUNDS / 2])
}

/// A file that is removed with this value.
struct OneFile {
    path: PathBuf,
    file: File,
}

impl OneFile {
    fn fill(path: PathBuf) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        let mut one = OneFile { path, file };
        // Not zeros, which a device may not store.
        let mut block: Vec<u8> = (0..READ_BYTES).map(|at| (at * 131) as u8).collect();
        for number in 0..FILE_BYTES / READ_BYTES as u64 {
            block[..8].copy_from_slice(&number.to_le_bytes());
            one.file.write_all(&block)?;
        }
        one.file.sync_all()?;
        Ok(one)
    }
}

impl Drop for OneFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn read_all(file: &File) -> io::Result<f64> {
    let (next, begun) = (AtomicU64::new(0), Instant::now());
    let read = || {
        let mut buffer = AlignedBuffer::zeroed(READ_BYTES);
        loop {
            let at = next.fetch_add(READ_BYTES as u64, Relaxed);
            if at >= FILE_BYTES {
                return Ok(());
            }
            file.read_exact_at(&mut buffer, at)?;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(read)).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())));
        ended.collect::<io::Result<Vec<()>>>()
    })?;
    Ok(FILE_BYTES as f64 / begun.elapsed().as_secs_f64().max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_and_what_is_there_is_left_alone() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        // Some file systems have no direct reads, which is an error with that reason.
        match flash_read_speed(folder.path()) {
            Ok(speed) => assert!(speed > 0.0 && speed.is_finite()),
            Err(error) => assert!(error.to_string().contains("page cache"), "{error}"),
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let own = folder.path().join(format!(".tiermem-flash-speed-{}", std::process::id()));
        fs::write(&own, "mine").unwrap();
        assert_eq!(flash_read_speed(folder.path()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&own).unwrap(), "mine");
        assert!(flash_read_speed(Path::new("/nowhere")).is_err());
    }
}
