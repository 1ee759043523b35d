//! First touches of memory, sampled: page faults with the registers and a copy of the stack of who caused them, so that they can be told
//! by the code that they come from. Beside them what is needed to name that code: mappings that can be executed, births of processes,
//! and programs that processes begin. The program is neither stopped nor changed.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use super::Attributes;
use super::mappings::{DISABLED, ENABLE_ON_EXEC, EXCLUDE_HYPERVISOR, EXCLUDE_KERNEL};
use super::moments::{CLOCK_AT, MONOTONIC, Moments, SAMPLE_ID_ALL, SAMPLE_TIME, USE_CLOCK};
use super::ring::{RECORD_SAMPLE, Record};
use super::rings::{Rings, WATERMARK};
use super::tasks::{COMM, RECORD_COMM, RECORD_EXIT, RECORD_FORK, TASK};

/// Counted as a fault begins, whatever answers it.
const PAGE_FAULTS: u64 = 2;
/// Most samples a second of each thread. The kernel adapts the period to it, beginning with every fault: of a program that touches a
/// little much is told, and of one that touches GiB a small part is. More of them would not cost much, as counting faults costs more; but
/// the rings fill sooner. With fewer the period that a program's start leads to, in small pages, lasts too long in huge ones.
const SAMPLES_PER_S: u64 = 4000;
const SAMPLE_RATE_MAX: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
const FREQUENCY: u64 = 1 << 10;
const MMAP: u64 = 1 << 8;
const MMAP2: u64 = 1 << 23;
/// Fields of a sample: process and thread; time; address; period; registers; stack.
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_ADDR: u64 = 1 << 3;
const SAMPLE_PERIOD: u64 = 1 << 8;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const SAMPLE_STACK_USER: u64 = 1 << 13;
/// Frame pointer, stack pointer and instruction pointer of x86-64, in this order.
const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
const REGISTERS_AT: usize = 3;
/// The lower half of a word; the clock is in the upper half.
const STACK_AT: usize = CLOCK_AT;
/// Bytes of the stack that are copied.
const STACK_BYTES: u64 = 8 << 10;
const ABI_64_BIT: u64 = 2;
const RECORD_MMAP2: u32 = 10;
/// A name of a process that it has got by beginning a program.
const IS_EXEC: u16 = 1 << 13;
/// A record that was begun on another processor is complete after this time.
const SETTLING: Duration = Duration::from_millis(1);

/// The registers and the stack at a touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackCopy {
    /// The instruction pointer.
    pub ip: u64,
    /// The stack pointer: where the copy begins.
    pub sp: u64,
    /// The frame pointer, if the code keeps one.
    pub bp: u64,
    /// The stack from its pointer on, as far as it was copied.
    pub words: Vec<u64>,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TouchChange {
    /// Memory was touched that was not there.
    Touched {
        /// Where.
        address: u64,
        /// How many touches this one stands for.
        touches: u64,
        /// By what; `None` if nobody wanted to know, or of programs of 32 bits.
        stack: Option<StackCopy>,
    },
    /// Something that can be executed was mapped.
    Mapped {
        /// The first address.
        start: u64,
        /// Its size.
        bytes: u64,
        /// Where in the file.
        file_offset: u64,
        /// The file's path; `//anon` if there is none.
        path: String,
    },
    /// The process was born, with the mappings of its parent.
    Born {
        /// The parent.
        parent: u32,
    },
    /// It has begun another program.
    BeganProgram,
    /// Its first thread has ended.
    Ended,
}

/// A record of what has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TouchEvent {
    /// The process.
    pub pid: u32,
    /// When.
    pub at: Instant,
    /// What.
    pub change: TouchChange,
}

/// The first touches of a program and of what it starts.
#[derive(Debug)]
pub struct FirstTouchWatch {
    rings: Rings,
    moments: Moments,
    /// What may have happened before something that is not told yet.
    waiting: Vec<TouchEvent>,
    /// Whether faults within system calls are left out.
    is_user_only: bool,
    lost: u64,
}

impl FirstTouchWatch {
    /// Watches the programs that this very thread is going to start.
    ///
    /// # Errors
    /// Permission denied without CAP_PERFMON if `kernel.perf_event_paranoid` is above 2; unsupported on other processors than x86-64.
    pub fn before_start() -> io::Result<Self> {
        Self::open(&[0], DISABLED | ENABLE_ON_EXEC)
    }

