//! Slow disks for tests: outcomes come late, out of order, from another thread, and some are failures.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tiermem_tier::block::AlignedBuffer;

use super::{Disks, Job, Outcome, Waker};
use crate::nbd::{Errno, Export};

/// Outcomes that wait for company to be shuffled with.
const SHUFFLED: usize = 8;
/// Time that they wait for it.
const PATIENCE: Duration = Duration::from_millis(1);

/// Injected faults and delays.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// Draws the order of jobs and the failures.
    pub seed: u64,
    /// One in this number of jobs fails with an I/O error before it has any effect; 0: none.
    pub fail_one_in: u64,
    /// Disks with jobs that wait until the gate opens.
    pub gated: HashSet<usize>,
}

/// Holds outcomes back until it is opened.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Opens the gate, now and for later jobs.
    pub fn open(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let closed = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.1.wait_while(closed, |open| !*open).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Disks that delay the outcomes of others through another thread. Their effects happen at once.
pub struct SlowDisks<D> {
    inner: D,
    trouble: Trouble,
    draws: u64,
    gate: Gate,
    now: Vec<Outcome>,
    late: Option<[Sender<Outcome>; 2]>,
    back: Receiver<Outcome>,
    waker: Arc<Mutex<Option<Waker>>>,
    threads: Vec<JoinHandle<()>>,
}

/// A number that looks like chance and follows from the one before.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 29
}

/// Shuffles the outcomes received and passes them on, until all senders are gone.
fn shuffle(mut seed: u64, from: &Receiver<Outcome>, to: &Sender<Outcome>, waker: &Mutex<Option<Waker>>) {
    let mut held: Vec<Outcome> = Vec::new();
    let mut ended = false;
    while !ended || !held.is_empty() {
        let full = held.len() >= SHUFFLED;
        match from.recv_timeout(if full || ended { Duration::ZERO } else { PATIENCE }) {
            Ok(outcome) => {
                held.push(outcome);
                if !full {
                    continue;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => ended = true,
        }
        if held.is_empty() {
            continue;
        }
        let at = draw(&mut seed) as usize % held.len();
        // The receiver may be gone with the disks.
        let _ = to.send(held.swap_remove(at));
        if let Some(waker) = &*waker.lock().unwrap_or_else(PoisonError::into_inner) {
            waker();
        }
    }
}

impl<D: Disks> SlowDisks<D> {
    /// Makes `inner` slow.
    pub fn new(inner: D, trouble: Trouble) -> Self {
        let (gate, waker) = (Gate::default(), Arc::new(Mutex::new(None)));
        let (back_to, back) = channel();
        let ((late, late_from), (gated, gated_from)) = (channel(), channel());
        let mut threads = Vec::new();
        for (from, gate) in [(late_from, None), (gated_from, Some(gate.clone()))] {
            let (to, waker, seed) = (back_to.clone(), Arc::clone(&waker), trouble.seed);
            threads.push(std::thread::spawn(move || {
                if let Some(gate) = gate {
                    gate.wait();
                }
                shuffle(seed, &from, &to, &waker);
            }));
        }
        let (draws, late) = (trouble.seed, Some([late, gated]));
        SlowDisks { inner, trouble, draws, gate, now: Vec::new(), late, back, waker, threads }
    }

    /// The gate of the gated disks.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }
}

impl<D: Disks> Disks for SlowDisks<D> {
    fn exports(&self) -> &[Export] {
        self.inner.exports()
    }

    fn submit(&mut self, job: Job) {
        let gated = usize::from(self.trouble.gated.contains(&job.disk));
        let one_in = self.trouble.fail_one_in;
        if one_in > 0 && draw(&mut self.draws).is_multiple_of(one_in) {
            let result = Err((Errno::Io, "the disk is in trouble".to_owned()));
            self.now.push(Outcome { asker: job.asker, result });
        } else {
            self.inner.submit(job);
            self.inner.take(&mut self.now);
        }
        for outcome in self.now.drain(..) {
            if let Some(late) = &self.late {
                // The threads live until the senders are gone.
                let _ = late[gated].send(outcome);
            }
        }
    }

    fn take(&mut self, done: &mut Vec<Outcome>) {
        done.extend(self.back.try_iter());
    }

    fn notify(&mut self, waker: Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&waker));
        self.inner.notify(waker);
    }

    fn bytes_in_flight_max(&self) -> u64 {
        self.inner.bytes_in_flight_max()
    }

    fn lend(&mut self, bytes: usize) -> AlignedBuffer {
        self.inner.lend(bytes)
    }

    fn give_back(&mut self, buffer: AlignedBuffer) {
        self.inner.give_back(buffer);
    }
}

impl<D> Drop for SlowDisks<D> {
    fn drop(&mut self) {
        self.gate.open();
        self.late = None;
        for thread in self.threads.drain(..) {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}
