//! Ageing of pages: clears the accessed bits of another process's pages, in some ranges only.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Ranges that one call takes (`UIO_MAXIOV`).
const RANGES_MAX: usize = 1024;

/// Whether this process may do that to the other one: it needs to read its memory, and CAP_SYS_NICE.
pub fn is_allowed(process: BorrowedFd<'_>) -> bool {
    advise(process, &[]).is_ok()
}

/// Makes pages old, as if they had not been referenced: from now on `/proc/PID/smaps` tells of references anew. Ranges are first
/// addresses and bytes, of whole pages. Pages that other processes have mapped too stay as they are, and so does what is not
/// mapped. A page of the cache that is larger than its part of a range is divided. The kernel takes old pages first when memory
/// runs out, until they are referenced again.
///
/// # Errors
/// Permission denied, see [`is_allowed`]; not found (`ESRCH`) if the process has gone.
pub fn make_old(process: BorrowedFd<'_>, ranges: &[(u64, u64)]) -> io::Result<()> {
    let mut left = ranges;
    while !left.is_empty() {
        let (now, later) = left.split_at(left.len().min(RANGES_MAX));
        match advise(process, now) {
            Ok(bytes) => {
                // It stops at a range that is not mapped, which is passed over.
                let mut before = 0;
                let whole = now.iter().take_while(|(_, of)| {
                    before += of;
                    before <= bytes
                });
                let done = whole.count();
                left = if done == now.len() { later } else { &left[done + 1..] };
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL)) => {
                left = &left[1..];
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn advise(process: BorrowedFd<'_>, ranges: &[(u64, u64)]) -> io::Result<u64> {
    let vectors: Vec<libc::iovec> = ranges
        .iter()
        .map(|(address, bytes)| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(*address as usize),
            iov_len: *bytes as usize,
        })
        .collect();
    // SAFETY: the vectors outlive the call, which reads them; the ranges in them belong to the other process, whose memory keeps
    // its contents.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            vectors.as_ptr(),
            vectors.len(),
            libc::MADV_COLD,
            0,
        )
    };
    u64::try_from(done).map_err(|_| io::Error::last_os_error())
}
