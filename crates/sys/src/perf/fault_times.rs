//! How long major page faults take, measured on a sample.
//!
//! The kernel counts the event `page-faults` as a fault begins and `major-faults` when it has been answered; between both records of one
//! thread lies the time for which it waited. Software events tell that on every kernel, to whoever may watch the program at all. Other ways
//! were looked at: the tracepoint `exceptions:page_fault_user` tells the beginning alone and takes root, probes of `handle_mm_fault` take a
//! kernel that has them (`CONFIG_KPROBES`) and root, and the delays of `taskstats` are sums that have to be switched on for the whole
//! machine (`kernel.task_delayacct`).
//!
//! Two records of every fault would slow a program that faults often. So a few threads are watched for a short window, in turn, followed by
//! a rest that is many times as long. Every fault that begins within a window is followed to its end, so that long faults count as often as
//! short ones. Events are opened for a window and closed after it: between windows the program pays nothing.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use super::faults::{FAULTS_MAJOR, SAMPLE_ADDR, SAMPLE_PERIOD, SAMPLE_TID};
use super::mappings::EXCLUDE_KERNEL;
use super::moments::{CLOCK_AT, MONOTONIC, Moments, SAMPLE_TIME, USE_CLOCK};
use super::ring::{RECORD_LOST, RECORD_SAMPLE, Ring};
use super::rings::threads_of;
use super::{Attributes, TYPE_SOFTWARE, open};

const PAGE_FAULTS: u64 = 2;
/// Words of the record of a beginning: process and thread, time, address. A major fault has one more.
const BEGINNING_WORDS: u64 = 3;
const ANY_CPU: i32 = -1;
/// Threads that are watched at once: two descriptors each.
const THREADS_MAX: usize = 8;
/// Rings as large as the system lets this user have them; the largest holds some 2,000 records.
const RING_BYTES: [usize; 3] = [64 << 10, 16 << 10, 4 << 10];
const WINDOW: Duration = Duration::from_millis(10);
/// A rest is so many times as long as the window before it: while it is open, two records of some 0.3 us are written for each fault.
const REST: u32 = 19;
/// And so many times as long as it took to list the threads of the program.
const LISTING_REST: u32 = 50;
const REST_MIN: Duration = Duration::from_millis(190);
/// A fault that has not ended by then is told as it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// A major fault whose time was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedFault {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub thread: u32,
    /// The address that was touched.
    pub address: u64,
    /// When the kernel began with it: the way from the processor to there, a part of a microsecond, is not in its time.
    pub begun: Instant,
    /// How long the kernel took.
    pub took: Duration,
    /// Whether it had ended. If not, it took at least this time.
    pub has_ended: bool,
}

/// Why nothing is measured, and what would help.
#[derive(Debug, thiserror::Error)]
#[error("{source}; {advice}")]
pub struct NotMeasured {
    /// The system's error.
    pub source: io::Error,
    /// The advice.
    pub advice: &'static str,
}

/// Times of a program's major faults.
#[derive(Debug)]
pub struct FaultTimes {
    moments: Moments,
    phase: Phase,
    /// The process and thread that was watched last.
    turn: (u32, u32),
    is_user_only: bool,
    refused: Option<NotMeasured>,
}

#[derive(Debug)]
enum Phase {
    /// Nothing is watched.
    Resting { until: Instant },
    /// Faults that begin are watched.
    Open { since: Instant, rest: Duration, watched: Vec<Watched> },
    /// Those that began before are followed to their end.
    Closing { since: Instant, rest: Duration, end: Instant, watched: Vec<Watched> },
}

/// A thread and its ring.
#[derive(Debug)]
struct Watched {
    pid: u32,
    thread: u32,
    since: Instant,
    ring: Ring,
    pairs: Pairs,
}

/// Beginnings and ends of one thread, which follow one another in the order of time.
#[derive(Clone, Copy, Debug, Default)]
struct Pairs {
    /// The fault that began last, minor or major.
    begun: Option<(Instant, u64)>,
    /// No fault that begins later counts.
    until: Option<Instant>,
    /// None counts any more.
    is_settled: bool,
}

impl Pairs {
    fn begins(&mut self, at: Instant, address: u64) {
        // The one before has ended: it was a minor fault.
        self.begun = None;
        if self.until.is_some_and(|until| until < at) {
            self.is_settled = true;
        }
        if !self.is_settled {
            self.begun = Some((at, address));
        }
    }

