//! New mappings of a process, reported at once: by `mmap`, by `brk`, or within the C library's `malloc`, by programs of
//! every kind. The process is neither stopped nor changed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::ring::Ring;
use super::{Attributes, online_cpus, open_software};

/// Bytes of each processor's ring: hundreds of mappings with the names of their files.
const RING_BYTES: usize = 64 << 10;
/// Off, until a process that has inherited the event begins a program.
const DISABLED: u64 = 1 << 0;
const ENABLE_ON_EXEC: u64 = 1 << 12;
/// Excludes the kernel's events: they take more rights, and mappings are told without them.
pub(super) const EXCLUDE_KERNEL: u64 = 1 << 5;
pub(super) const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// An event that counts nothing and has the records that are asked for.
const DUMMY: u64 = 9;
/// Mappings that are executable are told, and the others too.
const MMAP: u64 = 1 << 8;
const MMAP_DATA: u64 = 1 << 17;
/// A waiter is woken by bytes in the ring, and not by samples, of which there are none.
const WATERMARK: u64 = 1 << 14;
const RECORD_MMAP: u32 = 1;

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

    /// Tells address and bytes of each mapping of a process since the last call, for each processor in the order of time. Records
    /// that were lost because there were too many at once are told as one mapping of all addresses.
    pub fn drain(&mut self, pid: u32, mut each: impl FnMut(u64, u64)) {
        for ring in &mut self.rings {
            let lost = ring.drain(|record| {
                // Process and thread, address, length.
                if record.kind == RECORD_MMAP && record.word(0) as u32 == pid {
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
        watch.drain(child.id(), |_, bytes| told.push(bytes));
        assert!(told.iter().any(|bytes| (64 << 20..65 << 20).contains(bytes)), "{told:?}");
        assert!(told.len() > 3 && !told.contains(&u64::MAX), "{told:?}");
        watch.drain(child.id(), |_, _| panic!("it was told before"));
    }
}
