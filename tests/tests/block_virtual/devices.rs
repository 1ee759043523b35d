//! A clock that a test sets, and devices and stores that complete what they are asked a while after its submission.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use tiermem_block::backing::{self, Backing, BackingError, Identity};
use tiermem_tier::block::{self, BlockError, BlockIo};

#[derive(Debug, Default)]
struct State {
    now_ns: u64,
    /// When something is done, of which device, and its number there.
    done: BTreeSet<(u64, u32, u64)>,
}

/// The one clock. Its clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<Mutex<State>>);

impl Clock {
    pub fn now_ns(&self) -> u64 {
        self.0.lock().unwrap().now_ns
    }

    /// It never goes back.
    pub fn set(&self, now_ns: u64) {
        let mut state = self.0.lock().unwrap();
        state.now_ns = state.now_ns.max(now_ns);
    }

    /// When the next request is done that is not taken yet.
    pub fn next_done_ns(&self) -> Option<u64> {
        self.0.lock().unwrap().done.first().map(|(at_ns, ..)| *at_ns)
    }
}

/// A device or a store, `C` its completions. A request takes effect at once, and is told to be done later.
pub struct Delayed<T, C> {
    inner: T,
    clock: Clock,
    number: u32,
    delay_ns: u64,
    /// When it fails what changes something.
    away: Vec<Range<u64>>,
    submitted: u64,
    done: VecDeque<(u64, u64, C)>,
}

impl<T, C> Delayed<T, C> {
    pub fn new(inner: T, clock: &Clock, number: u32, delay_ns: u64, away: Vec<Range<u64>>) -> Self {
        Delayed { inner, clock: clock.clone(), number, delay_ns, away, submitted: 0, done: VecDeque::new() }
    }

    fn is_away(&self) -> bool {
        let now_ns = self.clock.now_ns();
        self.away.iter().any(|times| times.contains(&now_ns))
    }

    fn keep(&mut self, completions: Vec<C>) {
        let mut state = self.clock.0.lock().unwrap();
        for completion in completions {
            self.submitted += 1;
            let at_ns = state.now_ns + self.delay_ns;
            state.done.insert((at_ns, self.number, self.submitted));
            self.done.push_back((at_ns, self.submitted, completion));
        }
    }

    fn take(&mut self, out: &mut Vec<C>) {
        let mut state = self.clock.0.lock().unwrap();
        while let Some((at_ns, ..)) = self.done.front()
            && *at_ns <= state.now_ns
        {
            let (at_ns, submitted, completion) = self.done.pop_front().unwrap();
            state.done.remove(&(at_ns, self.number, submitted));
            out.push(completion);
        }
    }
}

impl<B: BlockIo> BlockIo for Delayed<B, block::Completion> {
    fn submit(&mut self, request: block::Request) {
        let mut done = Vec::new();
        self.inner.submit(request);
        self.inner.completed(&mut done);
        self.keep(done);
    }

    fn completed(&mut self, out: &mut Vec<block::Completion>) {
        self.take(out);
    }

    fn wait(&mut self, out: &mut Vec<block::Completion>) {
        self.take(out);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn notify(&mut self, _: block::Waker) {}

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.inner.write_at(offset, bytes)
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        self.inner.read_at(offset, bytes)
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        self.inner.sync()
    }

    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }
}

impl<B: Backing> Backing for Delayed<B, backing::Completion> {
    fn submit(&mut self, request: backing::Request) {
        let fails = self.is_away() && request.op != backing::Op::Read;
        let mut done = Vec::new();
        self.inner.submit(request);
        self.inner.completed(&mut done);
        if fails {
            for completion in &mut done {
                completion.result = Err(BackingError::Failed("it is away".to_owned()));
            }
        }
        self.keep(done);
    }

    fn completed(&mut self, out: &mut Vec<backing::Completion>) {
        self.take(out);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn notify(&mut self, _: backing::Waker) {}

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn session(&self) -> u64 {
        self.inner.session()
    }

    fn identity(&mut self) -> Identity {
        self.inner.identity()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}
