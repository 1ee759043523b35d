//! Mapped addresses, owned until they are dropped; and the error of a mapping that failed.

use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::munmap;

/// Why memory was not mapped.
#[derive(Debug, thiserror::Error)]
#[error("cannot map {bytes} bytes of memory: {source}")]
pub struct MapError {
    pub(crate) bytes: usize,
    pub(crate) source: Errno,
}

/// Addresses that are mapped until this value is dropped.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) start: NonNull<u8>,
    pub(crate) len: usize,
}

// SAFETY: an area is a range of addresses; by itself it reads and writes nothing there.
unsafe impl Send for Area {}
// SAFETY: an area is a range of addresses; by itself it reads and writes nothing there.
unsafe impl Sync for Area {}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by a constructor of `Mapping` or `SharedMapping`. Every value that reaches into it holds
        // the area: the mapping, which no reference to its bytes outlives, and each `Populate`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