    /// When the major fault that ends had begun.
    fn ends(&mut self, address: u64) -> Option<Instant> {
        self.is_settled |= self.until.is_some();
        self.begun.take().filter(|begun| begun.1 == address).map(|begun| begun.0)
    }

    /// Records are missing: what began before may have ended.
    fn loses(&mut self) {
        self.begun = None;
        self.is_settled |= self.until.is_some();
    }

    fn close(&mut self, at: Instant) {
        self.until = Some(at);
        self.is_settled |= self.begun.is_none();
    }
}

impl Default for FaultTimes {
    fn default() -> Self {
        Self::new()
    }
}

impl FaultTimes {
    /// Nothing is measured before the first step.
    pub fn new() -> Self {
        let phase = Phase::Resting { until: Instant::now() };
        FaultTimes { moments: Moments::new(), phase, turn: (0, 0), is_user_only: false, refused: None }
    }

    /// Why nothing is measured, if so.
    pub fn why_not(&self) -> Option<&NotMeasured> {
        self.refused.as_ref()
    }

    /// Why nothing was measured, if so, when it is over.
    pub fn into_refusal(self) -> Option<NotMeasured> {
        self.refused
    }

    /// Whether faults within system calls are left out, as this user may not watch the kernel (`kernel.perf_event_paranoid` above 1).
    pub fn is_user_only(&self) -> bool {
        self.is_user_only
    }

    /// Does what is due: opens a window, closes it, tells what was measured. `processes` are those of the program by now. Returns when to
    /// come again; who comes later prolongs the window and the rest after it. After a refusal nothing is due any more, for a day at a time.
    pub fn step(
        &mut self,
        now: Instant,
        processes: impl FnOnce() -> Vec<u32>,
        mut each: impl FnMut(TimedFault),
    ) -> Instant {
        let resting = Phase::Resting { until: now };
        self.phase = match std::mem::replace(&mut self.phase, resting) {
            Phase::Resting { until } if now < until => Phase::Resting { until },
            Phase::Resting { .. } => match self.open(&processes()) {
                Ok(phase) => phase,
                Err(refused) => {
                    self.refused = Some(refused);
                    Phase::Resting { until: now + Duration::from_secs(86_400) }
                }
            },
            Phase::Open { since, rest, watched } if now < since + WINDOW => {
                Phase::Open { since, rest, watched }
            }
            Phase::Open { since, rest, mut watched } => {
                for it in &mut watched {
                    it.drain(&self.moments, &mut each);
                    it.pairs.close(now);
                }
                followed(since, rest, now, now, watched)
            }
            Phase::Closing { since, rest, end, mut watched } => {
                watched.iter_mut().for_each(|it| it.drain(&self.moments, &mut each));
                if now > end + PATIENCE {
                    watched.iter().filter_map(|it| it.unfinished(now)).for_each(&mut each);
                    watched.clear();
                }
                followed(since, rest, end, now, watched)
            }
        };
        match &self.phase {
            Phase::Resting { until } => *until,
            Phase::Open { since, .. } => *since + WINDOW,
            Phase::Closing { end, .. } => {
                now + (now.saturating_duration_since(*end) / 2).max(Duration::from_millis(1))
            }
        }
    }

    /// Opens a window for the threads whose turn it is.
    fn open(&mut self, pids: &[u32]) -> Result<Phase, NotMeasured> {
        let listing = Instant::now();
        let task = |pid: u32| move |thread| (pid, thread);
        let tasks: BTreeSet<(u32, u32)> = pids
            .iter()
            .flat_map(|pid| threads_of(*pid).unwrap_or_default().into_iter().map(task(*pid)))
            .collect();
        let rest = (listing.elapsed() * LISTING_REST).max(REST_MIN);
        let after: Vec<_> =
            tasks.range((self.turn.0, self.turn.1 + 1)..).chain(tasks.range(..=self.turn)).collect();
        let (mut watched, mut refused) = (Vec::new(), None);
        for (pid, thread) in after.into_iter().take(THREADS_MAX) {
            self.turn = (*pid, *thread);
            // One thread that may not be watched, as a program of another user's, is no reason to give up the others.
            match self.watch(*pid, *thread) {
                Ok(it) => watched.extend(it),
                Err(error) => refused = Some(error),
            }
        }
        let now = Instant::now();
        match (watched.is_empty(), refused) {
            (true, Some(refused)) => Err(refused),
            (true, None) => Ok(Phase::Resting { until: now + rest }),
            (false, _) => Ok(Phase::Open { since: now, rest, watched }),
        }
    }

