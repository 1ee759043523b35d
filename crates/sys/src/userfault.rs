//! `userfaultfd`: the descriptor through which a process has a say in what happens when pages are not there, or are written.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const API: u64 = 0xAA;
const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
/// For faults of the program alone, which needs no privilege.
const USER_MODE_ONLY: libc::c_int = 1;

/// Write protection that the kernel lifts by itself and remembers, of pages that are not there yet too, and of files' and
/// shared memory.
pub const WATCH_WRITES: u64 = 1 << 0 | 1 << 12 | 1 << 13 | 1 << 15;
/// Moving a page.
pub const MOVE: u64 = 1 << 16;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// Opens one with these features, and tells all features that the kernel has.
///
/// # Errors
/// `ENOSYS` where the kernel has none, `EINVAL` where it lacks a feature, `EPERM` where something forbids it.
pub fn open(features: u64) -> io::Result<(OwnedFd, u64)> {
    // SAFETY: the call takes flags alone.
    let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
    let descriptor = match i32::try_from(descriptor) {
        // SAFETY: the kernel has just returned this descriptor, and nobody else knows of it.
        Ok(number) if number >= 0 => unsafe { OwnedFd::from_raw_fd(number) },
        _ => return Err(io::Error::last_os_error()),
    };
    let mut api = Api { api: API, features, ioctls: 0 };
    // SAFETY: the descriptor is a userfaultfd, the argument as long as the request says; it is filled in by the kernel.
    let done = unsafe { libc::ioctl(descriptor.as_raw_fd(), UFFDIO_API, &raw mut api) };
    if done == 0 { Ok((descriptor, api.features)) } else { Err(io::Error::last_os_error()) }
}
