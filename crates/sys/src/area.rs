//! Addresses that somebody holds mapped.

use std::ptr::NonNull;

use rustix::mm::munmap;

/// Addresses that are mapped until this value is dropped.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) start: NonNull<u8>,
    pub(crate) len: usize,
}

// SAFETY: an area is a range of addresses; by itself it reads and writes nothing there.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by one of the constructors of `Mapping`. Whoever reaches into it holds the area: the
        // mapping, which no reference to its bytes outlives, and each `Populate`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