    /// A thread; `None` if it has ended.
    fn watch(&mut self, pid: u32, thread: u32) -> Result<Option<Watched>, NotMeasured> {
        let mut refused = io::Error::from(io::ErrorKind::Unsupported);
        for is_user_only in [false, true].into_iter().filter(|it| *it >= self.is_user_only) {
            for bytes in RING_BYTES {
                match opened(thread, bytes, is_user_only) {
                    Ok(ring) => {
                        self.is_user_only = is_user_only;
                        return Ok(Some(Watched {
                            pid,
                            thread,
                            since: Instant::now(),
                            ring,
                            pairs: Pairs::default(),
                        }));
                    }
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
                    // So the kernel says that the ring is too large as well.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused = error,
                    Err(error) => return Err(not_measured(error)),
                }
            }
        }
        Err(not_measured(refused))
    }
}

/// The events of a beginning and of a major fault, in one ring.
fn opened(thread: u32, ring_bytes: usize, is_user_only: bool) -> io::Result<Ring> {
    let event = |config, fields| {
        let mut attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config,
            sample_period: 1,
            sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_ADDR | fields,
            flags: USE_CLOCK | if is_user_only { EXCLUDE_KERNEL } else { 0 },
            ..Attributes::default()
        };
        attributes.rest[CLOCK_AT] = MONOTONIC;
        let thread = libc::pid_t::try_from(thread).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        open(&attributes, thread, ANY_CPU)
    };
    let mut ring = Ring::map(event(PAGE_FAULTS, 0)?, ring_bytes)?;
    ring.share(event(FAULTS_MAJOR, SAMPLE_PERIOD)?)?;
    Ok(ring)
}

fn not_measured(source: io::Error) -> NotMeasured {
    let advice = match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "run as root or with CAP_PERFMON, or lower kernel.perf_event_paranoid to 2 for programs of your own"
        }
        Some(libc::EMFILE | libc::ENFILE) => "raise the number of open files (ulimit -n) by 16",
        Some(libc::ENOMEM) => "raise kernel.perf_event_mlock_kb or the limit of locked memory (ulimit -l)",
        _ => "a kernel with perf_event_open is needed; in a container, a profile that allows the call",
    };
    NotMeasured { source, advice }
}

/// What follows when a window has been closed at `end`: more of it while a thread is within a fault, a rest otherwise.
fn followed(since: Instant, rest: Duration, end: Instant, now: Instant, mut watched: Vec<Watched>) -> Phase {
    watched.retain(|it| !it.pairs.is_settled);
    match watched.is_empty() {
        true => Phase::Resting { until: now + rest.max(now.saturating_duration_since(since) * REST) },
        false => Phase::Closing { since, rest, end, watched },
    }
}

impl Watched {
    fn drain(&mut self, moments: &Moments, each: &mut impl FnMut(TimedFault)) {
        let Watched { pid, thread, since, ring, pairs } = self;
        ring.drain(|record| match record.kind {
            RECORD_LOST => pairs.loses(),
            RECORD_SAMPLE => {
                let (at, address) = (moments.at(record.word(1)), record.word(2));
                // Since Linux 6.1 a record may have the time of another observer's event, and that another clock.
                if !(*since..=Instant::now()).contains(&at) {
                    pairs.loses();
                } else if record.words() == BEGINNING_WORDS {
                    pairs.begins(at, address);
                } else if let Some(begun) = pairs.ends(address) {
                    let took = at.saturating_duration_since(begun);
                    each(TimedFault { pid: *pid, thread: *thread, address, begun, took, has_ended: true });
                }
            }
            _ => {}
        });
    }

    /// The fault in which the thread still is. One that has touched nothing since a minor fault does not wait for a disk.
    fn unfinished(&self, now: Instant) -> Option<TimedFault> {
        let Watched { pid, thread, pairs, .. } = *self;
        let (begun, address) = pairs.begun.filter(|_| !pairs.is_settled)?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
        let took = now.saturating_duration_since(begun);
        waits(&stat).then_some(TimedFault { pid, thread, address, begun, took, has_ended: false })
    }
}

