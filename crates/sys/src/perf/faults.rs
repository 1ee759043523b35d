//! Page faults of a process as they happen, with their addresses.
//!
//! The events are the minor and the major faults, which the kernel counts when a fault has been answered, so that the page table
//! holds the new frame when its record is read. (The event `page-faults` is counted before.) Faults of the kernel on behalf of
//! the process, as in `read`, are counted too.

use std::io;

use super::ring::Ring;
use super::{Attributes, online_cpus, open_software};

/// Bytes of each processor's ring: 16,384 faults.
const RING_BYTES: usize = 512 << 10;
const FAULTS_MINOR: u64 = 5;
const FAULTS_MAJOR: u64 = 6;
/// Fields of a record: the process and thread, then the address.
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_ADDR: u64 = 1 << 3;
const RECORD_SAMPLE: u32 = 9;

/// The faults of one process.
#[derive(Debug)]
pub struct FaultWatch {
    pid: u32,
    rings: Vec<Ring>,
    /// Records that were told, of all processes.
    told: u64,
    /// Faults that were said to be lost.
    lost: u64,
}

impl FaultWatch {
    /// Watches a process of one thread from here on, and the threads that it starts.
    ///
    /// # Errors
    /// Permission denied without CAP_PERFMON (`kernel.perf_event_paranoid`); not found if the process has gone.
    pub fn open(pid: u32) -> io::Result<Self> {
        let mut rings = Vec::new();
        for cpu in online_cpus()? {
            let open = |config| {
                let sample_type = SAMPLE_TID | SAMPLE_ADDR;
                open_software(
                    pid,
                    cpu,
                    Attributes { config, sample_period: 1, sample_type, ..Attributes::default() },
                )
            };
            let mut ring = Ring::map(open(FAULTS_MINOR)?, RING_BYTES)?;
            ring.share(open(FAULTS_MAJOR)?)?;
            rings.push(ring);
        }
        Ok(FaultWatch { pid, rings, told: 0, lost: 0 })
    }

    /// Tells the address of each fault since the last call, in the order of time for each processor, and returns how many were lost
    /// since then: what the kernel has counted and not told, as the ring was full or there were too many in a moment.
    pub fn drain(&mut self, mut each: impl FnMut(u64)) -> u64 {
        let FaultWatch { pid, rings, told, lost } = self;
        // Counted first: what happens meanwhile may be told already, and must not seem lost.
        let counted: u64 = rings.iter().map(Ring::count).sum();
        for ring in rings {
            // Processes that it forks are watched too, but have pages of their own.
            ring.drain(|record| {
                *told += u64::from(record.kind == RECORD_SAMPLE);
                if record.kind == RECORD_SAMPLE && record.word(0) as u32 == *pid {
                    each(record.word(1));
                }
            });
        }
        let new = counted.saturating_sub(*told).saturating_sub(*lost);
        *lost += new;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

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
        // Each processor has a ring.
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
        let lost = watch.drain(|_| told += 1);
        // No more faults have to happen, and what is told and what is lost make all there were: a few are of the test itself.
        assert!(lost > 0 && told > 0, "{told} and {lost} of {faults}");
        assert!((faults..faults + 1000).contains(&(told + lost)), "{told} and {lost} of {faults}");
    }
}