    /// Watches threads that run, and what they start.
    ///
    /// # Errors
    /// As [`Self::before_start`]; also if one of another user is among them, or if there are too many for the open files that this process
    /// may have. Those that have ended are passed over.
    pub fn of_threads(threads: &[u32]) -> io::Result<Self> {
        Self::open(threads, 0)
    }

    fn open(threads: &[u32], flags: u64) -> io::Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // Faults within system calls take more rights. Their stacks are those of the program all the same.
        match Self::open_with(threads, flags) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let watch = Self::open_with(threads, flags | EXCLUDE_KERNEL)?;
                Ok(FirstTouchWatch { is_user_only: true, ..watch })
            }
            opened => opened,
        }
    }

    fn open_with(threads: &[u32], flags: u64) -> io::Result<Self> {
        Ok(FirstTouchWatch {
            rings: Rings::open(threads, |bytes| vec![attributes(flags, bytes)])?,
            moments: Moments::new(),
            waiting: Vec::new(),
            is_user_only: false,
            lost: 0,
        })
    }

    /// Whether touches within system calls, as those of `read` into new memory, are left out, as this user may not watch the kernel.
    pub fn is_user_only(&self) -> bool {
        self.is_user_only
    }

    /// Records that were lost so far because there were too many at once.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Waits until a part of the room for records is taken, or for this time.
    pub fn wait(&self, at_most: Duration) {
        self.rings.wait(at_most);
    }

    /// Takes what has happened since the last call, in the order of time. `wants` says of a process and an address whether the stack is
    /// wanted, which takes time to copy. With `is_end` nothing is held back for the order's sake.
    pub fn drain(&mut self, is_end: bool, mut wants: impl FnMut(u32, u64) -> bool) -> Vec<TouchEvent> {
        let now = Instant::now();
        let FirstTouchWatch { rings, moments, waiting, lost, .. } = self;
        for ring in rings.iter_mut() {
            *lost += ring.drain(|record| waiting.extend(event(&record, moments, &mut wants)));
        }
        waiting.sort_by_key(|event| event.at);
        if is_end {
            return std::mem::take(waiting);
        }
        // What comes later on another processor's ring is later than this.
        let complete = waiting.partition_point(|event| event.at + SETTLING < now);
        let rest = waiting.split_off(complete);
        std::mem::replace(waiting, rest)
    }
}

fn attributes(flags: u64, ring_bytes: usize) -> Attributes {
    let allowed: Option<u64> = fs::read_to_string(SAMPLE_RATE_MAX).ok().and_then(|it| it.trim().parse().ok());
    let mut attributes = Attributes {
        config: PAGE_FAULTS,
        sample_period: allowed.map_or(SAMPLES_PER_S, |allowed| SAMPLES_PER_S.min(allowed.max(1))),
        sample_type: SAMPLE_TID
            | SAMPLE_TIME
            | SAMPLE_ADDR
            | SAMPLE_PERIOD
            | SAMPLE_REGS_USER
            | SAMPLE_STACK_USER,
        flags: flags
            | EXCLUDE_HYPERVISOR
            | FREQUENCY
            | MMAP
            | MMAP2
            | COMM
            | TASK
            | WATERMARK
            | SAMPLE_ID_ALL
            | USE_CLOCK,
        wakeup: (ring_bytes / 4) as u32,
        ..Attributes::default()
    };
    attributes.rest[REGISTERS_AT] = REGISTERS;
    attributes.rest[STACK_AT] = STACK_BYTES | MONOTONIC;
    attributes
}

fn event(
    record: &Record<'_>,
    moments: &Moments,
    wants: &mut impl FnMut(u32, u64) -> bool,
) -> Option<TouchEvent> {
    let (pid, other) = (record.word(0) as u32, (record.word(0) >> 32) as u32);
    if record.kind == RECORD_SAMPLE {
        let [time_ns, address, touches] = [1, 2, 3].map(|at| record.word(at));
        let stack = wants(pid, address).then(|| stack(record)).flatten();
        let change = TouchChange::Touched { address, touches, stack };
        return Some(TouchEvent { pid, at: moments.at(time_ns), change });
    }
    let change = match record.kind {
        // Process, thread; address, length, file offset; device, inode, its generation; protection; path.
        RECORD_MMAP2 => TouchChange::Mapped {
            start: record.word(1),
            bytes: record.word(2),
            file_offset: record.word(3),
            path: record.text(8, 2),
        },
        RECORD_FORK if pid != other => TouchChange::Born { parent: other },
        RECORD_COMM if record.flags & IS_EXEC != 0 => TouchChange::BeganProgram,
        RECORD_EXIT if pid == record.word(1) as u32 => TouchChange::Ended,
        _ => return None,
    };
    Some(TouchEvent { pid, at: moments.of(record), change })
}

