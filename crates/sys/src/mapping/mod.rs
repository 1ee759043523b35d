//! Mapped memory: the bytes of a memory tier, the process's own or those of a file ([`Mapping`]); and memory that others write
//! while this process holds it ([`SharedMapping`]).

pub(crate) mod area;
mod bus_error;
mod changes;
mod lost;
mod memory_file;
pub(crate) mod pages;
mod shared;

use std::fs::File;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mlock, mmap, mmap_anonymous, msync};

use crate::disk;
use crate::populate::Populate;

use area::Area;
pub use area::MapError;
use bus_error::Watch;
use changes::Changes;
pub use memory_file::{HugePages, memory_file};
pub use pages::{Pages, PagesError};
pub use shared::{Access, SharedMapping};

/// A mapping of the process's own memory, zero at first, of which a page takes memory once it is written; or of a file
/// that this process has for itself.
#[derive(Debug)]
pub struct Mapping {
    /// Where the area lies, at hand for reads and writes.
    start: NonNull<u8>,
    len: usize,
    /// A file's: before the area, so that it ends before that is unmapped.
    watch: Option<Watch>,
    /// Bytes from the start that are the file's, as far as is known: what was lost at the end is not until it was put back.
    file_bytes: usize,
    /// Changes of the file that others make.
    changes: Option<Changes>,
    /// Whether the file had all of its space when that was last looked at.
    had_all_space: bool,
    /// The flags with which the file is mapped.
    flags: MapFlags,
    /// Before the file, so that it is unmapped before the file's lock is given up.
    area: Arc<Area>,
    /// The file whose bytes these are. It stays open, and with it the lock on it.
    file: Option<File>,
}

