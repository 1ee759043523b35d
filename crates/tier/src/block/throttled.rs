//! A slower device: a fixed latency and a bandwidth, in wall time, on top of what the device beneath takes.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use slab::Slab;

use super::{BlockError, BlockIo, Completion, Request, Waker};

/// The wrapper. Bytes pass one after the other at the bandwidth, then the latency passes, of all requests at once; no
/// completion is taken before. `write_at`, `read_at` and `sync` are as fast as they are.
pub struct Throttled<B> {
    inner: B,
    latency: Duration,
    bytes_per_s: f64,
    /// When the bytes of all requests so far have passed.
    free_at: Instant,
    /// The token and when it is due, of requests in `inner`.
    flights: Slab<(u64, Instant)>,
    arrived: Vec<Completion>,
    /// Done by `inner` and not due yet.
    held: Vec<(Instant, Completion)>,
    /// To a thread that calls the waker when a request is due.
    timer: Option<Sender<Instant>>,
}

impl<B: BlockIo> Throttled<B> {
    /// Wraps a device. An infinite or not positive bandwidth is no limit.
    pub fn new(inner: B, latency: Duration, bytes_per_s: f64) -> Self {
        let (flights, arrived, held) = (Slab::new(), Vec::new(), Vec::new());
        Throttled {
            inner,
            latency,
            bytes_per_s,
            free_at: Instant::now(),
            flights,
            arrived,
            held,
            timer: None,
        }
    }

    /// When a request of this length, submitted now, is due.
    fn due(&mut self, len: usize) -> Instant {
        let passing = Duration::try_from_secs_f64(len as f64 / self.bytes_per_s).unwrap_or_default();
        self.free_at = self.free_at.max(Instant::now()) + passing;
        self.free_at + self.latency
    }

    fn arrive(&mut self) {
        self.inner.completed(&mut self.arrived);
        for mut completion in self.arrived.drain(..) {
            let (token, due) = self.flights.remove(completion.token as usize);
            completion.token = token;
            self.held.push((due, completion));
        }
    }
}

impl<B: BlockIo> BlockIo for Throttled<B> {
    fn submit(&mut self, mut request: Request) {
        let due = self.due(request.buffer.len());
        if let Some(timer) = &self.timer {
            let _ = timer.send(due);
        }
        request.token = self.flights.insert((request.token, due)) as u64;
        self.inner.submit(request);
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.arrive();
        if self.held.is_empty() {
            return;
        }
        let now = Instant::now();
        out.extend(self.held.extract_if(.., |(due, _)| *due <= now).map(|(_, completion)| completion));
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        let before = out.len();
        loop {
            self.completed(out);
            if out.len() > before || self.in_flight() == 0 {
                return;
            }
            match self.held.iter().map(|(due, _)| *due).min() {
                Some(due) => std::thread::sleep(due.saturating_duration_since(Instant::now())),
                None => self.inner.wait(&mut self.arrived),
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.held.len()
    }

    fn notify(&mut self, waker: Waker) {
        self.inner.notify(waker.clone());
        // Requests are due in the order of their submission, so the timer sleeps from one to the next.
        let (timer, dues) = channel::<Instant>();
        let in_flight = self.flights.iter().map(|(_, (_, due))| *due);
        let mut known: Vec<Instant> = in_flight.chain(self.held.iter().map(|(due, _)| *due)).collect();
        known.sort_unstable();
        for due in known {
            let _ = timer.send(due);
        }
        let alarm = move || {
            for due in dues {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                waker();
            }
        };
        // It ends after the device is gone or has another waker. Were there no thread to be had, the caller would hear of a
        // completion only with the next one.
        let started = std::thread::Builder::new().name("block-timer".to_owned()).spawn(alarm).is_ok();
        self.timer = started.then_some(timer);
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

    fn describe(&self) -> &'static str {
        "a throttled device"
    }
}
