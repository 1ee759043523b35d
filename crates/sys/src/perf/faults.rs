//! Page faults of a program as they happen, with their addresses: of all threads of its processes, and of those to come.
//!
//! The events are the minor and the major faults, which the kernel counts when a fault has been answered, so that the page table
//! holds the new frame when its record is read. (The event `page-faults` is counted before.) Faults of the kernel on behalf of
//! the process, as in `read`, are counted too.
//!
//! An event is of one thread and of what it starts from then on, on one processor. So a watch takes two descriptors for each processor and
//! each thread that lives when it is opened, and none for those to come.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use super::mappings::{DISABLED, ENABLE_ON_EXEC};
use super::moments::{CLOCK_AT, MONOTONIC, Moments, SAMPLE_TIME, USE_CLOCK};
use super::ring::{RECORD_SAMPLE, Record};
use super::rings::{Rings, WATERMARK, threads_of};
use super::{Attributes, online_cpus};

const FAULTS_MINOR: u64 = 5;
pub(super) const FAULTS_MAJOR: u64 = 6;
/// Fields of a record: the process and thread, the time, the address.
pub(super) const SAMPLE_TID: u64 = 1 << 1;
pub(super) const SAMPLE_ADDR: u64 = 1 << 3;
/// One more, by whose presence a major fault is told from a minor one: the ring does not say which event has written a record.
pub(super) const SAMPLE_PERIOD: u64 = 1 << 8;
const MINOR_WORDS: u64 = 3;
/// Descriptors of a thread on a processor.
const EVENTS: u64 = 2;
/// Threads that come while those that live are listed are looked for so often.
const LISTINGS: usize = 16;

/// A page fault that has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub thread: u32,
    /// The address that was touched.
    pub address: u64,
    /// When it had been answered.
    pub at: Instant,
    /// Whether it waited for a disk.
    pub is_major: bool,
}

/// Why faults cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum FaultWatchError {
    /// There are more threads than files may be open.
    #[error(
        "cannot watch the page faults of {threads} threads on {cpus} processors: {wanted} files would be open, and this process may have \
         {limit}; `ulimit -n {wanted}` allows it"
    )]
    OpenFiles {
        /// Threads that live.
        threads: usize,
        /// Processors that are on.
        cpus: usize,
        /// Files that would be open, with those that are.
        wanted: u64,
        /// Files that may be.
        limit: u64,
    },
    /// The system refuses: permission denied without CAP_PERFMON, if `kernel.perf_event_paranoid` is above 1; no such process if all have gone.
    #[error("cannot watch page faults: {0}")]
    Refused(#[from] io::Error),
}

impl From<FaultWatchError> for io::Error {
    fn from(error: FaultWatchError) -> Self {
        match error {
            FaultWatchError::Refused(error) => error,
            FaultWatchError::OpenFiles { .. } => io::Error::other(error),
        }
    }
}

/// The faults of a program.
#[derive(Debug)]
pub struct FaultWatch {
    rings: Rings,
    moments: Moments,
    /// Threads of which events were opened.
    opened: BTreeSet<u32>,
    /// What each ring told last.
    last: Vec<Option<Fault>>,
    /// Records that were read.
    read: u64,
    /// Faults that the rings said were lost.
    told_lost: u64,
    /// Faults that this has said were lost.
    lost: u64,
}