// SAFETY: the mapping belongs to this value (a file's to the holder of its lock), and its bytes are reached only through `&self`
// and `&mut self`.
unsafe impl Send for Mapping {}
// SAFETY: the bytes are reached only through `&self` and `&mut self`, and shared access is read-only.
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
        let start = NonNull::new(start.cast()).ok_or_else(|| error(Errno::NOMEM))?;
        Ok(Mapping::over(Area { start, len }, None))
    }

    /// Maps the first `len` bytes of a file or device, which outlive the process. Where the device offers it (DAX), bytes that
    /// are flushed from the processor's caches are durable without a system call.
    ///
    /// The file is locked for this process (again, if the caller did it), so that no process that respects locks changes it; the
    /// caller has made sure that `len` bytes are there. Where another process shortens the file all the same, or the medium cannot
    /// be read, what is lost reads as zeros: [`Self::has_lost`] says so after the access.
    pub fn file(file: File, len: usize) -> Result<Self, MapError> {
        let error = |source| MapError { bytes: len, source };
        match disk::lock(&file) {
            Ok(true) => {}
            Ok(false) => return Err(error(Errno::WOULDBLOCK)),
            Err(refused) => return Err(error(Errno::from_io_error(&refused).unwrap_or(Errno::IO))),
        }
        let map = |flags| {
            // SAFETY: a new mapping at an address that the kernel chooses aliases no memory of this process; the file's bytes are this
            // process's by its lock.
            unsafe { map_file(None, len, (&file, 0), flags) }.map(|start| (start, flags))
        };
        let mapped = match map(SYNCHRONOUS) {
            Err(Errno::OPNOTSUPP | Errno::INVAL) => map(MapFlags::SHARED),
            other => other,
        };
        let (start, flags) = mapped.map_err(error)?;
        let mut mapping = Mapping::over(Area { start, len }, Some(file));
        mapping.flags = flags;
        Ok(mapping)
    }

    fn over(area: Area, file: Option<File>) -> Self {
        let (start, len) = (area.start, area.len);
        let watch = file.as_ref().map(|file| Watch::over(start.as_ptr(), len, file));
        let file_bytes = if file.is_some() { len } else { 0 };
        let mut mapping = Mapping {
            start,
            len,
            watch,
            file_bytes,
            changes: file.as_ref().and_then(Changes::of),
            had_all_space: false,
            flags: MapFlags::SHARED,
            area: Arc::new(area),
            file,
        };
        mapping.look();
        mapping
    }

    /// The file whose bytes these are.
    pub fn mapped_file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// A way for another thread to have memory taken before it is written. None for a file, whose pages are there, and on
    /// processors without an instruction for it.
    pub fn populate(&self) -> Option<Populate> {
        let is_possible = self.file.is_none() && Populate::is_supported();
        is_possible.then(|| Populate::over(Arc::clone(&self.area)))
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start..start + len` is mapped readable as long as `area` is held, always initialised (zero pages), and only
        // changed through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to write.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// The bytes as numbers of double precision, to write; what is left over at the end is left out.
    pub fn doubles_mut(&mut self) -> &mut [f64] {
        let bytes = self.bytes_mut();
        // SAFETY: every pattern of bits is a number, so that bytes may be looked at as numbers and the other way round; the
        // mapping starts at a page, so that nothing is left out at its start.
        unsafe { bytes.align_to_mut::<f64>() }.1
    }

    /// Has all pages in memory, and keeps them there until the mapping is dropped.
    ///
    /// # Errors
    /// If the limit on locked memory is lower (`ulimit -l`; root has none), or there is not so much memory.
    pub fn lock(&self) -> std::io::Result<()> {
        // SAFETY: the range is our own mapping, whose contents stay what they are.
        Ok(unsafe { mlock(self.start.as_ptr().cast(), self.len) }?)
    }

    /// Writes what was changed in this range back to the file and waits until it is durable.
    ///
    /// # Errors
    /// What the device says; a device that is memory itself has nothing to write back to and refuses.
    ///
    /// # Panics
    /// When the range does not lie within the mapping.
    pub fn sync(&mut self, offset: usize, len: usize) -> std::io::Result<()> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a range of the mapping");
        let first = offset / 4096 * 4096;
        // SAFETY: the range is whole pages of our own mapping, whose contents stay what they are.
        Ok(unsafe { msync(self.start.as_ptr().add(first).cast(), offset + len - first, MsyncFlags::SYNC) }?)
    }

    /// Gives the memory of whole pages in this range back to the system; they read as zero afterwards. A file keeps its
    /// space and its bytes: taken anew it might be found gone, and that would end the process.
    ///
    /// # Panics
    /// When the range does not lie within the mapping.
    pub fn discard(&mut self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a range of the mapping");
        let (first, end) = (offset.next_multiple_of(4096), (offset + len) / 4096 * 4096);
        if first < end && self.file.is_none() {
            // SAFETY: the range is whole pages of our own mapping, and `&mut self` excludes references into it.
            // Failure leaves the bytes as they are, which costs memory and nothing else.
            let _ =
                unsafe { madvise(self.start.as_ptr().add(first).cast(), end - first, Advice::LinuxDontNeed) };
        }
    }
}

/// The flags that a mapping of a file has: with them bytes in the caches of the processor are durable once they are flushed, or not.
const SYNCHRONOUS: MapFlags = MapFlags::SHARED_VALIDATE.union(MapFlags::SYNC);

/// Maps `len` bytes of a file from `offset` on: where the kernel chooses, or over what lies at `at`.
///
/// # Safety
/// The mapping aliases nothing that the caller does not own; what lies at `at` is the caller's own, and nothing refers to it.
unsafe fn map_file(
    at: Option<*mut u8>,
    len: usize,
    (file, offset): (&File, u64),
    flags: MapFlags,
) -> Result<NonNull<u8>, Errno> {
    let fixed = if at.is_some() { MapFlags::FIXED } else { MapFlags::empty() };
    let at = at.unwrap_or(std::ptr::null_mut()).cast();
    // SAFETY: the caller's promise.
    let start = unsafe { mmap(at, len, ProtFlags::READ | ProtFlags::WRITE, flags | fixed, file, offset) }?;
    let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::NOMEM)?;
    // SAFETY: the range was just mapped; the advice changes no contents, and may be refused.
    let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) };
    Ok(start)
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
        assert_eq!(mapping.doubles_mut().len(), 3 * 512);
        mapping.doubles_mut()[1535] = 1.0;
        assert_eq!(mapping.bytes()[3 * 4096 - 8..], 1f64.to_ne_bytes());
        mapping.discard(1, 4094);
        assert_eq!(mapping.bytes()[4095], 7);
    }

    #[test]
    fn what_is_locked_is_in_memory() {
        let mapping = Mapping::anonymous(16 * 4096).unwrap();
        mapping.lock().unwrap();
        assert_eq!(crate::memory::resident_bytes_of(mapping.bytes()), Some(16 * 4096));
    }

    #[test]
    fn a_files_bytes_outlive_the_mapping() {
        let path = std::env::temp_dir().join(format!("tiermem-mapping-{}", std::process::id()));
        let open = || {
            let file =
                File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
            file.set_len(2 * 4096).unwrap();
            Mapping::file(file, 2 * 4096).unwrap()
        };
        let mut mapping = open();
        mapping.bytes_mut()[4090..4100].fill(7);
        mapping.discard(0, 8192);
        assert_eq!(mapping.bytes()[4099], 7, "what is discarded keeps its place");
        mapping.sync(4095, 2).unwrap();
        mapping.sync(0, 8192).unwrap();
        drop(mapping);
        assert_eq!(open().bytes()[4088..4102], [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
        std::fs::remove_file(path).unwrap();
    }
}
