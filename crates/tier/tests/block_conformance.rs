//! Conformance suite of block devices: one suite, run against each sibling and wrapper. Random requests
//! on ranges that do not overlap are in flight together; what is read must be what a `Vec<u8>` holds.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tiermem_base::rng::Rng;
use tiermem_tier::block::{
    AlignedBuffer, BLOCK_BYTES, Backend, BlockError, BlockIo, Completion, Counted, Faults, Faulty, Immediate,
    MemoryDisk, Op, OpenError, PolledFile, Request, ThreadedFile, Throttled, UringFile, open, open_polled,
};

/// The device is this many groups of four blocks; a request lies within one group.
const GROUPS: usize = 16;
const GROUP_BYTES: usize = 4 * BLOCK_BYTES;
const CAPACITY: usize = GROUPS * GROUP_BYTES;

/// A path in the directory for temporary files, removed with the value.
struct TempPath(PathBuf);

impl TempPath {
    fn new(directory: &Path) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        TempPath(directory.join(format!("tiermem-block-{}-{number}", std::process::id())))
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Opens a device, again and again the same one.
type Opener<'a> = &'a mut dyn FnMut() -> Box<dyn BlockIo>;

/// Runs a check against every sibling.
fn for_each_device(mut check: impl FnMut(&str, Opener)) {
    let path = TempPath::new(&std::env::temp_dir());
    // Some machines have a memory file system there, which has no way past the page cache.
    let shm = Path::new("/dev/shm");
    let other = TempPath::new(if shm.is_dir() { shm } else { path.0.parent().unwrap() });
    let (disk, wrapped) = (MemoryDisk::new(CAPACITY), MemoryDisk::new(CAPACITY));
    let capacity = CAPACITY as u64;
    check("immediate", &mut || Box::new(disk.open()));
    check("threads", &mut || Box::new(ThreadedFile::open(&path.0, capacity, 4).unwrap()));
    check("one thread", &mut || Box::new(ThreadedFile::open(&path.0, capacity, 1).unwrap()));
    check("threads in memory", &mut || open(&other.0, capacity, Backend::Threads).unwrap());
    check("auto", &mut || open(&path.0, capacity, Backend::Auto).unwrap());
    // A machine that forbids io_uring has the fallback alone.
    if UringFile::open(&path.0, capacity).is_ok() {
        check("uring", &mut || Box::new(UringFile::open(&path.0, capacity).unwrap()));
        check("uring in memory", &mut || open(&other.0, capacity, Backend::Uring).unwrap());
        check("polled", &mut || Box::new(PolledFile::open(&path.0, capacity).unwrap()));
        check("polled in memory", &mut || open_polled(&other.0, capacity).unwrap());
        check("polled, throttled, counted", &mut || {
            let polled = PolledFile::open(&path.0, capacity).unwrap();
            Box::new(Counted::new(Throttled::new(polled, Duration::from_micros(20), 4e9)))
        });
        let delays = Faults { delayed: 0.5, ..Faults::default() };
        check("polled, delayed", &mut || {
            let polled = PolledFile::open(&path.0, capacity).unwrap();
            Box::new(Faulty::new(polled, delays.clone(), Rng::seeded(7)))
        });
    }
    let delays = Faults { delayed: 0.5, ..Faults::default() };
    check("delayed", &mut || Box::new(Faulty::new(wrapped.open(), delays.clone(), Rng::seeded(5))));
    let delayed = || ThreadedFile::open(&path.0, capacity, 4).unwrap();
    check("delayed threads", &mut || Box::new(Faulty::new(delayed(), delays.clone(), Rng::seeded(6))));
    let latency = Duration::from_micros(20);
    check("throttled", &mut || Box::new(Throttled::new(wrapped.open(), latency, 4e9)));
    check("throttled, counted", &mut || {
        Box::new(Counted::new(Throttled::new(open(&path.0, capacity, Backend::Auto).unwrap(), latency, 4e9)))
    });
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request in a group: write or read, its first block and its blocks.
    Request {
        group: usize,
        write: bool,
        first: usize,
        blocks: usize,
        batch: bool,
    },
    Sync,
    /// A small write and what it covers, read through the small reads.
    Small {
        offset: usize,
        len: usize,
    },
    Poll,
    Wait,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let request = (0..GROUPS, any::<bool>(), 0usize..4, 1usize..=4, any::<bool>()).prop_map(
        |(group, write, first, blocks, batch)| Step::Request {
            group,
            write,
            first,
            blocks: blocks.min(4 - first),
            batch,
        },
    );
    let small = (0..CAPACITY - 9000, 0usize..9000).prop_map(|(offset, len)| Step::Small { offset, len });
    prop_oneof![
        20 => request,
        1 => Just(Step::Sync),
        1 => small,
        3 => Just(Step::Poll),
        3 => Just(Step::Wait),
        1 => Just(Step::Reopen),
    ]
}

/// A device beside what it should hold.
struct Twin<'a> {
    name: &'a str,
    device: Box<dyn BlockIo>,
    model: Vec<u8>,
    /// By token: what was asked, and the group that it keeps busy.
    flights: BTreeMap<u64, (Op, u64, usize, Option<usize>)>,
    batch: Vec<Request>,
    tokens: u64,
}