impl FaultWatch {
    /// Watches the programs that this very thread is going to start.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn before_start() -> Result<Self, FaultWatchError> {
        Self::with(Rings::open(&[0], |bytes| attributes(bytes, DISABLED | ENABLE_ON_EXEC))?)
    }

    /// Watches processes from here on: the threads that they have, and those and the processes that they start.
    ///
    /// # Errors
    /// Why not. A process that has gone is passed over where another is left.
    pub fn open(pids: &[u32]) -> Result<Self, FaultWatchError> {
        let threads = living(pids);
        check_open_files(threads.len())?;
        let threads: Vec<u32> = threads.into_iter().collect();
        let mut watch = Self::with(Rings::open(&threads, |bytes| attributes(bytes, 0))?)?;
        watch.opened.extend(threads);
        watch.cover(pids)?;
        Ok(watch)
    }

    fn with(rings: Rings) -> Result<Self, FaultWatchError> {
        let (moments, opened) = (Moments::new(), BTreeSet::new());
        Ok(FaultWatch { rings, moments, opened, last: Vec::new(), read: 0, told_lost: 0, lost: 0 })
    }

    /// Watches more processes, and those threads that others had started before their own events were opened. A thread that is watched
    /// already, as its starter was, is told once all the same (before Linux 6.1: twice).
    ///
    /// # Errors
    /// As [`Self::open`]; what was watched before still is.
    pub fn cover(&mut self, pids: &[u32]) -> Result<(), FaultWatchError> {
        for _ in 0..LISTINGS {
            let new: Vec<u32> = living(pids).difference(&self.opened).copied().collect();
            if new.is_empty() {
                break;
            }
            check_open_files(new.len())?;
            self.rings.add(&new, |bytes| attributes(bytes, 0))?;
            self.opened.extend(new);
        }
        Ok(())
    }

    /// Waits until a part of the room for records is taken, or for this time.
    pub fn wait(&self, at_most: Duration) {
        self.rings.wait(at_most);
    }

    /// Tells each fault since the last call, in the order of time for each processor, and returns how many were lost, as far as it was not
    /// said before. Losses are known when the next fault of that processor is told, or when the ring is found full: nothing remains
    /// unknown of a program that has ended.
    pub fn drain(&mut self, mut each: impl FnMut(Fault)) -> u64 {
        let FaultWatch { rings, moments, last, read, told_lost, lost, .. } = self;
        // Counted before the rings are read: what happens meanwhile may be read already, and must not hide what was lost.
        let counted = if rings.is_one_full() { rings.count() } else { 0 };
        last.resize(rings.len(), None);
        for (ring, last) in rings.iter_mut().zip(last) {
            *told_lost += ring.drain(|record| {
                if record.kind == RECORD_SAMPLE {
                    *read += 1;
                    // Events of one thread that were opened and inherited tell the same fault one after the other.
                    let fault = fault(&record, moments);
                    if *last != Some(fault) {
                        *last = Some(fault);
                        each(fault);
                    }
                }
            });
        }
        let all_lost = (*lost).max(*told_lost).max(counted.saturating_sub(*read));
        all_lost - std::mem::replace(lost, all_lost)
    }
}

fn fault(record: &Record<'_>, moments: &Moments) -> Fault {
    let [task, time_ns, address] = [0, 1, 2].map(|at| record.word(at));
    let (pid, thread) = (task as u32, (task >> 32) as u32);
    let is_major = record.words() > MINOR_WORDS;
    Fault { pid, thread, address, at: moments.at(time_ns), is_major }
}

fn attributes(ring_bytes: usize, flags: u64) -> Vec<Attributes> {
    let event = |(config, fields)| {
        let mut attributes = Attributes {
            config,
            sample_period: 1,
            sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_ADDR | fields,
            flags: flags | USE_CLOCK | WATERMARK,
            wakeup: (ring_bytes / 4) as u32,
            ..Attributes::default()
        };
        attributes.rest[CLOCK_AT] = MONOTONIC;
        attributes
    };
    [(FAULTS_MINOR, 0), (FAULTS_MAJOR, SAMPLE_PERIOD)].map(event).to_vec()
}

/// All threads of these processes.
fn living(pids: &[u32]) -> BTreeSet<u32> {
    pids.iter().filter_map(|pid| threads_of(*pid).ok()).flatten().collect()
}

