//! Time for which a process has run, all of its threads together, to the microsecond, also while it runs. The clock that the system
//! has for a process moves with the scheduler's tick alone, as others see it.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use super::mappings::{EXCLUDE_HYPERVISOR, EXCLUDE_KERNEL};
use super::rings::threads_of;
use super::{Attributes, open_software};

/// Time for which a thread has run.
const TASK_CLOCK: u64 = 1;
/// Threads that a thread starts count with it, and processes that it starts do not (Linux 5.13).
const INHERIT_THREAD: u64 = 1 << 35;
/// Threads that there may be already: each has an event of its own, which takes a descriptor and time.
const THREADS_MAX: usize = 64;
const ANY_CPU: i32 = -1;

/// The clock of a process.
#[derive(Debug)]
pub struct RunClock {
    events: Vec<File>,
}

impl RunClock {
    /// Of a process, for the threads that it has now and those that they start.
    ///
    /// # Errors
    /// Permission denied where `kernel.perf_event_paranoid` forbids it; if the process has gone, or has too many threads.
    pub fn open(pid: u32) -> io::Result<Self> {
        let mut events = Vec::new();
        for thread in threads_of(pid)? {
            if events.len() == THREADS_MAX {
                return Err(io::Error::other(format!("process {pid} has more than {THREADS_MAX} threads")));
            }
            let flags = INHERIT_THREAD | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR;
            let attributes = Attributes { config: TASK_CLOCK, flags, ..Attributes::default() };
            events.push(File::from(open_software(thread, ANY_CPU, attributes)?));
        }
        Ok(RunClock { events })
    }

    /// The time since the clock was opened.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn read(&self) -> io::Result<Duration> {
        let of = |mut event: &File| {
            let mut time_ns = [0; 8];
            event.read_exact(&mut time_ns)?;
            Ok(Duration::from_nanos(u64::from_ne_bytes(time_ns)))
        };
        self.events.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_time::thread_cpu_time;

    #[test]
    fn it_runs_while_the_process_does_and_stands_still_while_it_sleeps() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let Ok(clock) = RunClock::open(child.id()) else {
            eprintln!("skipped: events are not allowed here");
            child.kill().unwrap();
            child.wait().unwrap();
            return;
        };
        let own = RunClock::open(std::process::id()).unwrap();
        let before = thread_cpu_time();
        while thread_cpu_time() - before < Duration::from_millis(20) {
            std::hint::black_box(thread_cpu_time());
        }
        assert!(own.read().unwrap() >= Duration::from_millis(20));
        assert!(clock.read().unwrap() < Duration::from_millis(20));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(clock.read().is_ok());
        assert!(RunClock::open(u32::MAX).is_err());
    }
}
