//! Events of a process from the kernel, by `perf_event_open` with a ring for each processor: page faults, new mappings, and
//! births of processes, none of which needs hardware counters. Watching another process needs CAP_PERFMON or root.

mod fault_times;
mod faults;
mod first_touches;
mod mappings;
mod moments;
mod ring;
mod rings;
mod run_clock;
mod tasks;

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

pub use fault_times::{FaultTimes, NotMeasured, TimedFault};
pub use faults::{Fault, FaultWatch, FaultWatchError};
pub use first_touches::{FirstTouchWatch, StackCopy, TouchChange, TouchEvent};
pub use mappings::{MappingWatch, NewMapping};
pub use run_clock::RunClock;
pub use tasks::{TaskChange, TaskEvent, TaskWatch};

const TYPE_SOFTWARE: u32 = 1;
/// Flag: threads and processes that the process starts are watched as well.
const INHERIT: u64 = 1 << 1;
const FLAG_FD_CLOEXEC: libc::c_ulong = 8;

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
    /// Bytes in the ring after which a waiter is woken, if the flags say bytes.
    pub wakeup: u32,
    pub breakpoint_type: u32,
    pub rest: [u64; 7],
}

const _: () = assert!(size_of::<Attributes>() == 112);

/// Opens an event of a process (0: this one) on a processor (-1: on any).
pub(crate) fn open(attributes: &Attributes, pid: libc::pid_t, cpu: i32) -> io::Result<OwnedFd> {
    let attributes: *const Attributes = attributes;
    // SAFETY: the attributes are as long as they say and outlive the call, which only reads them. No group: -1.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes, pid, cpu, -1, FLAG_FD_CLOEXEC) };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just returned this descriptor, and no other code knows of it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens an event of software on a processor, of a process of one thread (0: of this thread) and of all that it starts.
fn open_software(pid: u32, cpu: i32, attributes: Attributes) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        size: size_of::<Attributes>() as u32,
        flags: attributes.flags | INHERIT,
        ..attributes
    };
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
    open(&attributes, pid, cpu)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(parse_cpus("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_cpus("0\n"), Some(vec![0]));
        assert_eq!(parse_cpus(""), None);
    }
}