impl Twin<'_> {
    fn submit(&mut self, op: Op, offset: usize, len: usize, group: Option<usize>, batch: bool) {
        self.tokens += 1;
        // Tokens are the caller's and may be anything.
        let token = self.tokens.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut buffer = AlignedBuffer::zeroed(len);
        if op == Op::Write {
            let mut rng = Rng::seeded(token);
            buffer.fill_with(|| rng.next_u64() as u8);
            self.model[offset..offset + len].copy_from_slice(&buffer);
        }
        self.flights.insert(token, (op, offset as u64, len, group));
        let request = Request { token, op, offset: offset as u64, buffer };
        self.batch.push(request);
        if !batch {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.device.submit_all(&mut self.batch);
        assert!(self.batch.is_empty());
        assert_eq!(self.device.in_flight(), self.flights.len(), "{}", self.name);
    }

    fn judge(&mut self, done: Vec<Completion>) {
        for completion in done {
            let Completion { token, op, offset, buffer, result } = completion;
            let asked = self.flights.remove(&token).expect("a token in flight, once");
            assert_eq!((op, offset, buffer.len()), (asked.0, asked.1, asked.2), "{}", self.name);
            assert_eq!(result, Ok(()), "{}", self.name);
            let at = offset as usize;
            // A write's buffer comes back as it was given.
            assert!(*buffer == self.model[at..at + buffer.len()], "{}: {op} at {offset}", self.name);
        }
        assert_eq!(self.device.in_flight(), self.flights.len(), "{}", self.name);
    }

    fn poll(&mut self) {
        self.flush();
        let mut done = Vec::new();
        self.device.completed(&mut done);
        self.judge(done);
    }

    fn wait(&mut self) {
        self.flush();
        let mut done = Vec::new();
        let any = !self.flights.is_empty();
        self.device.wait(&mut done);
        assert_eq!(!done.is_empty(), any, "{}", self.name);
        self.judge(done);
    }

    fn wait_all(&mut self) {
        self.flush();
        while !self.flights.is_empty() {
            self.wait();
        }
    }

    fn compare(&mut self) {
        let mut bytes = vec![0; CAPACITY];
        self.device.read_at(0, &mut bytes).unwrap();
        assert!(bytes == self.model, "{}", self.name);
    }
}

fn run(name: &str, open: Opener, steps: &[Step]) {
    let mut device = open();
    let mut model = vec![0; CAPACITY];
    device.read_at(0, &mut model).unwrap();
    let mut twin = Twin { name, device, model, flights: BTreeMap::new(), batch: Vec::new(), tokens: 0 };
    for step in steps {
        match *step {
            Step::Request { group, write, first, blocks, batch } => {
                while twin.flights.values().any(|flight| flight.3 == Some(group)) {
                    twin.wait();
                }
                let op = if write { Op::Write } else { Op::Read };
                let offset = group * GROUP_BYTES + first * BLOCK_BYTES;
                twin.submit(op, offset, blocks * BLOCK_BYTES, Some(group), batch);
            }
            Step::Sync => twin.submit(Op::Sync, 0, 0, None, true),
            Step::Small { offset, len } => {
                twin.wait_all();
                let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + offset) as u8).collect();
                twin.device.write_at(offset as u64, &bytes).unwrap();
                twin.model[offset..offset + len].copy_from_slice(&bytes);
                let mut back = vec![0; len];
                twin.device.read_at(offset as u64, &mut back).unwrap();
                assert!(back == bytes, "{name}");
            }
            Step::Poll => twin.poll(),
            Step::Wait => twin.wait(),
            Step::Reopen => {
                // Untaken completions do not prevent closing; submitted requests are done before.
                twin.flush();
                twin.device = Box::new(Immediate::new(0));
                twin.flights.clear();
                twin.device = open();
                twin.compare();
            }
        }
    }
    twin.wait_all();
    twin.device.sync().unwrap();
    twin.compare();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_device_holds_what_was_written(steps in prop::collection::vec(step(), 1..80)) {
        for_each_device(|name, open| run(name, open, &steps));
    }
}

