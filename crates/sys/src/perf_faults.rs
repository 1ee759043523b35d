//! The page faults of a process as they happen, with their addresses: `perf_event_open` with a ring for each processor.
//!
//! The events are the minor and the major faults, which the kernel counts when a fault has been answered, so that the page
//! table holds the new frame when its record is read. (The event `page-faults` is counted before.) What the kernel touches
//! for the process, as in `read`, is counted too. Watching another process needs CAP_PERFMON or root.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of each processor's ring: 16,384 faults.
const RING_BYTES: usize = 512 << 10;
const PAGE_BYTES: usize = 4096;
/// Where the kernel keeps the ends of the ring, in the page before it.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;

const TYPE_SOFTWARE: u32 = 1;
const FAULTS_MINOR: u64 = 5;
const FAULTS_MAJOR: u64 = 6;
/// What a record says: the process and thread, then the address.
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_ADDR: u64 = 1 << 3;
/// Threads that the process starts are watched as well.
const INHERIT: u64 = 1 << 1;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const FLAG_FD_CLOEXEC: libc::c_ulong = 8;
/// `_IO('$', 5)`: have the records of this event go into another one's ring.
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;

/// The kernel's `struct perf_event_attr` in its fifth version; what is not named here is 0.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Attributes {
    pub kind: u32,
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub rest: [u64; 8],
}

const _: () = assert!(size_of::<Attributes>() == 112);

/// The faults of one process.
#[derive(Debug)]
pub struct FaultWatch {
    pid: u32,
    rings: Vec<Ring>,
}

impl FaultWatch {
    /// Watches a process of one thread from here on, and the threads that it starts.
    ///
    /// # Errors
    /// Permission denied without CAP_PERFMON (`kernel.perf_event_paranoid`); not found if the process has gone.
    pub fn open(pid: u32) -> io::Result<Self> {
        let mut rings = Vec::new();
        for cpu in online_cpus()? {
            let ring = Ring::map(open_event(pid, cpu, FAULTS_MINOR)?, open_event(pid, cpu, FAULTS_MAJOR)?)?;
            rings.push(ring);
        }
        Ok(FaultWatch { pid, rings })
    }

    /// Tells the address of each fault since the last call, in the order of time for each processor, and returns how many
    /// were lost because the ring was full: the kernel tells that with the next fault on the processor where it was.
    pub fn drain(&mut self, mut each: impl FnMut(u64)) -> u64 {
        let pid = self.pid;
        // Processes that it forks are watched too, but have pages of their own.
        self.rings
            .iter_mut()
            .map(|ring| {
                ring.drain(|of, address| {
                    if of == pid {
                        each(address)
                    }
                })
            })
            .sum()
    }
}

fn open_event(pid: u32, cpu: i32, config: u64) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config,
        sample_period: 1,
        sample_type: SAMPLE_TID | SAMPLE_ADDR,
        flags: INHERIT,
        ..Attributes::default()
    };
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
    open(&attributes, pid, cpu)
}

/// Opens an event of a process (0: this one) on a processor (-1: on any).
pub(crate) fn open(attributes: &Attributes, pid: libc::pid_t, cpu: i32) -> io::Result<OwnedFd> {
    let attributes: *const Attributes = attributes;
    // SAFETY: the attributes are as long as they say and outlive the call, which only reads them. No group: -1.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes, pid, cpu, -1, FLAG_FD_CLOEXEC) };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just returned this descriptor, and nobody else knows of it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Numbers of the processors that are on: `0-3,8`.
fn online_cpus() -> io::Result<Vec<i32>> {
    parse_cpus(&fs::read_to_string("/sys/devices/system/cpu/online")?)
        .ok_or_else(|| io::Error::other("/sys/devices/system/cpu/online is no list of processors"))
}

fn parse_cpus(list: &str) -> Option<Vec<i32>> {
    let mut cpus = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<i32>().ok()?..=last.parse::<i32>().ok()?);
    }
    Some(cpus)
}

/// The ring of one processor: a page of the kernel's, then the records.
#[derive(Debug)]
struct Ring {
    start: NonNull<u8>,
    /// Closed after the mapping has gone.
    events: [OwnedFd; 2],
}

