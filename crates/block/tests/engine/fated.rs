//! Device that holds back or fails some of its requests, as a test chooses.
#![allow(clippy::unwrap_used, dead_code)] // Helpers of tests are tests; each test uses some of them.

use std::sync::{Arc, Mutex};

use tiermem_tier::block::{BlockError, BlockIo, Completion, Request, Waker};

/// What happens to requests.
#[derive(Clone, Copy, PartialEq)]
pub enum Fate {
    Done,
    Held,
    Failed,
}

struct State {
    fate: Fate,
    concerns: fn(&Request) -> bool,
    held: Vec<Request>,
    /// Requests held now complete at the next look.
    releases: bool,
}

/// Decides over a device's requests.
#[derive(Clone)]
pub struct Fates(Arc<Mutex<State>>);

impl Fates {
    /// From now on, for the requests that it concerns; the others are done. What is held is so no more where the fate is another one.
    pub fn set(&self, fate: Fate, concerns: fn(&Request) -> bool) {
        let mut state = self.0.lock().unwrap();
        (state.fate, state.concerns) = (fate, concerns);
        state.releases |= fate != Fate::Held;
    }

    /// The bytes of each request held now.
    pub fn held_bytes(&self) -> Vec<usize> {
        self.0.lock().unwrap().held.iter().map(|request| request.buffer.len()).collect()
    }

    /// Releases the requests held now; returns whether there were any.
    pub fn release(&self) -> bool {
        let mut state = self.0.lock().unwrap();
        state.releases = true;
        !state.held.is_empty()
    }
}

pub struct Fated<B> {
    inner: B,
    fates: Fates,
    failed: Vec<Completion>,
}

impl<B: BlockIo> Fated<B> {
    pub fn new(inner: B) -> (Self, Fates) {
        let state = State { fate: Fate::Done, concerns: |_| true, held: Vec::new(), releases: false };
        let fates = Fates(Arc::new(Mutex::new(state)));
        (Fated { inner, fates: fates.clone(), failed: Vec::new() }, fates)
    }
}

impl<B: BlockIo> BlockIo for Fated<B> {
    fn submit(&mut self, request: Request) {
        let mut state = self.fates.0.lock().unwrap();
        match state.fate {
            Fate::Held if (state.concerns)(&request) => state.held.push(request),
            Fate::Failed if (state.concerns)(&request) => {
                let Request { token, op, offset, buffer } = request;
                let result = Err(BlockError::device(op, offset, buffer.len()));
                self.failed.push(Completion { token, op, offset, buffer, result });
            }
            _ => self.inner.submit(request),
        }
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        let mut state = self.fates.0.lock().unwrap();
        let released =
            if std::mem::take(&mut state.releases) { std::mem::take(&mut state.held) } else { Vec::new() };
        let is_failed = state.fate == Fate::Failed;
        drop(state);
        for request in released {
            if is_failed { self.submit(request) } else { self.inner.submit(request) }
        }
        out.append(&mut self.failed);
        self.inner.completed(out);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        self.completed(out);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.failed.len() + self.fates.0.lock().unwrap().held.len()
    }

    fn notify(&mut self, waker: Waker) {
        self.inner.notify(waker);
    }

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
