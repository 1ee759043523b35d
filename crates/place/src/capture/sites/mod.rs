//! Which code first touches the memory of a program: sampled page faults, with the stacks of who causes them.
//!
//! A thread of its own takes in what the kernel tells ([`gathering`]), and unwinds stacks meanwhile. Names are looked up when the program
//! has ended ([`named`]), and each touch finds its process and its slice ([`touches`]).

mod gathering;
mod images;
mod named;
mod touches;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::mpsc::{self, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tiermem_sys::child;
use tiermem_sys::cpu_time;
use tiermem_sys::limits::raise_open_files;
use tiermem_sys::perf::FirstTouchWatch;
use tiermem_trace::recording::{Head, Sites};

use self::gathering::Gathering;

/// The longest that something may wait to be taken in.
const STEP: Duration = Duration::from_millis(20);
/// Files that the events of a running program's threads take, and the recorder itself.
const FILES_MAX: u64 = 65_536;
const FILES: u64 = 1024;
/// A smaller part of the touches without callers is not told: the kernel touches a program's stack before it begins, and the loader has code
/// that cannot be unwound.
const TOLD_PART: u64 = 10;

/// What gathers touches, on a thread of its own.
#[derive(Debug)]
pub(super) struct SiteCollector {
    /// Dropped, it asks for the end.
    orders: Sender<()>,
    thread: JoinHandle<Gathered>,
    is_user_only: bool,
    is_late: bool,
}

/// All that was gathered.
#[derive(Debug)]
pub(super) struct Gathered {
    touches: Gathering,
    lost: u64,
    cpu: Duration,
}

impl SiteCollector {
    /// Gathers what the programs touch that this very thread is going to start.
    pub fn before_start(granule_bytes: u64) -> io::Result<Self> {
        Ok(Self::begin(FirstTouchWatch::before_start()?, granule_bytes, false))
    }

    /// Gathers what a process and its descendants touch from now on.
    pub fn of_process(pid: u32, with_children: bool, granule_bytes: u64) -> io::Result<Self> {
        let threads = threads(pid, with_children);
        // As many as it takes, or as can be had: then opening says so.
        let _ = raise_open_files((threads.len() as u64 * processors()).min(FILES_MAX) + FILES);
        Ok(Self::begin(FirstTouchWatch::of_threads(&threads)?, granule_bytes, true))
    }

    fn begin(mut watch: FirstTouchWatch, granule_bytes: u64, is_late: bool) -> Self {
        let is_user_only = watch.is_user_only();
        let (orders, ended) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let mut touches = Gathering::new(granule_bytes);
            loop {
                let is_end = ended.try_recv() == Err(TryRecvError::Disconnected);
                if !is_end {
                    watch.wait(STEP);
                }
                let events = watch.drain(is_end, |pid, address| touches.wants(pid, address, Instant::now()));
                events.into_iter().for_each(|event| touches.take(event));
                if is_end {
                    return Gathered { touches, lost: watch.lost(), cpu: cpu_time::thread_cpu_time() };
                }
            }
        });
        SiteCollector { orders, thread, is_user_only, is_late }
    }

    /// Ends gathering, and tells the sites of a recording whose program has process `first`. `begun` is the recording's start. Notes for the
    /// reader and the cost are added to the head. `None` if the thread has broken down, which has told of itself.
    pub fn finish(self, head: &mut Head, first: u32, begun: Instant) -> Option<Sites> {
        let SiteCollector { orders, thread, is_user_only, is_late } = self;
        drop(orders);
        let Gathered { touches, lost, cpu } = thread.join().ok()?;
        head.cost.recorder_cpu_s += cpu.as_secs_f64();
        let names_before = cpu_time::process_cpu_time();
        let gathered = touches.finish();
        let named = named::name(&gathered);
        head.cost.recorder_cpu_s += (cpu_time::process_cpu_time().saturating_sub(names_before)).as_secs_f64();
        let mut note = |note: &str| head.notes.push(format!("sites: {note}"));
        if is_late {
            note("memory that was touched before the recording began has no site");
        }
        if is_user_only {
            note(
                "memory that system calls touched first (read into new memory, say) has no site, as kernel.perf_event_paranoid is above 1; \
                 root or CAP_PERFMON sees it",
            );
        }
        if lost > 0 {
            note(&format!("{lost} samples of first touches were lost, as they came too fast"));
        }
        if named.is_late {
            note(
                "names were looked up for too long, so that some sites have none; the debug information is very large",
            );
        }
        let not_unwound = gathered.not_unwound + named.not_unwound;
        if not_unwound * TOLD_PART > gathered.sampled {
            note(&format!(
                "the callers of {not_unwound} of {} sampled touches could not be told, as their stacks could not be unwound",
                gathered.sampled
            ));
        }
        let touches = touches::told(&gathered, &named, head, first, begun);
        let sampled = gathered.sampled;
        Some(Sites { frames: named.frames, stacks: named.stacks, touches, sampled, not_unwound, lost })
    }
}

fn processors() -> u64 {
    thread::available_parallelism().map_or(1, |it| it.get() as u64)
}

/// All threads of a process, and of its descendants.
fn threads(pid: u32, with_children: bool) -> Vec<u32> {
    let mut threads = Vec::new();
    let mut seen = BTreeSet::from([pid]);
    let mut processes = vec![pid];
    while let Some(process) = processes.pop() {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        threads.extend(tasks.filter_map(|it| it.file_name().to_string_lossy().parse::<u32>().ok()));
        if with_children {
            processes.extend(child::children(process).into_iter().filter(|it| seen.insert(*it)));
        }
    }
    threads
}
