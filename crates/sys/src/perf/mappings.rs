//! New mappings of a process, reported at once: by `mmap`, by `brk`, or within the C library's `malloc`, by programs of
//! every kind. The process is neither stopped nor changed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::ring::Ring;
use super::rings::WATERMARK;
use super::{Attributes, online_cpus, open_software};

/// Bytes of each processor's ring: hundreds of mappings with the names of their files.
const RING_BYTES: usize = 64 << 10;
/// Off, until a process that has inherited the event begins a program.
pub(super) const DISABLED: u64 = 1 << 0;
pub(super) const ENABLE_ON_EXEC: u64 = 1 << 12;
/// Excludes the kernel's events: they take more rights, and mappings are told without them.
pub(super) const EXCLUDE_KERNEL: u64 = 1 << 5;
pub(super) const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// An event that counts nothing and has the records that are asked for.
pub(super) const DUMMY: u64 = 9;
/// Mappings that are executable are told, and the others too.
const MMAP: u64 = 1 << 8;
const MMAP_DATA: u64 = 1 << 17;
/// With what may be done there.
const MMAP2: u64 = 1 << 23;
const RECORD_MMAP2: u32 = 10;
const PROT_WRITE: u64 = 2;

/// A mapping that was made, or whose protection was changed. What the kernel has made one with its neighbours is told as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewMapping {
    /// The thread that did.
    pub thread: u32,
    /// The first address.
    pub address: u64,
    /// Its size; as large as can be if records were lost because there were too many at once.
    pub bytes: u64,
    /// Whether it can be written.
    pub is_writable: bool,
}

/// The mappings that one program makes.
#[derive(Debug)]
pub struct MappingWatch {
    rings: Vec<Ring>,
}

impl MappingWatch {
    /// Watches the programs that this very thread is going to start, from the first of what they map.
    ///
    /// # Errors
    /// Permission denied without CAP_PERFMON if `kernel.perf_event_paranoid` is above 2.
    pub fn before_start() -> io::Result<Self> {
        let attributes = Attributes {
            config: DUMMY,
            flags: DISABLED
                | ENABLE_ON_EXEC
                | EXCLUDE_KERNEL
                | EXCLUDE_HYPERVISOR
                | MMAP
                | MMAP_DATA
                | MMAP2
                | WATERMARK,
            wakeup: 1,
            ..Attributes::default()
        };
        let ring = |cpu| Ring::map(open_software(0, cpu, attributes)?, RING_BYTES);
        Ok(MappingWatch { rings: online_cpus()?.into_iter().map(ring).collect::<io::Result<_>>()? })
    }

    /// Descriptors to wait for: readable, once, when something has been mapped since the last wait.
    pub fn events(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(AsFd::as_fd)
    }

    /// Tells each mapping of a process since the last call, for each processor in the order of time. Records that were lost are told as
    /// one mapping of all addresses.
    pub fn drain(&mut self, pid: u32, mut each: impl FnMut(NewMapping)) {
        for ring in &mut self.rings {
            let lost = ring.drain(|record| {
                // Process and thread, address, length; behind the file's place the protection.
                if record.kind == RECORD_MMAP2 && record.word(0) as u32 == pid {
                    each(NewMapping {
                        thread: (record.word(0) >> 32) as u32,
                        address: record.word(1),
                        bytes: record.word(2),
                        is_writable: record.word(7) & PROT_WRITE != 0,
                    });
                }
            });
            if lost > 0 {
                each(NewMapping { thread: 0, address: 0, bytes: u64::MAX, is_writable: true });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::process::{Command, Stdio};

    fn is_woken(watch: &MappingWatch) -> bool {
        let mut events: Vec<PollFd<'_>> =
            watch.rings.iter().map(|ring| PollFd::new(ring, PollFlags::IN)).collect();
        poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }

    #[test]
    fn what_a_program_maps_is_told_and_wakes_who_waits() {
        let mut watch = match MappingWatch::before_start() {
            Ok(watch) => watch,
            Err(error) => {
                let forbidden = [io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported];
                assert!(forbidden.contains(&error.kind()), "{error}");
                return;
            }
        };
        let _own: Vec<u8> = Vec::with_capacity(64 << 20);
        assert!(!is_woken(&watch));
        // By the C library's malloc, and of libraries.
        let script = "read line; exec dd if=/dev/zero of=/dev/null bs=64M count=1";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(is_woken(&watch) && !is_woken(&watch));
        let mut told = Vec::new();
        let mut writable = 0;
        watch.drain(child.id(), |it| {
            assert_eq!(it.thread, child.id());
            told.push(it.bytes);
            writable += u64::from(it.is_writable);
        });
        assert!(writable > 0 && (writable as usize) < told.len());
        assert!(told.iter().any(|bytes| (64 << 20..65 << 20).contains(bytes)), "{told:?}");
        assert!(told.len() > 3 && !told.contains(&u64::MAX), "{told:?}");
        watch.drain(child.id(), |_| panic!("it was told before"));
    }
}