/// Behind the period: which registers there are, these, the bytes of the stack, the stack, and how many of its bytes were copied.
fn stack(record: &Record<'_>) -> Option<StackCopy> {
    if record.word(4) != ABI_64_BIT {
        return None;
    }
    let [bp, sp, ip] = [5, 6, 7].map(|at| record.word(at));
    let room = record.word(8) / 8;
    let copied = if room == 0 { 0 } else { record.word(9 + room) / 8 };
    let words = (0..copied.min(room)).map(|at| record.word(9 + at)).collect();
    Some(StackCopy { ip, sp, bp, words })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn touches_come_with_the_stack_and_the_code_of_the_program() {
        let mut watch = match FirstTouchWatch::before_start() {
            Ok(watch) => watch,
            Err(error) => {
                let forbidden = [io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported];
                assert!(forbidden.contains(&error.kind()), "{error}");
                return;
            }
        };
        let mut child = Command::new("sh").args(["-c", "x=$(exec seq 1000000); true"]).spawn().unwrap();
        let first = child.id();
        child.wait().unwrap();
        let events = watch.drain(true, |_, _| true);
        assert_eq!(watch.lost(), 0);
        assert!(events.is_sorted_by_key(|event| event.at));
        let of = |pid: u32| events.iter().filter(move |event| event.pid == pid).map(|event| &event.change);
        let born: Vec<u32> = events
            .iter()
            .filter(|event| event.change == TouchChange::Born { parent: first })
            .map(|event| event.pid)
            .collect();
        assert_eq!(born.len(), 1);
        // The instruction pointers lie in what was mapped before. (While a program begins, the kernel touches its stack.)
        for pid in [first, born[0]] {
            let mut code: Vec<(u64, u64, &str)> = Vec::new();
            let (mut known, mut all, mut begun) = (0, 0, 0);
            for change in of(pid) {
                match change {
                    TouchChange::Mapped { start, bytes, path, .. } => {
                        code.push((*start, *start + *bytes, path));
                    }
                    TouchChange::BeganProgram => {
                        begun += 1;
                        code.clear();
                    }
                    TouchChange::Touched { stack: Some(stack), touches, .. } if begun > 0 => {
                        assert!(*touches > 0 && stack.words.len() <= STACK_BYTES as usize / 8);
                        let is_there = |it: &&(u64, u64, &str)| (it.0..it.1).contains(&stack.ip);
                        all += 1;
                        known += usize::from(code.iter().any(|it| is_there(&it)) && !stack.words.is_empty());
                    }
                    _ => {}
                }
            }
            assert_eq!(begun, 1, "{pid}");
            // The other one is small: perhaps none of its touches is told.
            assert!(known <= all && (pid != first || known * 2 > all), "{known} of {all}");
            assert!(code.iter().any(|(.., path)| path.contains("ld-linux")), "{code:x?}");
        }
    }

    #[test]
    fn a_stack_that_nobody_wants_is_not_copied() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let Ok(mut watch) = FirstTouchWatch::of_threads(&[thread]) else { return };
        let mut mapping = crate::mapping::Mapping::anonymous(8 << 20).unwrap();
        let base = mapping.bytes().as_ptr().addr() as u64;
        // Whether there is a stack, of each touch that is told. Not every one is.
        let mut touch = |from: usize, is_wanted: bool| -> Vec<bool> {
            (from..from + (4 << 20)).step_by(4096).for_each(|at| mapping.bytes_mut()[at] = 1);
            let range = base + from as u64..base + from as u64 + (4 << 20);
            let all = watch.drain(true, |_, address| is_wanted && range.contains(&address));
            all.iter()
                .filter_map(|it| match &it.change {
                    TouchChange::Touched { address, stack, .. } => {
                        range.contains(address).then_some(stack.is_some())
                    }
                    _ => None,
                })
                .collect()
        };
        let (with, without) = (touch(0, true), touch(4 << 20, false));
        assert!(!with.is_empty() && with.iter().all(|has_stack| *has_stack), "{with:?}");
        assert!(!without.iter().any(|has_stack| *has_stack), "{without:?}");
    }
}