/// Whether a thread waits for a disk, from its `stat`: the state stands behind the name, which may hold anything. D is a wait that no signal
/// ends.
fn waits(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with("D "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked::{Signal, end_with_starter, fork_and, status_of};
    use crate::mapping::{Access, HugePages, Pages, SharedMapping, memory_file};
    use crate::pidfd::PidFd;
    use crate::process_advice::ProcessAdvice;
    use crate::swap::{SwapOptions, TestSwap};
    use rustix::time::{ClockId, clock_gettime};
    use std::os::fd::AsFd;
    use std::thread;

    const PAGE: usize = 4096;
    const PAGES: usize = 512;

    #[test]
    fn a_major_fault_is_timed_from_the_last_beginning_of_its_thread() {
        let first = Instant::now();
        let [second, later] = [1, 2].map(|us| first + Duration::from_micros(us));
        let mut pairs = Pairs::default();
        // A window opens within a fault.
        assert_eq!(pairs.ends(0x1000), None);
        pairs.begins(first, 0x1000);
        pairs.begins(second, 0x2000);
        assert_eq!((pairs.ends(0x2000), pairs.ends(0x2000)), (Some(second), None));
        // The first touch was a minor fault; what ends later at the same place had begun later, and that is not known.
        pairs.begins(first, 0x1000);
        pairs.loses();
        assert_eq!(pairs.ends(0x1000), None);
        pairs.begins(first, 0x1000);
        assert_eq!(pairs.ends(0x3000), None);

        // What had begun when the window was closed is followed to its end, and nothing else.
        let closed = |begun: Option<u64>| {
            let mut pairs = Pairs::default();
            begun.into_iter().for_each(|address| pairs.begins(first, address));
            pairs.close(second);
            pairs
        };
        assert!(closed(None).is_settled && !closed(Some(0x1000)).is_settled);
        let mut pairs = closed(Some(0x1000));
        assert_eq!((pairs.ends(0x1000), pairs.is_settled), (Some(first), true));
        let mut pairs = closed(Some(0x1000));
        pairs.begins(later, 0x1000);
        assert_eq!((pairs.ends(0x1000), pairs.is_settled), (None, true));
        let mut pairs = closed(Some(0x1000));
        pairs.loses();
        assert!(pairs.is_settled);
    }

    #[test]
    fn a_rest_is_many_times_as_long_as_the_window_was() {
        let since = Instant::now();
        let end = since + Duration::from_millis(10);
        let until = |now: Instant, rest| match followed(since, rest, end, now, Vec::new()) {
            Phase::Resting { until } => until.duration_since(now),
            phase => panic!("{phase:?}"),
        };
        assert_eq!(until(end, REST_MIN), Duration::from_millis(190));
        assert_eq!(until(end, Duration::from_secs(2)), Duration::from_secs(2));
        // Who comes late pays for it.
        assert_eq!(until(since + Duration::from_secs(1), REST_MIN), Duration::from_secs(19));
    }

    #[test]
    fn a_thread_waits_for_a_disk_by_its_state() {
        assert!(waits("12 (a) S (b) D 1 12") && !waits("12 (a) D (b) S 1 12") && !waits("12 (a) R 1"));
        assert!(!waits("") && !waits("12 (a"));
    }

    /// Windows are opened and closed without a wait.
    fn step(times: &mut FaultTimes, now: &mut Instant, pids: &[u32]) {
        *now = times.step(*now, || pids.to_vec(), |_| {});
    }

    #[test]
    fn every_thread_has_its_turn() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Mutex::new(ended);
        thread::scope(|scope| {
            for _ in 0..3 * THREADS_MAX {
                // They end with the sender, one after the other.
                scope.spawn(|| ended.lock().unwrap().recv());
            }
            let own = std::process::id();
            let threads: BTreeSet<u32> = threads_of(own).unwrap().into_iter().collect();
            let (mut times, mut now, mut seen) = (FaultTimes::new(), Instant::now(), BTreeSet::new());
            // Threads of other tests come and go.
            for _ in 0..100 {
                step(&mut times, &mut now, &[own]);
                if times.why_not().is_some() {
                    eprintln!("not run: {}", times.why_not().unwrap());
                    break;
                }
                if let Phase::Open { watched, .. } = &times.phase {
                    assert!(watched.len() <= THREADS_MAX);
                    seen.extend(watched.iter().map(|it| it.thread));
                }
            }
            drop(end);
            let living: BTreeSet<u32> = threads_of(own).unwrap().into_iter().collect();
            assert!(times.why_not().is_some() || threads.intersection(&living).all(|it| seen.contains(it)));
        });
    }

    #[test]
    fn nobody_is_watched_when_all_have_gone() {
        let (mut times, mut now) = (FaultTimes::new(), Instant::now());
        (0..4).for_each(|_| step(&mut times, &mut now, &[u32::MAX >> 1]));
        assert!(
            times.why_not().is_none()
                && matches!(times.phase, Phase::Resting { until } if until > now - REST_MIN)
        );
    }

    #[test]
    fn a_refusal_says_what_helps() {
        let text = |number| not_measured(io::Error::from_raw_os_error(number)).to_string();
        assert!(text(libc::EACCES).contains("CAP_PERFMON") && text(libc::EMFILE).contains("ulimit -n"));
        assert!(text(libc::ENOSYS).contains("perf_event_open"));
    }

    fn now_ns() -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
    }

    /// A child touches pages, once in each round, and notes for each when it began and had it; its touches are looked at from outside.
    #[test]
    fn a_time_lies_within_the_time_that_the_program_itself_has_measured() {
        let Some(_swap) = TestSwap::on("faulttimes", 16 << 20, SwapOptions::default()) else { return };
        let data = SharedMapping::anonymous(PAGES * PAGE).unwrap();
        // The round that is done, two words for each page, and whether there is no further round.
        let (end_at, notes_bytes) = ((2 * PAGES + 1) * 8, (2 * PAGES + 2) * 8);
        let file = memory_file("notes", notes_bytes as u64, HugePages::No).unwrap();
        let notes = SharedMapping::file(&file, 0, notes_bytes, Access::ReadWrite).unwrap();
        let (to_test, to_child) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let (ready, is_ready) = (Signal::of(to_test.0.as_fd()), Signal::of(to_test.1.as_fd()));
        let (go, may_go) = (Signal::of(to_child.0.as_fd()), Signal::of(to_child.1.as_fd()));
        let pid = fork_and(|| {
            (0..PAGES).for_each(|page| data.store_u64(page * PAGE, page as u64 + 1));
            let mut round = 0;
            let mut is_right = end_with_starter() && is_ready.send();
            while is_right && go.wait() && notes.load_u64(end_at) == 0 {
                round += 1;
                for page in 0..PAGES {
                    // Not in order, so that what the kernel reads ahead is seldom what comes next.
                    let page = page * 197 % PAGES;
                    notes.store_u64((2 * page + 1) * 8, now_ns());
                    is_right &= data.load_u64(page * PAGE) == page as u64 + 1;
                    notes.store_u64((2 * page + 2) * 8, now_ns());
                }
                notes.store_u64(0, round);
            }
            is_right
        });
        assert!(ready.wait());
        let child = PidFd::open(pid as u32).unwrap();
        let all = Pages::of_other_process(data.address(), (PAGES * PAGE) as u64).unwrap();
        let mut times = FaultTimes::new();
        let (mut seen, mut due, mut round) = (Vec::new(), Instant::now(), 0);
        while seen.len() < 20 && round < 2000 && times.why_not().is_none() {
            if let Err(error) = child.advise(&[all], ProcessAdvice::PageOut, |_, _| {}) {
                eprintln!("not run: {error}");
                break;
            }
            let before = seen.len();
            round += 1;
            assert!(may_go.send());
            while notes.load_u64(0) < round && !child.wait(Duration::ZERO) {
                if due <= Instant::now() {
                    due = times.step(Instant::now(), || vec![pid as u32], |fault| seen.push(fault));
                }
                thread::yield_now();
            }
            // What is not told yet is told now.
            while !matches!(times.phase, Phase::Resting { .. }) && times.why_not().is_none() {
                times.step(Instant::now() + 2 * PATIENCE, || vec![pid as u32], |fault| seen.push(fault));
            }
            due = Instant::now();
            times.phase = Phase::Resting { until: due };
            for fault in &seen[before..] {
                assert!(
                    fault.has_ended && (fault.pid, fault.thread) == (pid as u32, pid as u32),
                    "{fault:?}"
                );
                // Whatever else it touches, its program and the notes, is not noted.
                let Some(page) = fault.address.checked_sub(all.start()).map(|it| it as usize / PAGE) else {
                    continue;
                };
                if page < PAGES {
                    let [begun, had] = [1, 2].map(|at| times.moments.at(notes.load_u64((2 * page + at) * 8)));
                    assert!(
                        begun <= fault.begun && fault.begun + fault.took <= had,
                        "{begun:?}, {had:?}: {fault:?}"
                    );
                }
            }
        }
        let known = times.why_not().map(ToString::to_string);
        notes.store_u64(end_at, 1);
        assert!(may_go.send());
        assert_eq!(status_of(pid), 0);
        match known {
            Some(why) => eprintln!("not run: {why}"),
            None => assert!(seen.len() >= 20 || round < 2000, "{} faults in {round} rounds", seen.len()),
        }
    }
}