/// Whether events of so many threads more may be opened.
fn check_open_files(threads: usize) -> Result<(), FaultWatchError> {
    let cpus = online_cpus()?.len();
    let is_open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
    let wanted = is_open + threads as u64 * cpus as u64 * EVENTS;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < wanted => Err(FaultWatchError::OpenFiles { threads, cpus, wanted, limit }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
    use std::ops::Range;
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;

    /// `None` where it is not allowed.
    fn allowed(opened: Result<FaultWatch, FaultWatchError>) -> Option<FaultWatch> {
        match opened {
            Ok(watch) => Some(watch),
            Err(FaultWatchError::Refused(error)) => {
                let forbidden = [io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported];
                assert!(forbidden.contains(&error.kind()), "{error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn own() -> (u32, u32) {
        (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned())
    }

    fn range(mapping: &Mapping) -> Range<u64> {
        let range = mapping.bytes().as_ptr_range();
        range.start.addr() as u64..range.end.addr() as u64
    }

    #[test]
    fn faults_of_every_thread_come_with_their_addresses() {
        let (asked, orders) = mpsc::channel::<()>();
        let (told, answers) = mpsc::channel();
        // A thread that lives already, and starts another one later.
        let other = thread::spawn(move || {
            let mut mapping = Mapping::anonymous(8 << 20).unwrap();
            orders.recv().unwrap();
            mapping.bytes_mut()[100] = 1;
            mapping.bytes_mut()[(8 << 20) - 1] = 1;
            told.send((own().1, range(&mapping))).unwrap();
            orders.recv().unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    mapping.bytes_mut()[4 << 20] = 1;
                    told.send((own().1, range(&mapping))).unwrap();
                });
            });
            mapping
        });
        let Some(mut watch) = allowed(FaultWatch::open(&[std::process::id()])) else { return };
        let begun = Instant::now();
        let mut step = |touches: usize| {
            asked.send(()).unwrap();
            let (thread, range) = answers.recv().unwrap();
            let mut seen = Vec::new();
            assert_eq!(watch.drain(|it| seen.extend(range.contains(&it.address).then_some(it))), 0);
            assert_eq!(seen.len(), touches, "{seen:?}");
            let now = Instant::now();
            let is_right = |it: &Fault| {
                (it.pid, it.thread, it.is_major) == (own().0, thread, false) && begun <= it.at && it.at <= now
            };
            assert!(seen.iter().all(is_right), "{thread}: {seen:?}");
            (seen[0].address, range.start)
        };
        // Where huge pages come unasked, both touches would be one fault.
        let (address, start) = step(2);
        assert_eq!(address & !4095, start);
        step(1);
        other.join().unwrap();
    }

    #[test]
    fn processes_and_their_children_are_watched() {
        let start = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
        let script = "kill -STOP $$; true; (exec true); exit 0";
        let mut children = [start(script), start(script)];
        let pids = [0, 1].map(|at| children[at].id());
        let opened = FaultWatch::open(&pids);
        for child in &mut children {
            // It stops by itself, at a time of its own.
            while !fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap().contains(") T ") {
                thread::yield_now();
            }
            let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
            child.wait().unwrap();
        }
        let Some(mut watch) = allowed(opened) else { return };
        let mut seen = BTreeSet::new();
        watch.drain(|fault| {
            seen.insert(fault.pid);
        });
        // Both, and the child of each, whose number nobody else had.
        assert!(pids.iter().all(|pid| seen.contains(pid)) && seen.len() >= 4, "{pids:?}: {seen:?}");
        let gone = FaultWatch::open(&pids).unwrap_err();
        assert_eq!(io::Error::from(gone).raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn a_thread_that_is_watched_twice_is_told_once() {
        let (pid, thread) = own();
        let Some(mut watch) = allowed(FaultWatch::open(&[pid])) else { return };
        watch.opened.remove(&thread);
        watch.cover(&[pid]).unwrap();
        let mut mapping = Mapping::anonymous(1 << 20).unwrap();
        let range = range(&mapping);
        for _ in 0..100 {
            mapping.bytes_mut()[0] = 1;
            mapping.discard(0, 1 << 20);
        }
        let mut told = 0;
        assert_eq!(watch.drain(|fault| told += usize::from(range.contains(&fault.address))), 0);
        assert_eq!(told, 100);
    }

    #[test]
    fn a_full_ring_says_how_many_were_lost() {
        let thread = own().1;
        let opened = Rings::open(&[thread], |bytes| attributes(bytes, 0));
        let Some(mut watch) = allowed(opened.map_err(Into::into).and_then(FaultWatch::with)) else { return };
        // Each processor has a ring.
        crate::affinity::pin_thread(rustix::thread::sched_getcpu()).unwrap();
        let mut mapping = Mapping::anonymous(1 << 20).unwrap();
        let mut faults = 0_u64;
        let mut touch = |times: u64| {
            // A page that is given back faults again.
            for _ in 0..times {
                mapping.bytes_mut()[0] = 1;
                mapping.discard(0, 1 << 20);
            }
            faults += times;
            faults
        };
        // More than the largest ring has room for, whatever there was before.
        touch(140_000);
        let mut told = 0;
        let lost = watch.drain(|_| told += 1);
        // No more faults have to happen, and what is told and what is lost make all there were: a few are of the test itself.
        let all = told + lost;
        assert!(lost > 0 && told > 0, "{told} and {lost}");
        assert!((140_000..141_000).contains(&all), "{told} and {lost}");
        // What was said once is not said again when the next record says so too.
        let faults = touch(10);
        let again = watch.drain(|_| told += 1);
        assert!(
            again < 1000 && (faults..faults + 2000).contains(&(told + lost + again)),
            "{told}, {lost}, {again}"
        );
    }

    #[test]
    fn too_few_open_files_are_told_with_how_many_it_takes() {
        let error = check_open_files(1 << 40).unwrap_err();
        let FaultWatchError::OpenFiles { wanted, limit, .. } = error else { panic!("{error}") };
        assert!(limit < wanted && error.to_string().contains(&format!("`ulimit -n {wanted}`")), "{error}");
    }
}
