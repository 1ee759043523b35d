//! Rings of the events of many threads: one for each processor, which all of them share.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::ring::Ring;
use super::{Attributes, online_cpus, open_software};

/// Flag: a waiter is woken by bytes in the ring, and not by samples.
pub(super) const WATERMARK: u64 = 1 << 14;
/// Rings are as large as the system lets them be. An ordinary user has about half a MiB for each processor in all
/// (`kernel.perf_event_mlock_kb`), and other watches have rings too.
const RING_BYTES: [usize; 6] = [4 << 20, 2 << 20, 1 << 20, 512 << 10, 256 << 10, 128 << 10];
/// Bytes of all rings together, on a machine of many processors.
const ALL_BYTES_MAX: usize = 64 << 20;

/// A ring for each processor that is on.
#[derive(Debug)]
pub(super) struct Rings {
    rings: Vec<Ring>,
    /// The processor of each ring.
    cpus: Vec<i32>,
    bytes: usize,
}

impl Rings {
    /// Opens the same events of each of the threads (0: this very one), on each processor. The events may depend on how large the rings are.
    ///
    /// # Errors
    /// Permission denied, also if no ring is small enough for this user; no such process if all threads have ended. Those that have ended
    /// are passed over where others are left.
    pub fn open(threads: &[u32], events: impl Fn(usize) -> Vec<Attributes>) -> io::Result<Self> {
        let mut refused = io::Error::from(io::ErrorKind::OutOfMemory);
        let cpus = online_cpus()?.len();
        let least = RING_BYTES[RING_BYTES.len() - 1];
        for bytes in RING_BYTES.into_iter().filter(|it| *it == least || it * cpus <= ALL_BYTES_MAX) {
            let mut rings = Rings { rings: Vec::new(), cpus: Vec::new(), bytes };
            match rings.add(threads, &events) {
                // So the kernel says that rings are too large for this user, as it does where watching is forbidden at all.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused = error,
                Ok(()) if rings.rings.is_empty() => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                added => return added.map(|()| rings),
            }
        }
        Err(refused)
    }

    /// Opens them of more threads. Those that have ended are passed over.
    ///
    /// # Errors
    /// As [`Self::open`]; the threads before that one are added.
    pub fn add(&mut self, threads: &[u32], events: impl Fn(usize) -> Vec<Attributes>) -> io::Result<()> {
        let events = events(self.bytes);
        let cpus = online_cpus()?;
        for thread in threads {
            for (cpu, attributes) in cpus.iter().flat_map(|cpu| events.iter().map(move |it| (*cpu, it))) {
                let event = match open_software(*thread, cpu, *attributes) {
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                    opened => opened?,
                };
                match self.cpus.iter().position(|it| *it == cpu) {
                    Some(at) => self.rings[at].share(event)?,
                    None => {
                        self.rings.push(Ring::map(event, self.bytes)?);
                        self.cpus.push(cpu);
                    }
                }
            }
        }
        Ok(())
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.rings.len()
    }

    /// Each ring.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Ring> {
        self.rings.iter_mut()
    }

    /// Whether a small record may have been lost in one of them since the last drain.
    pub fn is_one_full(&self) -> bool {
        self.rings.iter().any(Ring::is_full)
    }

    /// How often the events have happened. It asks each of them, which takes time.
    pub fn count(&self) -> u64 {
        self.rings.iter().map(Ring::count).sum()
    }

    /// Waits until records have come for which the events were told to wake their waiter, or for this time.
    pub fn wait(&self, at_most: Duration) {
        let mut rings: Vec<PollFd<'_>> =
            self.rings.iter().map(|ring| PollFd::new(ring, PollFlags::IN)).collect();
        let at_most =
            Timespec { tv_sec: at_most.as_secs().cast_signed(), tv_nsec: at_most.subsec_nanos().into() };
        // Interrupted, it has waited long enough.
        let _ = poll(&mut rings, Some(&at_most));
    }
}

/// The threads of a process.
///
/// # Errors
/// If it has gone.
pub(super) fn threads_of(pid: u32) -> io::Result<Vec<u32>> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
    Ok(tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect())
}
