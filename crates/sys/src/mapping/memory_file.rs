//! Memory files without a name, which processes share by a descriptor.

use std::fs::File;
use std::io;

use rustix::fs::{MemfdFlags, memfd_create};

/// The size of the pages of a memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Of the smallest; the kernel may join them.
    No,
    /// Of 2 MiB each, from the machine's pool (`vm.nr_hugepages`), which must have them when they are touched.
    Of2MiB,
}

/// Makes a memory file of this length, all zero. `name` is what `/proc/PID/maps` shows.
///
/// # Errors
/// The kernel's error: too many files are open, or `EINVAL` for a length that its pages do not divide.
pub fn memory_file(name: &str, len: u64, pages: HugePages) -> io::Result<File> {
    let flags = match pages {
        HugePages::No => MemfdFlags::CLOEXEC,
        HugePages::Of2MiB => MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
    };
    let file = File::from(memfd_create(name, flags)?);
    file.set_len(len)?;
    Ok(file)
}
