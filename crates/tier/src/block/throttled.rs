//! Throttled device: adds a fixed latency and a bandwidth limit, in wall time, to the inner device.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::{BlockError, BlockIo, Completion, Delays, OpenError, Request, Waker};

/// The wrapper. No completion is taken before its [`Delays`] have passed. `write_at`, `read_at` and `sync` are as fast as they
/// are.
pub struct Throttled<B> {
    inner: B,
    delays: Delays<Completion>,
    arrived: Vec<Completion>,
}

impl<B: BlockIo> Throttled<B> {
    /// Wraps a device. An infinite or not positive bandwidth is no limit.
    pub fn new(inner: B, latency: Duration, bytes_per_s: f64) -> Self {
        Throttled { inner, delays: Delays::new(latency, bytes_per_s), arrived: Vec::new() }
    }
}

impl<B: BlockIo> BlockIo for Throttled<B> {
    fn submit(&mut self, mut request: Request) {
        request.token = self.delays.depart(request.token, request.buffer.len() as u64);
        self.inner.submit(request);
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.inner.completed(&mut self.arrived);
        for completion in self.arrived.drain(..) {
            self.delays.arrive(completion.token, |token| Completion { token, ..completion });
        }
        self.delays.take(out);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        let before = out.len();
        loop {
            self.completed(out);
            if out.len() > before || self.in_flight() == 0 {
                return;
            }
            match self.delays.next_due() {
                Some(due) => std::thread::sleep(due.saturating_duration_since(Instant::now())),
                None => self.inner.wait(&mut self.arrived),
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.delays.in_flight()
    }

    fn notify(&mut self, waker: Waker) {
        self.inner.notify(waker.clone());
        self.delays.notify(waker);
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.inner.pollable()
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

    fn grow(&mut self, capacity_bytes: u64) -> Result<(), OpenError> {
        self.inner.grow(capacity_bytes)
    }

    fn describe(&self) -> &'static str {
        "a throttled device"
    }
}
