//! Anonymous memory of the process: the bytes of a memory tier.

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Why memory was not mapped.
#[derive(Debug, thiserror::Error)]
#[error("cannot map {bytes} bytes of memory: {source}")]
pub struct MapError {
    bytes: usize,
    source: rustix::io::Errno,
}

/// A private anonymous mapping, zero at first. A page of it takes memory once it is written.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is private to this value, and its bytes are reached only through `&self` and `&mut self`.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access is read-only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, at least one page. Huge pages are used where the kernel has them: an item's bytes are
    /// reached at random, and each miss of the address cache costs another memory access.
    pub fn anonymous(len: usize) -> Result<Self, MapError> {
        let len = len.max(1).next_multiple_of(4096);
        let error = |source| MapError { bytes: len, source };
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses aliases nothing.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }
                .map_err(error)?;
        // SAFETY: the range was just mapped; the advice changes no contents. A kernel without huge pages refuses,
        // and then small pages are what there is.
        let _ = unsafe { madvise(start, len, Advice::LinuxHugepage) };
        let start = NonNull::new(start.cast()).ok_or_else(|| error(rustix::io::Errno::NOMEM))?;
        Ok(Mapping { start, len })
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start..start + len` is mapped readable until `drop`, always initialised (zero pages), and only
        // changed through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to write.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Gives the memory of whole pages in this range back to the system; they read as zero afterwards.
    ///
    /// # Panics
    /// When the range does not lie within the mapping.
    pub fn discard(&mut self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a range of the mapping");
        let (first, end) = (offset.next_multiple_of(4096), (offset + len) / 4096 * 4096);
        if first < end {
            // SAFETY: the range is whole pages of our own mapping, and `&mut self` excludes references into it.
            // Failure leaves the bytes as they are, which costs memory and nothing else.
            let _ =
                unsafe { madvise(self.start.as_ptr().add(first).cast(), end - first, Advice::LinuxDontNeed) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `anonymous` and no reference outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_writable_and_can_be_given_back() {
        let mut mapping = Mapping::anonymous(3 * 4096).unwrap();
        mapping.bytes_mut()[4095..8200].fill(7);
        mapping.discard(4096, 4096);
        assert_eq!((mapping.bytes()[4095], mapping.bytes()[4096], mapping.bytes()[8192]), (7, 0, 7));
        mapping.discard(1, 4094);
        assert_eq!(mapping.bytes()[4095], 7);
    }
}
