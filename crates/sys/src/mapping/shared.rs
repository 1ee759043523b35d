//! Shared mappings: memory that others write while this process holds it. They are the kernel (which fills and takes pages
//! through `userfaultfd`), or other processes that have the same file mapped.
//!
//! A `&[u8]` promises that its bytes do not change, so there is none here. Bytes are copied in and out by atomic accesses of
//! whole aligned words, which may race with any other access: a copy may then hold a part of the old bytes and a part of the new
//! ones, each word whole.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous};

use super::area::{Area, MapError};
use super::pages::{PAGE_BYTES, Pages, PagesError};

const WORD_BYTES: usize = 8;

/// The access of this process to a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read alone.
    Read,
    /// Read and write.
    ReadWrite,
}

/// Mapped memory whose bytes other threads, processes or the kernel may change at any moment.
///
/// An access may wait (a page that a `userfaultfd` has yet to fill), and may end the process by SIGBUS: a page that was poisoned,
/// or a file that was shortened.
#[derive(Debug)]
pub struct SharedMapping {
    area: Area,
    access: Access,
}

impl SharedMapping {
    /// Maps memory of no file, zero at first, which takes memory when it is touched. `len` is rounded up to whole pages.
    ///
    /// # Errors
    /// If the kernel has no addresses or mappings left for it.
    pub fn anonymous(len: usize) -> Result<Self, MapError> {
        let len = whole_pages(len)?;
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new anonymous mapping at an address that the kernel chooses aliases nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, flags) };
        SharedMapping::of(start, len, Access::ReadWrite)
    }

    /// Maps `len` bytes of a file from `offset` on (a multiple of 4096; of the size of its pages where they are huge), shared
    /// with all other processes that map it. The mapping outlives the descriptor.
    ///
    /// # Errors
    /// The kernel's error; permission denied for `ReadWrite` of a file that is open to read.
    pub fn file(file: impl AsFd, offset: u64, len: usize, access: Access) -> Result<Self, MapError> {
        let len = whole_pages(len)?;
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a new mapping at an address that the kernel chooses; what others do with the file's bytes is what this type
        // is for, no reference to them is ever made.
        let start = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, offset) };
        SharedMapping::of(start, len, access)
    }

    fn of(
        start: Result<*mut core::ffi::c_void, Errno>,
        len: usize,
        access: Access,
    ) -> Result<Self, MapError> {
        let error = |source| MapError { bytes: len, source };
        let start = NonNull::new(start.map_err(error)?.cast()).ok_or_else(|| error(Errno::NOMEM))?;
        Ok(SharedMapping { area: Area { start, len }, access })
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.area.len
    }

    /// Whether it is empty: never.
    pub fn is_empty(&self) -> bool {
        self.area.len == 0
    }

    /// Its first address.
    pub fn address(&self) -> u64 {
        self.area.start.as_ptr().addr() as u64
    }

    /// The pages of this range.
    ///
    /// # Errors
    /// If they are not whole, there are none, or they do not lie within the mapping.
    pub fn pages(&self, offset: usize, len: usize) -> Result<Pages<'_>, PagesError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.area.len => {
                Pages::of_this_process(self.address() + offset as u64, len as u64)
            }
            _ => Err(PagesError { start: offset as u64, bytes: len as u64 }),
        }
    }

    /// All its pages.
    pub fn all_pages(&self) -> Result<Pages<'_>, PagesError> {
        self.pages(0, self.area.len)
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// When the range does not lie within the mapping.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        let mut at = self.checked(offset, out.len());
        let mut left = out;
        while !left.is_empty() {
            let within = at % WORD_BYTES;
            let (part, rest) = left.split_at_mut(left.len().min(WORD_BYTES - within));
            let word = self.word(at - within).load(Ordering::Relaxed).to_ne_bytes();
            part.copy_from_slice(&word[within..within + part.len()]);
            at += part.len();
            left = rest;
        }
    }

    /// Copies bytes in. Neighbouring bytes are left alone, even while others write them.
    ///
    /// # Panics
    /// When the range does not lie within the mapping, or the mapping is for reading.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert_eq!(self.access, Access::ReadWrite, "the mapping is for reading");
        let mut at = self.checked(offset, bytes.len());
        let mut left = bytes;
        while !left.is_empty() {
            let within = at % WORD_BYTES;
            let (part, rest) = left.split_at(left.len().min(WORD_BYTES - within));
            let word = self.word(at - within);
            match <[u8; WORD_BYTES]>::try_from(part) {
                Ok(whole) => word.store(u64::from_ne_bytes(whole), Ordering::Relaxed),
                // A part of a word: the rest of it is written back as it is at that very moment.
                Err(_) => {
                    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
                        let mut new = old.to_ne_bytes();
                        new[within..within + part.len()].copy_from_slice(part);
                        Some(u64::from_ne_bytes(new))
                    });
                }
            }
            at += part.len();
            left = rest;
        }
    }

    /// Reads a number of 64 bits; what its writer stored before it is seen afterwards.
    ///
    /// # Panics
    /// When `offset` is no multiple of 8 within the mapping.
    pub fn load_u64(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(WORD_BYTES), "a word's offset");
        // Relaxed loads work on memory that may only be read; the fence orders what follows.
        let value = self.word(self.checked(offset, WORD_BYTES)).load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        value
    }

    /// Writes a number of 64 bits, behind all that was written before.
    ///
    /// # Panics
    /// When `offset` is no multiple of 8 within the mapping, or the mapping is for reading.
    pub fn store_u64(&self, offset: usize, value: u64) {
        assert_eq!(self.access, Access::ReadWrite, "the mapping is for reading");
        assert!(offset.is_multiple_of(WORD_BYTES), "a word's offset");
        self.word(self.checked(offset, WORD_BYTES)).store(value, Ordering::Release);
    }

    /// Drops pages from this mapping: anonymous ones read as zero afterwards (or are asked for again, where a `userfaultfd` is
    /// registered), those of a file as the file has them. Where that `userfaultfd` reports it, this waits until the message has
    /// been read.
    ///
    /// # Errors
    /// The kernel's error, for instance for locked pages (`EINVAL`).
    ///
    /// # Panics
    /// When the pages are not whole pages of this mapping.
    pub fn discard(&self, offset: usize, len: usize) -> std::io::Result<()> {
        self.checked(offset, len);
        assert!(offset.is_multiple_of(PAGE_BYTES as usize), "whole pages");
        // SAFETY: the range lies within our own mapping; its bytes may change at any moment, so no code relies on them.
        Ok(unsafe { madvise(self.area.start.as_ptr().add(offset).cast(), len, Advice::LinuxDontNeed) }?)
    }

    /// Returns the offset. Panics unless `len` bytes from there lie within the mapping.
    fn checked(&self, offset: usize, len: usize) -> usize {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.area.len), "a range of the mapping");
        offset
    }

    /// The word at a multiple of 8 below the length.
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(WORD_BYTES) && offset + WORD_BYTES <= self.area.len);
        // SAFETY: the word lies within the area, which is mapped as long as `self` is and starts at a page; all accesses of this
        // process to it are atomic ones of this size.
        unsafe { AtomicU64::from_ptr(self.area.start.as_ptr().add(offset).cast()) }
    }
}

