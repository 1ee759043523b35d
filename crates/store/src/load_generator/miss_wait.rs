//! Pacing of applications: all at once with real waits, or one after another on simulated clocks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tiermem_sys::wait::{sharpen_sleeps, wait_until};

use super::application::{Answer, Application};
use super::client_stats::{ClientStats, Figures, MeasuredAccess};
use super::{LoadGeneratorError, Options};

/// Time between reports of progress.
const TICK: Duration = Duration::from_millis(100);
/// Accesses between two readings of the clock where waits are only counted.
const TICK_ACCESSES: u64 = 4096;

/// State shared by the threads of waiting applications.
struct Common {
    start: Barrier,
    /// Applications that are not done yet.
    unfinished: AtomicUsize,
    has_failed: AtomicBool,
    accesses: AtomicU64,
}

/// Runs every application in a thread of its own until all are done.
pub fn wait(
    options: &Options,
    applications: Vec<Application>,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Figures>, LoadGeneratorError> {
    let common = Common {
        start: Barrier::new(applications.len()),
        unfinished: AtomicUsize::new(applications.len()),
        has_failed: AtomicBool::new(false),
        accesses: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        let begin = |application| {
            let client_stats = ClientStats::new(options);
            let common = &common;
            scope.spawn(move || {
                let figures = work(application, client_stats, common);
                common.has_failed.fetch_or(figures.is_err(), Relaxed);
                figures
            })
        };
        let threads: Vec<_> = applications.into_iter().map(begin).collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            thread::sleep(TICK);
            progress(common.accesses.load(Relaxed));
        }
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

fn work(
    mut application: Application,
    mut client_stats: ClientStats,
    common: &Common,
) -> Result<Figures, LoadGeneratorError> {
    sharpen_sleeps();
    common.start.wait();
    let start = Instant::now();
    let mut is_done = false;
    while common.unfinished.load(Relaxed) > 0 && !common.has_failed.load(Relaxed) {
        let wanted = application.next()?;
        let begun = start.elapsed();
        let answer = application.look_up(&wanted)?;
        let refusal = match answer {
            Answer::Hit => None,
            Answer::Miss => {
                wait_until(Instant::now() + application.miss());
                application.store(&wanted)?
            }
            Answer::Refused(ref text) => Some(text.clone()),
        };
        let ended = start.elapsed();
        refusal.into_iter().for_each(|text| client_stats.refused(text));
        let access = MeasuredAccess { begun, ended, latency: ended - begun, is_hit: answer == Answer::Hit };
        if client_stats.count(access) && !is_done {
            is_done = true;
            common.unfinished.fetch_sub(1, Relaxed);
        }
        common.accesses.fetch_add(1, Relaxed);
    }
    Ok(client_stats.finish())
}

/// Runs the accesses of all applications in this thread, always one
/// of the application with the earliest clock, until all are done.
pub fn charge(
    options: &Options,
    mut applications: Vec<Application>,
    round_trip: Duration,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Figures>, LoadGeneratorError> {
    let mut courses: Vec<ClientStats> = applications.iter().map(|_| ClientStats::new(options)).collect();
    let mut is_done = vec![false; courses.len()];
    let mut unfinished = courses.len();
    // Where clocks agree, the first goes first.
    let mut clocks: BinaryHeap<_> = (0..courses.len()).map(|at| Reverse((Duration::ZERO, at))).collect();
    let mut accesses = 0u64;
    while unfinished > 0
        && let Some(Reverse((begun, at))) = clocks.pop()
    {
        let (application, client_stats) = (&mut applications[at], &mut courses[at]);
        let wanted = application.next()?;
        let sent = Instant::now();
        let answer = application.look_up(&wanted)?;
        let (refusal, commands, charged) = match answer {
            Answer::Hit => (None, 1, Duration::ZERO),
            Answer::Miss => (application.store(&wanted)?, 2, application.miss()),
            Answer::Refused(ref text) => (Some(text.clone()), 1, Duration::ZERO),
        };
        let latency = sent.elapsed() + charged;
        refusal.into_iter().for_each(|text| client_stats.refused(text));
        let ended = begun + round_trip * commands + charged;
        if client_stats.count(MeasuredAccess { begun, ended, latency, is_hit: answer == Answer::Hit })
            && !is_done[at]
        {
            is_done[at] = true;
            unfinished -= 1;
        }
        clocks.push(Reverse((ended, at)));
        accesses += 1;
        if accesses.is_multiple_of(TICK_ACCESSES) {
            progress(accesses);
        }
    }
    Ok(courses.into_iter().map(ClientStats::finish).collect())
}
