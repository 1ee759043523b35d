//! Throttled store: adds a fixed latency and a bandwidth limit, in wall time, to the inner store.

use std::time::Duration;

use crate::block::Delays;

use super::{Backing, BackingError, Completion, Identity, Op, Request, StoreLabel, Waker};

/// The wrapper. No completion is taken before its [`Delays`] have passed. A flush, a trim and a zero have the latency, and move no
/// bytes.
pub struct Throttled<B> {
    inner: B,
    delays: Delays<Completion>,
    words: String,
    arrived: Vec<Completion>,
}

impl<B: Backing> Throttled<B> {
    /// Wraps a store. An infinite or not positive bandwidth is no limit.
    pub fn new(inner: B, latency: Duration, bytes_per_s: f64) -> Self {
        let words = if bytes_per_s.is_finite() && bytes_per_s > 0.0 {
            format!("delayed by {latency:?} and {bytes_per_s} bytes/s")
        } else {
            format!("delayed by {latency:?}")
        };
        Throttled { inner, delays: Delays::new(latency, bytes_per_s), words, arrived: Vec::new() }
    }
}

impl<B: Backing> Backing for Throttled<B> {
    fn submit(&mut self, mut request: Request) {
        // A request that will be refused for its length moves no more than it could.
        let moved = match request.op {
            Op::Read | Op::Write => request.bytes.min(request.buffer.len() as u64),
            _ => 0,
        };
        request.token = self.delays.depart(request.token, moved);
        self.inner.submit(request);
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.inner.completed(&mut self.arrived);
        for completion in self.arrived.drain(..) {
            self.delays.arrive(completion.token, |token| Completion { token, ..completion });
        }
        self.delays.take(out);
    }

    fn in_flight(&self) -> usize {
        self.delays.in_flight()
    }

    fn notify(&mut self, waker: Waker) {
        self.inner.notify(waker.clone());
        self.delays.notify(waker);
    }

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

    fn label(&mut self) -> Result<StoreLabel, BackingError> {
        self.inner.label()
    }

    fn set_label(&mut self, text: &str) -> Result<(), BackingError> {
        self.inner.set_label(text)
    }

    fn describe(&self) -> String {
        format!("{}, {}", self.inner.describe(), self.words)
    }
}
