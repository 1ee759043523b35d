//! Delays of completions in wall time: a fixed latency and a bandwidth, for any kind of request.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use slab::Slab;

use super::Waker;

/// The delays of requests with completions `C`. Bytes pass one after another
/// at the bandwidth, then the latency passes, for all requests at once.
pub struct Delays<C> {
    latency: Duration,
    bytes_per_s: f64,
    /// When the bytes of all requests so far have passed.
    free_at: Instant,
    /// The token and when it is due, of requests that have departed.
    flights: Slab<(u64, Instant)>,
    /// Done and not due yet.
    held: Vec<(Instant, C)>,
    /// To a thread that calls the waker when a request is due.
    timer: Option<Sender<Instant>>,
}

impl<C> Delays<C> {
    /// An infinite or not positive bandwidth is no limit.
    pub fn new(latency: Duration, bytes_per_s: f64) -> Self {
        let (flights, held) = (Slab::new(), Vec::new());
        Delays { latency, bytes_per_s, free_at: Instant::now(), flights, held, timer: None }
    }

    /// A request sets out; gives the token to use instead of its own.
    pub fn depart(&mut self, token: u64, bytes: u64) -> u64 {
        let passing = Duration::try_from_secs_f64(bytes as f64 / self.bytes_per_s).unwrap_or_default();
        self.free_at = self.free_at.max(Instant::now()) + passing;
        let due = self.free_at + self.latency;
        if let Some(timer) = &self.timer {
            let _ = timer.send(due);
        }
        self.flights.insert((token, due)) as u64
    }

    /// A request is done; `completion` makes its completion of its own token.
    ///
    /// # Panics
    ///
    /// When `departed` was not given by [`Self::depart`], or has arrived before.
    pub fn arrive(&mut self, departed: u64, completion: impl FnOnce(u64) -> C) {
        let (token, due) = self.flights.remove(departed as usize);
        self.held.push((due, completion(token)));
    }

    /// Appends what is due.
    pub fn take(&mut self, out: &mut Vec<C>) {
        if !self.held.is_empty() {
            let now = Instant::now();
            out.extend(self.held.extract_if(.., |(due, _)| *due <= now).map(|(_, completion)| completion));
        }
    }

    /// When the first completed request is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.held.iter().map(|(due, _)| *due).min()
    }

    /// Requests that have departed and were not taken.
    pub fn in_flight(&self) -> usize {
        self.flights.len() + self.held.len()
    }

    /// Sets the waker to call when a request is due.
    pub fn notify(&mut self, waker: Waker) {
        // Requests are due in the order of their departure, so the timer sleeps from one to the next.
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
        // It ends after this is dropped or has another waker. If no thread can
        // be started, the caller learns of a completion only with the next one.
        let started = std::thread::Builder::new().name("block-timer".to_owned()).spawn(alarm).is_ok();
        self.timer = started.then_some(timer);
    }
}