#[test]
fn requests_that_cannot_be_are_refused_and_change_nothing() {
    for_each_device(|name, open| {
        let mut device = open();
        device.write_at(0, &[9; BLOCK_BYTES]).unwrap();
        let full = || {
            let mut buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
            buffer.fill(1);
            buffer
        };
        let capacity = CAPACITY as u64;
        device.submit(Request::write(1, 512, full()));
        device.submit(Request::write(2, capacity, full()));
        device.submit(Request::read(3, u64::MAX - 4095, full()));
        let mut done = Vec::new();
        while device.in_flight() > 0 {
            device.wait(&mut done);
        }
        done.sort_by_key(|it| it.token);
        assert_eq!(done.len(), 3, "{name}");
        assert_eq!(done[0].result, Err(BlockError::Unaligned { op: Op::Write, offset: 512 }), "{name}");
        assert!(matches!(done[1].result, Err(BlockError::OutOfRange { .. })), "{name}");
        assert!(matches!(done[2].result, Err(BlockError::OutOfRange { .. })), "{name}");
        assert!(done.iter().all(|it| it.buffer.len() == BLOCK_BYTES && it.buffer[0] == 1), "{name}");
        assert!(device.write_at(capacity - 1, &[1, 2]).is_err(), "{name}");
        assert!(device.read_at(u64::MAX, &mut [0]).is_err(), "{name}");
        assert_eq!(device.capacity_bytes(), capacity, "{name}");
        let mut bytes = [0; BLOCK_BYTES];
        device.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [9; BLOCK_BYTES], "{name}");
        // Nothing in flight: waiting returns.
        device.wait(&mut done);
        assert_eq!(done.len(), 3, "{name}");
    });
}

/// Waits for the device's descriptor or the waker's call; false where neither comes.
fn is_called(device: &dyn BlockIo, called: &Receiver<()>) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        let mut asked = device.pollable().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // Where there is a descriptor the call may come as well: neither is waited for alone.
        let moment = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        if poll(asked.as_mut_slice(), Some(&moment)).unwrap_or(0) > 0 || called.try_recv().is_ok() {
            return true;
        }
    }
    false
}

/// A caller that acts only when woken must get everything.
#[test]
fn the_caller_is_woken_until_everything_was_taken() {
    for_each_device(|name, open| {
        let mut device = open();
        // Completions from before the waker is set are reported as well.
        device.submit(Request::read(0, 0, AlignedBuffer::zeroed(BLOCK_BYTES)));
        let (call, called) = channel();
        let call = Mutex::new(call);
        device.notify(Arc::new(move || {
            let _ = call.lock().unwrap().send(());
        }));
        let (mut done, mut calls) = (Vec::new(), 0);
        for round in 0..50u64 {
            let mut batch: Vec<Request> = (0..8)
                .map(|at| Request::read(1 + round * 8 + at, at * 4096, AlignedBuffer::zeroed(BLOCK_BYTES)))
                .collect();
            device.submit_all(&mut batch);
            while device.in_flight() > 0 {
                assert!(is_called(&device, &called), "{name} does not call");
                calls += 1;
                device.completed(&mut done);
            }
        }
        done.sort_by_key(|it| it.token);
        assert!(done.iter().map(|it| it.token).eq(0..401), "{name}");
        assert!(calls > 0);
        // What cannot be asked at all is answered in the same way.
        device.submit(Request::read(401, CAPACITY as u64, AlignedBuffer::zeroed(BLOCK_BYTES)));
        while device.in_flight() > 0 {
            assert!(is_called(&device, &called), "{name} does not call");
            device.completed(&mut done);
        }
        assert!(done.len() == 402 && done[401].result.is_err(), "{name}");
    });
}

#[test]
fn more_requests_than_the_kernel_takes_at_once_are_queued() {
    for_each_device(|name, open| {
        let mut device = open();
        for token in 0..2000 {
            let offset = token % (CAPACITY / BLOCK_BYTES) as u64 * BLOCK_BYTES as u64;
            device.submit(Request::read(token, offset, AlignedBuffer::zeroed(BLOCK_BYTES)));
        }
        assert_eq!(device.in_flight(), 2000, "{name}");
        let mut done = Vec::new();
        while device.in_flight() > 0 {
            device.wait(&mut done);
        }
        done.sort_by_key(|it| it.token);
        assert!(done.iter().map(|it| it.token).eq(0..2000), "{name}");
    });
}

