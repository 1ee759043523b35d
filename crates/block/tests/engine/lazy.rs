//! Devices and stores that do what they are asked whenever they like, in any order.

use std::sync::{Arc, Mutex};

use tiermem_base::Rng;
use tiermem_block::backing::{self, Backing, BackingError, Identity};
use tiermem_tier::block::{self, BlockError, BlockIo};

/// What the world outside may do to a lazy one.
#[derive(Debug, Default)]
pub struct Switches {
    /// Nothing is done.
    pub hangs: bool,
    /// Of a thousand requests, so many fail without having been done, or having been done.
    pub failures_per_mille: u64,
}

/// Holds requests back and does some of them, in any order, at each look.
pub struct Lazy<T, R> {
    pub inner: T,
    held: Vec<R>,
    rng: Rng,
    switches: Arc<Mutex<Switches>>,
}

impl<T, R> Lazy<T, R> {
    pub fn new(inner: T, seed: u64) -> (Self, Arc<Mutex<Switches>>) {
        let switches = Arc::<Mutex<Switches>>::default();
        (Lazy { inner, held: Vec::new(), rng: Rng::seeded(seed), switches: Arc::clone(&switches) }, switches)
    }

    /// Requests whose turn it is, and whether each fails.
    fn turn(&mut self) -> Vec<(R, bool)> {
        let Switches { hangs, failures_per_mille } = *self.switches.lock().unwrap();
        let mut turn = Vec::new();
        let count = if hangs { 0 } else { self.rng.below(self.held.len() as u64 + 1) };
        for _ in 0..count {
            let at = self.rng.below(self.held.len() as u64) as usize;
            turn.push((self.held.swap_remove(at), self.rng.below(1000) < failures_per_mille));
        }
        turn
    }
}

impl<B: BlockIo> BlockIo for Lazy<B, block::Request> {
    fn submit(&mut self, request: block::Request) {
        self.held.push(request);
    }

    fn completed(&mut self, out: &mut Vec<block::Completion>) {
        for (request, fails) in self.turn() {
            let (op, offset, len_bytes) = (request.op, request.offset, request.buffer.len() as u64);
            self.inner.submit(request);
            let from = out.len();
            self.inner.completed(out);
            if fails {
                for completion in &mut out[from..] {
                    completion.result = Err(BlockError::Short { op, offset, len_bytes, done_bytes: 0 });
                }
            }
        }
    }

    fn wait(&mut self, out: &mut Vec<block::Completion>) {
        let from = out.len();
        while out.len() == from && !self.held.is_empty() {
            self.completed(out);
        }
    }

    fn in_flight(&self) -> usize {
        self.held.len()
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

impl<B: Backing> Backing for Lazy<B, backing::Request> {
    fn submit(&mut self, request: backing::Request) {
        self.held.push(request);
    }

    fn completed(&mut self, out: &mut Vec<backing::Completion>) {
        for (request, fails) in self.turn() {
            self.inner.submit(request);
            let from = out.len();
            self.inner.completed(out);
            if fails {
                for completion in &mut out[from..] {
                    completion.result = Err(BackingError::Failed("a fault that was asked for".to_owned()));
                }
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.held.len()
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