/// The next multiple of a page, at least one.
fn whole_pages(len: usize) -> Result<usize, MapError> {
    len.max(1)
        .checked_next_multiple_of(PAGE_BYTES as usize)
        .ok_or(MapError { bytes: len, source: Errno::NOMEM })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{HugePages, memory_file};
    use proptest::prelude::*;
    use std::os::unix::fs::FileExt;

    proptest! {
        #[test]
        fn bytes_are_copied_as_a_vector_has_them(
            steps in prop::collection::vec((0..8192_usize, prop::collection::vec(any::<u8>(), 0..40)), 1..60),
        ) {
            let mapping = SharedMapping::anonymous(8192).unwrap();
            let mut twin = vec![0; 8192];
            for (at, bytes) in steps {
                let at = at.min(8192 - bytes.len());
                mapping.write(at, &bytes);
                twin[at..at + bytes.len()].copy_from_slice(&bytes);
                let mut read = vec![0; bytes.len() + at.min(5)];
                mapping.read(at - at.min(5), &mut read);
                prop_assert_eq!(&read[..], &twin[at - at.min(5)..at + bytes.len()]);
            }
            let mut all = vec![0; 8192];
            mapping.read(0, &mut all);
            prop_assert_eq!(all, twin);
        }
    }

    #[test]
    fn two_mappings_of_a_file_see_each_other_and_the_file() {
        let file = memory_file("tiermem-test", 8192, HugePages::No).unwrap();
        let one = SharedMapping::file(&file, 0, 8192, Access::ReadWrite).unwrap();
        let other = SharedMapping::file(&file, 4096, 4096, Access::Read).unwrap();
        one.store_u64(4096 + 16, 7);
        assert_eq!(other.load_u64(16), 7);
        file.write_all_at(&[9; 3], 4096 + 21).unwrap();
        let mut bytes = [0; 8];
        other.read(18, &mut bytes);
        assert_eq!(bytes, [0, 0, 0, 9, 9, 9, 0, 0]);
        assert!(std::panic::catch_unwind(|| other.write(0, &[1])).is_err());
        assert!(std::panic::catch_unwind(|| one.read(8190, &mut [0; 3])).is_err());
        assert!(other.pages(4096, 4096).is_err() && other.pages(0, 100).is_err());
        assert_eq!(other.all_pages().unwrap().bytes(), 4096);
        assert!(SharedMapping::anonymous(usize::MAX).is_err());
    }

    #[test]
    fn writers_of_neighbouring_bytes_do_not_undo_each_other() {
        let mapping = SharedMapping::anonymous(1).unwrap();
        std::thread::scope(|scope| {
            for lane in 0..8 {
                let mapping = &mapping;
                scope.spawn(move || {
                    for round in 0..=255 {
                        mapping.write(lane, &[round]);
                        let mut own = [0];
                        mapping.read(lane, &mut own);
                        assert_eq!(own, [round]);
                    }
                });
            }
        });
        assert_eq!(mapping.load_u64(0), u64::MAX);
        mapping.discard(0, 4096).unwrap();
        assert_eq!(mapping.load_u64(0), 0);
    }
}
