//! Counting device: counts requests and bytes, for `INFO`, metrics and write amplification.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use hdrhistogram::Histogram;
use slab::Slab;

use super::{BlockError, BlockIo, Completion, Op, OpenError, Request, Waker};

/// Counters since the device was wrapped.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Requests to read that are done, failed ones too.
    pub reads: u64,
    /// Requests to write that are done, failed ones too.
    pub writes: u64,
    /// Requests to sync that are done, and calls of `sync`, failed ones too.
    pub syncs: u64,
    /// Bytes that requests have read.
    pub read_bytes: u64,
    /// Bytes that requests have written.
    pub written_bytes: u64,
    /// Bytes that `read_at` has read.
    pub small_read_bytes: u64,
    /// Bytes that `write_at` has written.
    pub small_written_bytes: u64,
    /// Requests and calls that failed.
    pub errors: u64,
    /// Nanoseconds from submission until the completion was taken, of reads.
    pub read_latency_ns: Histogram<u64>,
    /// Nanoseconds from submission until the completion was taken, of writes.
    pub write_latency_ns: Histogram<u64>,
}

impl Default for Counters {
    fn default() -> Self {
        // From a microsecond to a minute, to 1%; what lies outside counts as the nearest.
        let empty = || Histogram::new_with_bounds(1_000, 60_000_000_000, 2).expect("bounds in order");
        Counters {
            reads: 0,
            writes: 0,
            syncs: 0,
            read_bytes: 0,
            written_bytes: 0,
            small_read_bytes: 0,
            small_written_bytes: 0,
            errors: 0,
            read_latency_ns: empty(),
            write_latency_ns: empty(),
        }
    }
}

/// The wrapper. It reads the clock once per submission and once per batch of completions.
pub struct Counted<B> {
    inner: B,
    counters: Counters,
    /// The token and the time of submission, of requests in `inner`.
    flights: Slab<(u64, Instant)>,
}

impl<B: BlockIo> Counted<B> {
    /// Wraps a device.
    pub fn new(inner: B) -> Self {
        Counted { inner, counters: Counters::default(), flights: Slab::new() }
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The device beneath.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// The device beneath, to change; requests made there are not counted and must be taken there.
    pub fn inner_mut(&mut self) -> &mut B {
        &mut self.inner
    }

    fn depart(&mut self, request: &mut Request, now: Instant) {
        request.token = self.flights.insert((request.token, now)) as u64;
    }

    fn arrive(&mut self, batch: &mut [Completion]) {
        if batch.is_empty() {
            return;
        }
        let now = Instant::now();
        let counters = &mut self.counters;
        for completion in batch {
            let (token, submitted) = self.flights.remove(completion.token as usize);
            completion.token = token;
            let len_bytes = if completion.result.is_ok() { completion.buffer.len() as u64 } else { 0 };
            counters.errors += u64::from(completion.result.is_err());
            let latency_ns = now.saturating_duration_since(submitted).as_nanos() as u64;
            match completion.op {
                Op::Read => {
                    counters.reads += 1;
                    counters.read_bytes += len_bytes;
                    counters.read_latency_ns.saturating_record(latency_ns);
                }
                Op::Write => {
                    counters.writes += 1;
                    counters.written_bytes += len_bytes;
                    counters.write_latency_ns.saturating_record(latency_ns);
                }
                Op::Sync => counters.syncs += 1,
            }
        }
    }
}

impl<B: BlockIo> BlockIo for Counted<B> {
    fn submit(&mut self, mut request: Request) {
        self.depart(&mut request, Instant::now());
        self.inner.submit(request);
    }

    fn submit_all(&mut self, requests: &mut Vec<Request>) {
        let now = Instant::now();
        for request in requests.iter_mut() {
            self.depart(request, now);
        }
        self.inner.submit_all(requests);
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        let before = out.len();
        self.inner.completed(out);
        self.arrive(&mut out[before..]);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        let before = out.len();
        self.inner.wait(out);
        self.arrive(&mut out[before..]);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn notify(&mut self, waker: Waker) {
        self.inner.notify(waker);
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.inner.pollable()
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let result = self.inner.write_at(offset, bytes);
        match result {
            Ok(()) => self.counters.small_written_bytes += bytes.len() as u64,
            Err(_) => self.counters.errors += 1,
        }
        result
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        let result = self.inner.read_at(offset, bytes);
        match result {
            Ok(()) => self.counters.small_read_bytes += bytes.len() as u64,
            Err(_) => self.counters.errors += 1,
        }
        result
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        let result = self.inner.sync();
        self.counters.syncs += 1;
        self.counters.errors += u64::from(result.is_err());
        result
    }

    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }

    fn grow(&mut self, capacity_bytes: u64) -> Result<(), OpenError> {
        self.inner.grow(capacity_bytes)
    }

    fn describe(&self) -> &'static str {
        self.inner.describe()
    }
}
