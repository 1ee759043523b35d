//! Driver of any store as its user would drive it: acts only
//! when called, and checks results against the expected bytes.
#![allow(clippy::unwrap_used, dead_code)] // Helpers of tests are tests; each test uses some of them.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tiermem_base::rng::Rng;
use tiermem_tier::backing::{AlignedBuffer, Backing, BackingError, Completion, Op, Request};

/// Time without progress after which a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A volume that can be opened again and again.
pub trait Volume {
    fn open(&self, read_only: bool) -> Box<dyn Backing>;
}

impl<F: Fn(bool) -> Box<dyn Backing>> Volume for F {
    fn open(&self, read_only: bool) -> Box<dyn Backing> {
        self(read_only)
    }
}

/// A store with completions that can be waited for.
pub struct Waited {
    pub store: Box<dyn Backing>,
    called: Receiver<()>,
}

impl Waited {
    pub fn new(mut store: Box<dyn Backing>) -> Self {
        let (call, called) = channel();
        let call = Mutex::new(call);
        store.notify(Arc::new(move || {
            let _ = call.lock().unwrap().send(());
        }));
        Waited { store, called }
    }

    /// At least one completion, when anything is in flight.
    pub fn wait(&mut self) -> Vec<Completion> {
        let mut done = Vec::new();
        self.store.completed(&mut done);
        while done.is_empty() && self.store.in_flight() > 0 {
            self.called.recv_timeout(PATIENCE).expect("a call when something is done");
            while self.called.try_recv().is_ok() {}
            self.store.completed(&mut done);
        }
        done
    }

    pub fn wait_all(&mut self) -> Vec<Completion> {
        let mut done = Vec::new();
        while self.store.in_flight() > 0 {
            done.extend(self.wait());
        }
        done
    }

    /// Waits until `ready`, looking at each call.
    pub fn wait_until(
        &mut self,
        done: &mut Vec<Completion>,
        mut ready: impl FnMut(&[Completion], &dyn Backing) -> bool,
    ) {
        loop {
            self.store.completed(done);
            if ready(done, &*self.store) {
                return;
            }
            self.called.recv_timeout(PATIENCE).expect("a call when something has changed");
        }
    }

    /// One request alone.
    pub fn one(&mut self, request: Request) -> Completion {
        assert_eq!(self.store.in_flight(), 0);
        self.store.submit(request);
        self.wait_all().pop().unwrap()
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BackingError> {
        self.one(Request::write(1, offset, bytes.len() as u64, buffer(bytes))).result
    }

    pub fn read(&mut self, offset: u64, bytes: u64) -> Result<Vec<u8>, BackingError> {
        let done = self.one(Request::read(2, offset, bytes, AlignedBuffer::zeroed(bytes as usize)));
        done.result.map(|()| done.buffer[..bytes as usize].to_vec())
    }

    pub fn flush(&mut self) -> Result<(), BackingError> {
        self.one(Request::flush(3)).result
    }
}

pub fn buffer(bytes: &[u8]) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(bytes.len());
    buffer[..bytes.len()].copy_from_slice(bytes);
    buffer
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A request; places and lengths count in some measure of the volume.
    Request {
        op: Op,
        at: u64,
        measure: u64,
        bytes: u64,
        slack: bool,
    },
    Poll,
    Wait,
    Reopen,
}

/// A store beside what it should hold.
pub struct Twin<'a> {
    name: &'a str,
    volume: &'a dyn Volume,
    pub waited: Waited,
    model: Vec<u8>,
    /// Bytes that were given back and may read as zeroes.
    trimmed: Vec<bool>,
    flights: BTreeMap<u64, (Op, u64, u64)>,
    tokens: u64,
}

impl<'a> Twin<'a> {
    pub fn new(name: &'a str, volume: &'a dyn Volume) -> Self {
        let waited = Waited::new(volume.open(false));
        let size = waited.store.size_bytes() as usize;
        let (model, trimmed) = (vec![0; size], vec![false; size]);
        Twin { name, volume, waited, model, trimmed, flights: BTreeMap::new(), tokens: 0 }
    }

    fn collides(&self, op: Op, offset: u64, end: u64) -> bool {
        let writes = |op| matches!(op, Op::Write | Op::Trim | Op::Zero);
        self.flights
            .values()
            .any(|(other, from, to)| *from < end && offset < *to && (writes(op) || writes(*other)))
    }

