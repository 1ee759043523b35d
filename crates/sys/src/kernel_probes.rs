//! Probes of kernel features that this process can use. Each is tried and given back at once: only this process itself is
//! changed.

use std::io;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::agent::{self, NoAgent, Started};
use crate::mapping::{MapError, Mapping};
use crate::numa;
use crate::page_scan::PageScan;
use crate::perf::{self, Attributes, FaultTimes, NotMeasured};
use crate::smaps::{Clear, Smaps};
use crate::userfaultfd::{Features, Modes, OpenError, Options, Userfault};

const PAGE_BYTES: u64 = 4096;
const TYPE_HARDWARE: u32 = 0;
const CYCLES: u64 = 0;
/// Made but not counting; of the program, neither of the kernel nor of what is below it.
const DISABLED: u64 = 1 << 0;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;

/// Opens a counter of this process's cycles.
///
/// # Errors
/// Not found or not supported where there are no counters, as in most virtual machines; permission denied where
/// `kernel.perf_event_paranoid` forbids them.
pub fn hardware_counter() -> io::Result<()> {
    let attributes = Attributes {
        kind: TYPE_HARDWARE,
        size: size_of::<Attributes>() as u32,
        config: CYCLES,
        flags: DISABLED | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
        ..Attributes::default()
    };
    perf::open(&attributes, 0, -1).map(drop)
}

/// Whether the times of page faults within system calls are left out: opens a window of measurements of this process.
///
/// # Errors
/// The reason why no times can be measured.
pub fn fault_times() -> Result<bool, NotMeasured> {
    let mut times = FaultTimes::new();
    times.step(Instant::now(), || vec![std::process::id()], |_| {});
    let is_user_only = times.is_user_only();
    times.into_refusal().map_or(Ok(is_user_only), Err)
}

/// Whether `PAGEMAP_SCAN` of an own mapping is known: it is refused for memory that is not watched, which says so.
///
/// # Errors
/// `ENOTTY` before kernel 6.7.
pub fn pagemap_scan() -> io::Result<()> {
    let mapping = touched()?;
    let start = address(&mapping);
    match PageScan::open(std::process::id())?.written(start, start + PAGE_BYTES, |_| {}) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        result => result,
    }
}

/// Whether a page that is written is told and one that is not is not: watches an own mapping and writes to it.
///
/// # Errors
/// What the kernel refuses.
pub fn written_pages() -> io::Result<bool> {
    let mut mapping = touched()?;
    let (start, bytes) = (address(&mapping), mapping.bytes().len() as u64);
    let options = Options { features: Features::WATCH_WRITES, user_mode_is_enough: true };
    let watch = Userfault::open(options).map_err(OpenError::into_io)?;
    watch.register_range(start, bytes, Modes::WRITE_PROTECT)?;
    let mut scan = PageScan::open(std::process::id())?;
    scan.written(start, start + bytes, |_| {})?;
    mapping.bytes_mut()[0] = 2;
    let mut told = Vec::new();
    scan.written(start, start + bytes, |written| told.push(written.start))?;
    Ok(told == [start])
}

/// Whether a program that this process starts can have an agent.
///
/// # Errors
/// The reason why not.
pub fn agent() -> Result<(), NoAgent> {
    // Any program will do, and this one's file is there.
    let mut own = Command::new("/proc/self/exe");
    own.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Started { mut child, agent } = agent::start(own, true)?;
    let agent = agent.map(|agent| agent.map(drop));
    child.wait()?;
    agent.unwrap_or(Ok(()))
}

/// Whether pages of this process that are first touched after [`Smaps::clear`] are told as referenced. (Of a page that was
/// touched before, the processor may still have its translation, and then it sets no bit.)
///
/// # Errors
/// If `clear_refs` or `smaps` is missing or may not be used.
pub fn referenced_pages() -> io::Result<bool> {
    let mut mapping = untouched()?;
    let start = address(&mapping);
    let mut smaps = Smaps::open(std::process::id())?;
    smaps.clear(Clear::All)?;
    mapping.bytes_mut().fill(1);
    let mut is_told = false;
    smaps.read(|usage| {
        is_told |= usage.start <= start && start < usage.end && usage.referenced_bytes >= PAGE_BYTES;
    })?;
    Ok(is_told)
}

/// Asks on which node a page of this process lies, and moves it to where it is. The node.
///
/// # Errors
/// `ENOSYS` where the kernel knows no nodes; what is told of the page.
pub fn move_pages() -> io::Result<u32> {
    let mapping = touched()?;
    let (pid, pages) = (std::process::id(), [address(&mapping)]);
    let mut said = [0];
    numa::nodes_of(pid, &pages, &mut said)?;
    let node = u32::try_from(said[0]).map_err(|_| io::Error::from_raw_os_error(-said[0]))?;
    numa::move_to(pid, &pages, node, &mut said)?;
    Ok(node)
}

/// Binds an own mapping to a node.
///
/// # Errors
/// If the kernel knows no policies of memory, or something forbids them.
pub fn bind(node: u32) -> Result<(), MapError> {
    numa::bind(&mut Mapping::anonymous(PAGE_BYTES as usize)?, node)
}

/// A few pages of this process's own.
fn untouched() -> io::Result<Mapping> {
    Mapping::anonymous(4 * PAGE_BYTES as usize).map_err(io::Error::other)
}

/// A few pages of this process's own, in memory.
fn touched() -> io::Result<Mapping> {
    let mut mapping = untouched()?;
    mapping.bytes_mut().fill(1);
    Ok(mapping)
}

fn address(mapping: &Mapping) -> u64 {
    mapping.bytes().as_ptr().addr() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::userfaultfd::{self, Features};

    #[test]
    fn what_is_refused_has_an_error_of_the_system() {
        // What is offered differs from machine to machine; a reason that makes no sense is a mistake here.
        let known = [
            libc::ENOSYS,
            libc::ENOENT,
            libc::EPERM,
            libc::EACCES,
            libc::EOPNOTSUPP,
            libc::ENODEV,
            libc::ENOTTY,
            libc::EINVAL,
        ];
        for (what, error) in [
            ("hardware_counter", hardware_counter().err()),
            ("written_pages", written_pages().err()),
            ("pagemap_scan", pagemap_scan().err()),
            ("move_pages", move_pages().err()),
        ] {
            let Some(error) = error else { continue };
            assert!(error.raw_os_error().is_some_and(|number| known.contains(&number)), "{what}: {error}");
        }
    }

    #[test]
    fn offers_agree_with_each_other() {
        assert!(referenced_pages().unwrap());
        if let Ok(is_told) = written_pages() {
            assert!(is_told && userfaultfd::offered().unwrap().0.contains(Features::WATCH_WRITES));
            pagemap_scan().unwrap();
        }
        if let Ok(node) = move_pages() {
            bind(node).unwrap();
        }
    }
}
