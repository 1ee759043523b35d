//! NUMA nodes of a file's pages that are in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::nodes_of;

const PAGE_BYTES: usize = 4096;

/// A part of a file that is mapped to be looked at.
struct Look {
    start: *mut core::ffi::c_void,
    len: usize,
}

impl Drop for Look {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `cached_bytes`, and no reference into it exists: its bytes are never read.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}

/// How many of `len` bytes from `offset` of a file are in the page cache, by node. Pages that are not in memory stay out of it.
///
/// # Errors
/// If the file cannot be mapped, or the kernel does not tell.
pub fn cached_bytes(file: &File, offset: u64, len: u64) -> io::Result<BTreeMap<u32, u64>> {
    let first = offset / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    let end = offset.saturating_add(len).min(file.metadata()?.len());
    if end <= first {
        return Ok(BTreeMap::new());
    }
    let len = (end - first) as usize;
    // SAFETY: a new mapping at an address that the kernel chooses aliases nothing; its bytes are not looked at.
    let start = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE, file, first) }?;
    let look = Look { start, len };
    let mut is_there = vec![0_u8; len.div_ceil(PAGE_BYTES)];
    // SAFETY: the range is the mapping, and the vector has a byte for each of its pages.
    if unsafe { libc::mincore(look.start, look.len, is_there.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut bytes = BTreeMap::new();
    for page in (0..is_there.len()).filter(|page| is_there[*page] & 1 == 1) {
        // SAFETY: the page is the mapping's. It is taken into the page table, or the call fails where the file has become
        // shorter, and nothing is read.
        let address = unsafe { look.start.add(page * PAGE_BYTES) };
        // SAFETY: the call changes no contents: it takes the mapping's own page into the page table, or fails.
        let is_mapped = unsafe { madvise(address, PAGE_BYTES, Advice::LinuxPopulateRead) }.is_ok();
        let mut node = [-1];
        if is_mapped {
            nodes_of(std::process::id(), &[address.addr() as u64], &mut node)?;
        }
        if let Ok(node) = u32::try_from(node[0]) {
            *bytes.entry(node).or_default() += PAGE_BYTES as u64;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_written_lies_somewhere() {
        let path = std::env::temp_dir().join(format!("tiermem-cached-{}", std::process::id()));
        std::fs::write(&path, vec![7; 10 * PAGE_BYTES + 1]).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        // A kernel without nodes tells none.
        let Ok(all) = cached_bytes(&file, 0, u64::MAX) else { return };
        assert_eq!(all.values().sum::<u64>(), 11 * PAGE_BYTES as u64);
        let part = cached_bytes(&file, PAGE_BYTES as u64 + 5, 2 * PAGE_BYTES as u64).unwrap();
        assert_eq!(part.values().sum::<u64>(), 3 * PAGE_BYTES as u64);
        assert!(cached_bytes(&file, 1 << 40, 7).unwrap().is_empty());
    }
}