// SAFETY: the mapping belongs to this value, and is reached only through `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring for the records of both events, which are of one processor.
    fn map(event: OwnedFd, other: OwnedFd) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses aliases no memory of this process.
        let start = unsafe {
            mmap(std::ptr::null_mut(), PAGE_BYTES + RING_BYTES, protection, MapFlags::SHARED, &event, 0)
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let ring = Ring { start, events: [event, other] };
        let [event, other] = &ring.events;
        // SAFETY: both are events of this process's, and the first has its ring by now, as the call demands; it changes
        // nothing but where the records of the second go.
        match unsafe { libc::ioctl(other.as_raw_fd(), IOC_SET_OUTPUT, event.as_raw_fd()) } {
            0 => Ok(ring),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A counter of the kernel's in the first page.
    fn end(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as `self` is there; the field is 8 bytes at a multiple of 8 from its start,
        // and the kernel accesses it as one word, as this process does.
        unsafe { AtomicU64::from_ptr(self.start.add(at).cast().as_ptr()) }
    }

    /// The word at this place of the endless sequence of which the ring holds the last part.
    fn word(&self, at: u64) -> u64 {
        let offset = PAGE_BYTES + (at as usize & (RING_BYTES - 1) & !7);
        // SAFETY: the place lies in the mapping at a multiple of 8. The kernel may write to the ring meanwhile, but never
        // between tail and head, where its caller reads; a volatile read takes the bytes as they are.
        unsafe { self.start.add(offset).cast::<u64>().read_volatile() }
    }

    /// Tells process and address of each record up to the head, and gives their room back; returns how many were lost.
    fn drain(&mut self, mut each: impl FnMut(u32, u64)) -> u64 {
        // Acquire: the records were written before the head.
        let head = self.end(HEAD_AT).load(Ordering::Acquire);
        let mut tail = self.end(TAIL_AT).load(Ordering::Relaxed);
        let mut lost = 0;
        while tail < head {
            // The header: type of 32 bits, 16 bits of flags, length of 16 bits.
            let header = self.word(tail);
            let (kind, length) = (header as u32, header >> 48);
            match kind {
                RECORD_SAMPLE => each(self.word(tail + 8) as u32, self.word(tail + 16)),
                // The event's number, then how many.
                RECORD_LOST => lost += self.word(tail + 16),
                _ => {}
            }
            // No record is shorter than its header; one that says so would keep this from ending.
            tail += length.max(8);
        }
        // Release: the records have been read before the kernel may write over them.
        self.end(TAIL_AT).store(head, Ordering::Release);
        lost
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), PAGE_BYTES + RING_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(parse_cpus("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_cpus("0\n"), Some(vec![0]));
        assert_eq!(parse_cpus(""), None);
    }

    /// A watch over the calling thread, which is none of this process's first; `None` where that is not allowed.
    fn watch_self() -> Option<FaultWatch> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        match FaultWatch::open(thread) {
            Ok(watch) => Some(FaultWatch { pid: std::process::id(), ..watch }),
            Err(error) => {
                let forbidden = [io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported];
                assert!(forbidden.contains(&error.kind()), "{error}");
                None
            }
        }
    }

    #[test]
    fn faults_come_with_their_addresses() {
        let Some(mut watch) = watch_self() else { return };
        let mut mapping = Mapping::anonymous(8 << 20).unwrap();
        let range = mapping.bytes().as_ptr_range();
        let range = range.start.addr() as u64..range.end.addr() as u64;
        let mut drain = || {
            let mut seen = Vec::new();
            let lost = watch.drain(|address| seen.extend(range.contains(&address).then_some(address)));
            (seen, lost)
        };
        drain();
        mapping.bytes_mut()[100] = 1;
        mapping.bytes_mut()[(8 << 20) - 1] = 1;
        let (found, lost) = drain();
        assert_eq!((found.len(), lost), (2, 0), "{found:x?}");
        assert_eq!(found[0] & !4095, range.start);
        assert_eq!(drain(), (Vec::new(), 0));
    }

    #[test]
    fn a_full_ring_says_how_many_were_lost() {
        let Some(mut watch) = watch_self() else { return };
        // Each processor has a ring, and tells what it lost with the next fault there.
        crate::affinity::pin_thread(rustix::thread::sched_getcpu()).unwrap();
        let mut mapping = Mapping::anonymous(1 << 20).unwrap();
        let mut faults = 0u64;
        // A page that is given back faults again.
        while faults < 60_000 {
            mapping.bytes_mut()[0] = 1;
            mapping.discard(0, 1 << 20);
            faults += 1;
        }
        let mut told = 0;
        let mut lost = watch.drain(|_| told += 1);
        mapping.bytes_mut()[0] = 1;
        lost += watch.drain(|_| told += 1);
        assert!(lost > 0 && told > 0 && told + lost >= faults, "{told} and {lost} of {faults}");
    }
}