    fn submit(&mut self, op: Op, offset: u64, end: u64, slack: bool) {
        while self.collides(op, offset, end) {
            self.wait();
        }
        self.tokens += 1;
        // Tokens are the caller's and may be anything.
        let token = self.tokens.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (bytes, range) = (end - offset, offset as usize..end as usize);
        let room = bytes as usize + if slack { 5000 } else { 0 };
        let mut request = match op {
            Op::Read => Request::read(token, offset, bytes, AlignedBuffer::zeroed(room)),
            Op::Write => Request::write(token, offset, bytes, AlignedBuffer::zeroed(room)),
            Op::Flush => Request::flush(token),
            Op::Trim => Request::trim(token, offset, bytes),
            Op::Zero => Request::zero(token, offset, bytes),
            Op::Describe => Request::describe(token, offset, bytes),
        };
        match op {
            Op::Write => {
                let mut rng = Rng::seeded(token);
                request.buffer.fill_with(|| rng.next_u64() as u8);
                self.model[range.clone()].copy_from_slice(&request.buffer[..bytes as usize]);
                self.trimmed[range].fill(false);
            }
            Op::Zero => {
                self.model[range.clone()].fill(0);
                self.trimmed[range].fill(false);
            }
            Op::Trim => self.trimmed[range].fill(true),
            Op::Read | Op::Flush | Op::Describe => {}
        }
        self.flights.insert(token, (op, offset, end));
        self.waited.store.submit(request);
        assert_eq!(self.waited.store.in_flight(), self.flights.len(), "{}", self.name);
    }

    fn judge(&mut self, done: Vec<Completion>) {
        for Completion { token, op, offset, bytes, buffer, result, extents, session } in done {
            let asked = self.flights.remove(&token).expect("a token in flight, once");
            assert_eq!((op, offset, offset + bytes), asked, "{}", self.name);
            assert_eq!(result, Ok(()), "{}: {op:?} at {offset}", self.name);
            assert!(session <= self.waited.store.session(), "{}", self.name);
            if matches!(op, Op::Read | Op::Write) {
                self.hold(offset as usize, &buffer[..bytes as usize]);
            }
            let mut at = offset;
            for extent in &extents {
                assert!(op == Op::Describe && (extent.bytes > 0 || bytes == 0), "{}: {extents:?}", self.name);
                assert!(!extent.is_hole || extent.is_zero, "{}: {extents:?}", self.name);
                if extent.is_zero {
                    self.hold(at as usize, &vec![0; extent.bytes as usize]);
                }
                at += extent.bytes;
            }
            assert!(
                at <= offset + bytes && (at > offset || op != Op::Describe || bytes == 0),
                "{}: {extents:?}",
                self.name
            );
        }
        assert_eq!(self.waited.store.in_flight(), self.flights.len(), "{}", self.name);
    }

    fn hold(&self, offset: usize, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let right = *byte == self.model[at] || (self.trimmed[at] && *byte == 0);
            assert!(right, "{}: byte {at} is {byte} and not {}", self.name, self.model[at]);
        }
    }

    fn poll(&mut self) {
        let mut done = Vec::new();
        self.waited.store.completed(&mut done);
        self.judge(done);
    }

    fn wait(&mut self) {
        let done = self.waited.wait();
        assert_eq!(done.is_empty(), self.flights.is_empty(), "{}", self.name);
        self.judge(done);
    }

    pub fn compare(&mut self) {
        while !self.flights.is_empty() {
            self.wait();
        }
        let bytes = self.waited.read(0, self.model.len() as u64).unwrap();
        self.hold(0, &bytes);
    }

    pub fn run(&mut self, steps: &[Step]) {
        let size = self.model.len() as u64;
        for step in steps {
            match *step {
                Step::Request { op: Op::Flush, .. } => self.submit(Op::Flush, 0, 0, false),
                Step::Request { op, at, measure, bytes, slack } => {
                    let offset = (at.wrapping_mul(measure) % (size + 1)).min(size);
                    self.submit(op, offset, (offset + bytes).min(size), slack);
                }
                Step::Poll => self.poll(),
                Step::Wait => self.wait(),
                Step::Reopen => {
                    while !self.flights.is_empty() {
                        self.wait();
                    }
                    assert_eq!(self.waited.flush(), Ok(()), "{}", self.name);
                    self.waited = Waited::new(Box::new(tiermem_tier::backing::MemoryStore::new(0).open()));
                    self.waited = Waited::new(self.volume.open(false));
                    self.compare();
                }
            }
        }
        self.compare();
    }
}
