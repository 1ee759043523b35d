//! Completion queue: delivers completions from worker threads to the submitter. It
//! serves devices and, as `C` is generic, other services that answer in this manner.
//!
//! A worker rings the *bell* after it has put completions in; the submitter silences it before it takes
//! them out, so the waker is called at most once between two takings. Every untaken completion is followed
//! by a rung bell: a worker puts in first and then rings; the submitter silences first and then takes out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{Completion, Waker};

#[derive(Default)]
/// Wakes the submitter that waits for completions, once per batch.
pub struct Bell {
    rung: AtomicBool,
    listeners: Mutex<Listeners>,
    sleeper: Condvar,
}

#[derive(Default)]
struct Listeners {
    waker: Option<Waker>,
    /// The asker sleeps until the bell rings.
    asleep: bool,
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rings, and calls the waker unless the bell rings already.
    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            let listeners = self.lock();
            let (waker, asleep) = (listeners.waker.clone(), listeners.asleep);
            drop(listeners);
            if asleep {
                self.sleeper.notify_one();
            }
            if let Some(waker) = waker {
                waker();
            }
        }
    }

    /// Silences the bell; true if it was rung.
    pub fn silence(&self) -> bool {
        // The load alone spares the cache line when nothing has happened.
        self.rung.load(Ordering::Acquire) && self.rung.swap(false, Ordering::AcqRel)
    }

    /// Sleeps until the bell rings, then silences it. The whole batch is there then, where the first completion alone
    /// would wake a sleeper on the channel.
    fn sleep(&self) {
        let mut listeners = self.lock();
        while !self.silence() {
            listeners.asleep = true;
            listeners = self.sleeper.wait(listeners).unwrap_or_else(PoisonError::into_inner);
            listeners.asleep = false;
        }
    }

    /// Sets the waker, and calls it if the bell rings already.
    pub fn set(&self, waker: Waker) {
        self.lock().waker = Some(waker.clone());
        if self.rung.load(Ordering::Acquire) {
            waker();
        }
    }
}

/// A worker's end.
pub struct CompletionSender<C = Completion> {
    sender: Sender<C>,
    bell: Arc<Bell>,
}

impl<C> Clone for CompletionSender<C> {
    fn clone(&self) -> Self {
        CompletionSender { sender: self.sender.clone(), bell: self.bell.clone() }
    }
}

impl<C> CompletionSender<C> {
    /// Calls though there is nothing: something else has changed.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Hands over a batch.
    pub fn put(&self, batch: impl IntoIterator<Item = C>) {
        let mut any = false;
        for completion in batch {
            // The submitter is gone and does not want it.
            any |= self.sender.send(completion).is_ok();
        }
        if any {
            self.bell.ring();
        }
    }
}

/// The asker's end, which also counts what is in flight.
pub struct CompletionReceiver<C = Completion> {
    receiver: Receiver<C>,
    bell: Arc<Bell>,
    /// Requests submitted and not taken back.
    pub in_flight: usize,
}

/// The two ends of a new way.
pub fn completion_queue<C>() -> (CompletionSender<C>, CompletionReceiver<C>) {
    let (sender, receiver) = channel();
    let bell = Arc::new(Bell::default());
    (CompletionSender { sender, bell: bell.clone() }, CompletionReceiver { receiver, bell, in_flight: 0 })
}

impl<C> CompletionReceiver<C> {
    /// Appends what is there; never blocks.
    pub fn completed(&mut self, out: &mut Vec<C>) {
        if self.bell.silence() {
            self.take(out);
        }
    }

    /// Waits until something is there or nothing is in flight, and appends it.
    pub fn wait(&mut self, out: &mut Vec<C>) {
        let before = out.len();
        self.completed(out);
        while out.len() == before && self.in_flight > 0 {
            self.bell.sleep();
            self.take(out);
        }
    }

    /// Sets the waker.
    pub fn notify(&self, waker: Waker) {
        self.bell.set(waker);
    }

    fn take(&mut self, out: &mut Vec<C>) {
        let before = out.len();
        out.extend(self.receiver.try_iter());
        self.in_flight -= out.len() - before;
    }
}