#[test]
fn a_file_is_made_with_its_space_extended_and_never_made_smaller() {
    use std::os::unix::fs::MetadataExt;
    let path = TempPath::new(&std::env::temp_dir());
    for (capacity, len) in [(1 << 20, 1 << 20), (1 << 21, 1 << 21), (1 << 20, 1 << 21)] {
        let device = open(&path.0, capacity, Backend::Auto).unwrap();
        assert_eq!(device.capacity_bytes(), capacity);
        let metadata = std::fs::metadata(&path.0).unwrap();
        assert_eq!(metadata.len(), len);
        assert!(metadata.blocks() * 512 >= len, "the space is there");
    }
}

#[test]
fn one_file_serves_one_store() {
    let path = TempPath::new(&std::env::temp_dir());
    for backend in [Backend::Auto, Backend::Threads] {
        let first = open(&path.0, 1 << 20, backend).unwrap();
        let Err(error) = open(&path.0, 1 << 20, backend) else { panic!("two stores on one file") };
        assert!(matches!(error, OpenError::InUse { .. }));
        assert!(error.to_string().contains(path.0.to_str().unwrap()), "{error}");
        drop(first);
    }
}

#[test]
fn a_device_that_grows_keeps_what_it_has_and_takes_more() {
    for_each_device(|name, reopen| {
        let mut device = reopen();
        let (has, mut done) = (device.capacity_bytes(), Vec::new());
        let mut write = |device: &mut Box<dyn BlockIo>, offset: u64, byte: u8| {
            let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
            block.fill(byte);
            device.submit(Request::write(1, offset, block));
            done.clear();
            while done.is_empty() {
                device.wait(&mut done);
            }
            done.pop().unwrap().result
        };
        assert!(write(&mut device, has - BLOCK_BYTES as u64, 7).is_ok(), "{name}");
        assert!(write(&mut device, has, 8).is_err(), "{name}: beyond its end");
        device.grow(has - 1).unwrap();
        assert_eq!(device.capacity_bytes(), has, "{name} never shrinks");
        device.grow(has + GROUP_BYTES as u64).unwrap();
        assert_eq!(device.capacity_bytes(), has + GROUP_BYTES as u64, "{name}");
        assert!(write(&mut device, has, 8).is_ok(), "{name}");
        let mut both = [0; 2 * BLOCK_BYTES];
        device.read_at(has - BLOCK_BYTES as u64, &mut both).unwrap();
        assert_eq!((both[0], both[2 * BLOCK_BYTES - 1]), (7, 8), "{name}");
    });
}

#[test]
fn what_cannot_be_a_device_is_refused_with_a_reason() {
    let path = TempPath::new(&std::env::temp_dir());
    let error = |path: &Path, capacity| open(path, capacity, Backend::Auto).err().expect("an error");
    assert!(matches!(error(&path.0, 0), OpenError::Capacity { .. }));
    assert!(matches!(error(&path.0, 5000), OpenError::Capacity { .. }));
    assert!(matches!(error(Path::new("/dev/null"), 4096), OpenError::Kind { .. }));
    assert!(matches!(error(&std::env::temp_dir(), 4096), OpenError::Io { .. }));
    // More than the disk has: told before any of it is taken from others.
    let free = tiermem_sys::disk::free_bytes(&tiermem_sys::disk::open(&path.0).unwrap()).unwrap();
    let full = error(&path.0, (free / 4096 + 1) * 2 * 4096);
    assert!(matches!(full, OpenError::NoSpace { .. }), "{full}");
    assert_eq!(std::fs::metadata(&path.0).unwrap().len(), 0);
}

#[test]
fn a_file_cut_short_beneath_the_store_is_told() {
    for backend in [Backend::Auto, Backend::Threads] {
        let path = TempPath::new(&std::env::temp_dir());
        let mut device = open(&path.0, 1 << 20, backend).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path.0).unwrap();
        file.set_len(5 * BLOCK_BYTES as u64).unwrap();
        device.submit(Request::read(1, 4 * BLOCK_BYTES as u64, AlignedBuffer::zeroed(2 * BLOCK_BYTES)));
        let mut done = Vec::new();
        device.wait(&mut done);
        let Err(BlockError::Short { done_bytes, .. }) = done[0].result else {
            panic!("{:?}", done[0].result)
        };
        assert_eq!(done_bytes, BLOCK_BYTES as u64);
        assert!(matches!(device.read_at(1 << 19, &mut [0; 10]), Err(BlockError::Short { .. })));
    }
}
