//! What a process maps, told as soon as it has: by `mmap`, by `brk`, or within the C library's `malloc`, by programs of every
//! kind. The process is neither stopped nor changed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::ring::Ring;
use super::{Attributes, online_cpus, open_software};

/// Bytes of each processor's ring: hundreds of mappings with the names of their files.
const RING_BYTES: usize = 64 << 10;
/// An event that counts nothing and has the records that are asked for.
const DUMMY: u64 = 9;
/// Mappings that are executable are told, and the others too.
const MMAP: u64 = 1 << 8;
const MMAP_DATA: u64 = 1 << 17;
/// Whoever waits is woken by bytes in the ring, and not by samples, of which there are none.
const WATERMARK: u64 = 1 << 14;
const RECORD_MMAP: u32 = 1;

/// The mappings that one process makes.
#[derive(Debug)]
pub struct MappingWatch {
    pid: u32,
    rings: Vec<Ring>,
}

impl MappingWatch {
    /// Watches a process of one thread from here on, and the threads that it starts.
    ///
    /// # Errors
    /// Permission denied without CAP_PERFMON (`kernel.perf_event_paranoid`); not found if the process has gone.
    pub fn open(pid: u32) -> io::Result<Self> {
        let attributes = Attributes {
            config: DUMMY,
            flags: MMAP | MMAP_DATA | WATERMARK,
            wakeup: 1,
            ..Attributes::default()
        };
        let ring = |cpu| Ring::map(open_software(pid, cpu, attributes)?, RING_BYTES);
        Ok(MappingWatch { pid, rings: online_cpus()?.into_iter().map(ring).collect::<io::Result<_>>()? })
    }

    /// What can be waited for: readable, once, when something has been mapped since it was last waited for.
    pub fn events(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(AsFd::as_fd)
    }

    /// Tells address and bytes of each mapping since the last call, for each processor in the order of time. Those that were
    /// lost because there were too many at once are told as one of all addresses.
    pub fn drain(&mut self, mut each: impl FnMut(u64, u64)) {
        let MappingWatch { pid, rings } = self;
        for ring in rings {
            let lost = ring.drain(|record| {
                // Process and thread, address, length.
                if record.kind == RECORD_MMAP && record.word(0) as u32 == *pid {
                    each(record.word(1), record.word(2));
                }
            });
            if lost > 0 {
                each(0, u64::MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    /// Of the calling thread, which is none of this process's first.
    fn watch_self() -> Option<MappingWatch> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        match MappingWatch::open(thread) {
            Ok(watch) => Some(MappingWatch { pid: std::process::id(), ..watch }),
            Err(error) => {
                let forbidden = [io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported];
                assert!(forbidden.contains(&error.kind()), "{error}");
                None
            }
        }
    }

    fn is_woken(watch: &MappingWatch) -> bool {
        let mut events: Vec<PollFd<'_>> =
            watch.rings.iter().map(|ring| PollFd::new(ring, PollFlags::IN)).collect();
        poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }

    #[test]
    fn mappings_of_every_kind_are_told_and_wake_who_waits() {
        let Some(mut watch) = watch_self() else { return };
        // Of the rings themselves.
        watch.drain(|_, _| {});
        is_woken(&watch);
        assert!(!is_woken(&watch));
        let is_told = |watch: &mut MappingWatch, at: u64| {
            let mut is_told = false;
            watch.drain(|address, bytes| is_told |= address <= at && at - address < bytes);
            is_told
        };
        let mapping = Mapping::anonymous(32 << 20).unwrap();
        assert!(is_woken(&watch));
        assert!(is_told(&mut watch, mapping.bytes().as_ptr().addr() as u64));
        // What the C library maps for itself.
        let buffer: Vec<u8> = Vec::with_capacity(64 << 20);
        assert!(is_told(&mut watch, buffer.as_ptr().addr() as u64));
        assert!(is_woken(&watch) && !is_woken(&watch));
    }
}
