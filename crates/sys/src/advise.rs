//! Advice about the memory of another process: `process_madvise(2)`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::pidfd::PidFd;

/// What is advised. None of it changes what a byte of memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Advice {
    /// These pages are needed soon: those that were paged out or lie in a file are read.
    WillNeed = 3,
    /// These pages are the first to go when memory is short.
    Cold = 20,
    /// These pages are paged out now, or demoted to a slower node where the kernel does so.
    PageOut = 21,
    /// These pages are made huge ones. From kernel 6.1 on.
    Collapse = 25,
}

/// Ranges that the kernel takes at once (`IOV_MAX`).
const RANGES_MAX: usize = 1024;

/// Gives advice about ranges of addresses, each as its start and its bytes. Returns of how many bytes it was taken: the
/// kernel stops at the first range that is not mapped, or where the advice does not apply.
///
/// # Errors
/// Permission denied (`EPERM`) without CAP_SYS_NICE and the right to trace the process; not found (`ESRCH`) if it has gone;
/// `ENOMEM` if the very first range is not mapped; `EINVAL` for advice that the kernel does not know.
pub fn advise(process: &PidFd, ranges: &[(u64, u64)], advice: Advice) -> io::Result<u64> {
    let mut advised = 0;
    for some in ranges.chunks(RANGES_MAX) {
        // The form of the kernel's iovec: an address and a length, of another process's memory.
        let places: Vec<[u64; 2]> = some.iter().map(|&(start, bytes)| [start, bytes]).collect();
        // SAFETY: the ranges outlive the call, which only reads them; the memory that they name is the other process's, and
        // none of the kinds of advice changes what it holds.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                process.as_fd().as_raw_fd(),
                places.as_ptr(),
                places.len(),
                advice as libc::c_int,
                0,
            )
        };
        match u64::try_from(done) {
            Ok(bytes) => advised += bytes,
            Err(_) if advised > 0 => return Ok(advised),
            Err(_) => return Err(io::Error::last_os_error()),
        }
        if advised < some.iter().map(|(_, bytes)| bytes).sum() {
            break;
        }
    }
    Ok(advised)
}

const _: () = assert!(size_of::<usize>() == size_of::<u64>());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    #[test]
    fn advice_is_taken_and_bytes_stay_what_they_are() {
        let mut mapping = Mapping::anonymous(4 << 20).unwrap();
        mapping.bytes_mut().fill(7);
        let range = (mapping.bytes().as_ptr().addr() as u64, 4 << 20);
        let own = PidFd::open(std::process::id()).unwrap();
        for advice in [Advice::Cold, Advice::PageOut, Advice::WillNeed, Advice::Collapse] {
            match advise(&own, &[range], advice) {
                Ok(bytes) => assert!(bytes <= 4 << 20, "{advice:?} of {bytes}"),
                // Not allowed, not known, or no room for a huge page.
                Err(error) => assert!(error.raw_os_error().is_some(), "{advice:?}: {error}"),
            }
        }
        assert!(mapping.bytes().iter().all(|byte| *byte == 7));
        assert_eq!(advise(&own, &[], Advice::Cold).unwrap(), 0);
        assert!(advise(&own, &[(0, 4096)], Advice::Cold).is_err());
    }
}
