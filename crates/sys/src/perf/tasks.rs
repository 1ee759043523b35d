//! Births and ends of the processes that a program starts, and of those that they start, whoever their parents are by then.

use std::io;
use std::time::Instant;

use super::mappings::{DISABLED, DUMMY, ENABLE_ON_EXEC, EXCLUDE_HYPERVISOR, EXCLUDE_KERNEL};
use super::moments::{CLOCK_AT, MONOTONIC, Moments, SAMPLE_ID_ALL, SAMPLE_TIME, USE_CLOCK};
use super::ring::{Record, Ring};
use super::{Attributes, online_cpus, open_software};

/// Bytes of each processor's ring: more than 1,000 births.
const RING_BYTES: usize = 128 << 10;
pub(super) const COMM: u64 = 1 << 9;
pub(super) const TASK: u64 = 1 << 13;
pub(super) const RECORD_COMM: u32 = 3;
pub(super) const RECORD_EXIT: u32 = 4;
pub(super) const RECORD_FORK: u32 = 7;

/// What has happened to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskChange {
    /// It was born. Threads are none.
    Born {
        /// The process that made it.
        parent: u32,
    },
    /// It has another name, as it has begun a program.
    Named(String),
    /// Its first thread has ended.
    Ended,
}

/// A record of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEvent {
    /// The process.
    pub pid: u32,
    /// When.
    pub at: Instant,
    /// What.
    pub change: TaskChange,
}

/// The processes of one program.
#[derive(Debug)]
pub struct TaskWatch {
    rings: Vec<Ring>,
    moments: Moments,
}

impl TaskWatch {
    /// Watches the programs that this very thread is going to start.
    ///
    /// # Errors
    /// Permission denied without CAP_PERFMON if `kernel.perf_event_paranoid` is above 2.
    pub fn before_start() -> io::Result<Self> {
        let mut attributes = Attributes {
            config: DUMMY,
            sample_type: SAMPLE_TIME,
            flags: DISABLED
                | ENABLE_ON_EXEC
                | EXCLUDE_KERNEL
                | EXCLUDE_HYPERVISOR
                | COMM
                | TASK
                | SAMPLE_ID_ALL
                | USE_CLOCK,
            ..Attributes::default()
        };
        attributes.rest[CLOCK_AT] = MONOTONIC;
        let ring = |cpu| Ring::map(open_software(0, cpu, attributes)?, RING_BYTES);
        let rings = online_cpus()?.into_iter().map(ring).collect::<io::Result<_>>()?;
        Ok(TaskWatch { rings, moments: Moments::new() })
    }

    /// What has happened since the last call, in the order of time, and how many records were lost because there were too many at once.
    pub fn drain(&mut self) -> (Vec<TaskEvent>, u64) {
        let mut events = Vec::new();
        let mut lost = 0;
        for ring in &mut self.rings {
            lost += ring.drain(|record| {
                let event = |(pid, change)| TaskEvent { pid, at: self.moments.of(&record), change };
                events.extend(change(&record).map(event));
            });
        }
        events.sort_by_key(|event| event.at);
        (events, lost)
    }
}

/// Of which process, and what.
fn change(record: &Record<'_>) -> Option<(u32, TaskChange)> {
    // The process, then its parent or the thread; the thread; the rest.
    let (pid, other) = (record.word(0) as u32, (record.word(0) >> 32) as u32);
    let thread = record.word(1) as u32;
    let change = match record.kind {
        RECORD_FORK if pid != other => TaskChange::Born { parent: other },
        RECORD_EXIT if pid == thread => TaskChange::Ended,
        RECORD_COMM if pid == other => TaskChange::Named(record.text(1, 1)),
        _ => return None,
    };
    Some((pid, change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn births_and_ends_are_told_in_the_order_of_time() {
        let mut watch = match TaskWatch::before_start() {
            Ok(watch) => watch,
            Err(error) => {
                let forbidden = [io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported];
                assert!(forbidden.contains(&error.kind()), "{error}");
                return;
            }
        };
        // The one between ends before the last, whose parent is another then.
        let script = "(sh -c 'sleep 0.01; exec true' & ) ; wait";
        let begun = Instant::now();
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let first = child.id();
        child.wait().unwrap();
        let mut events = Vec::new();
        let ends = |events: &[TaskEvent]| events.iter().filter(|it| it.change == TaskChange::Ended).count();
        let births = |events: &[TaskEvent]| {
            events.iter().filter(|it| matches!(it.change, TaskChange::Born { .. })).count()
        };
        while ends(&events) < births(&events) + 1 || births(&events) < 3 {
            let (new, lost) = watch.drain();
            assert_eq!(lost, 0);
            events.extend(new);
        }
        let between = events.iter().find(|it| it.change == TaskChange::Born { parent: first }).unwrap();
        let last = events.iter().find(|it| it.change == TaskChange::Born { parent: between.pid }).unwrap();
        let names: Vec<&TaskChange> =
            events.iter().filter(|it| it.pid == last.pid).map(|it| &it.change).collect();
        assert_eq!(
            names[1..],
            [&TaskChange::Named("sh".to_owned()), &TaskChange::Named("true".to_owned()), &TaskChange::Ended]
        );
        let now = Instant::now();
        assert!(begun <= between.at && between.at <= last.at && last.at <= now);
    }
}
