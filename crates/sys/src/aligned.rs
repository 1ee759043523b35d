//! Aligned memory for direct I/O (`O_DIRECT`), for which the kernel demands that address, length and offset are multiples
//! of the device's block.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The alignment of address and length, in bytes: the largest block that common devices have.
pub const ALIGN_BYTES: usize = 4096;

/// Owned bytes whose address and length are multiples of [`ALIGN_BYTES`], zero at first. An empty one takes no memory.
///
/// The bytes stay where they are when the value moves, so the kernel may be told their address.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the bytes belong to this value alone and are reached only through `&self` and `&mut self`.
unsafe impl Send for AlignedBuffer {}
// SAFETY: the bytes are reached only through `&self` and `&mut self`, and shared access is read-only.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// A buffer of `len_bytes`, rounded up to a multiple of [`ALIGN_BYTES`].
    ///
    /// # Panics
    /// When the length is beyond what an address can span. Memory that is not there ends the process, as with `Vec`.
    pub fn zeroed(len_bytes: usize) -> Self {
        let len = len_bytes.checked_next_multiple_of(ALIGN_BYTES).expect("a length that memory can have");
        if len == 0 {
            return AlignedBuffer::empty();
        }
        let layout = Self::layout(len);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        AlignedBuffer { start, len }
    }

    /// A buffer without bytes.
    pub const fn empty() -> Self {
        AlignedBuffer { start: NonNull::dangling(), len: 0 }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGN_BYTES).expect("a length that memory can have")
    }
}

impl Default for AlignedBuffer {
    fn default() -> Self {
        AlignedBuffer::empty()
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start..start + len` was allocated zeroed, so it is initialised, and lives until `drop`; it is only
        // changed through `&mut self`. With length zero any aligned address will do.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated by `zeroed` with this layout, and given back once.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
        }
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_rounded_up_and_zero() {
        for (asked, len) in [(0, 0), (1, 4096), (4096, 4096), (4097, 8192), (1 << 20, 1 << 20)] {
            let mut buffer = AlignedBuffer::zeroed(asked);
            assert_eq!(buffer.len(), len);
            assert!(len == 0 || (buffer.as_ptr() as usize).is_multiple_of(ALIGN_BYTES));
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            let moved = std::thread::spawn(move || buffer).join().unwrap();
            assert!(moved.iter().all(|byte| *byte == 7));
        }
    }
}
