//! Timer that wakes the engine for work that no device completion announces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::disks::Waker;

/// How late a call comes at most, and how often they come.
pub(super) const TICK: Duration = Duration::from_millis(50);

const IDLE: u8 = 0;
const ARMED: u8 = 1;
const END: u8 = 2;

/// A thread that calls once, a tick after it was asked to.
#[derive(Debug)]
pub(super) struct Ticker {
    thread: Option<JoinHandle<()>>,
    state: Arc<AtomicU8>,
}

impl Ticker {
    /// One that never calls.
    pub(super) fn idle() -> Self {
        Ticker { thread: None, state: Arc::new(AtomicU8::new(IDLE)) }
    }

    /// One that calls `waker`. Where the system has no thread to give it never calls, and what is late waits for the next request.
    pub(super) fn start(waker: Waker) -> Self {
        let state = Arc::new(AtomicU8::new(IDLE));
        let shared = Arc::clone(&state);
        let run = move || {
            loop {
                match shared.load(Ordering::Acquire) {
                    END => return,
                    IDLE => thread::park(),
                    _ => {
                        let begin = Instant::now();
                        while shared.load(Ordering::Acquire) == ARMED
                            && let Some(left) = TICK.checked_sub(begin.elapsed())
                        {
                            thread::park_timeout(left);
                        }
                        if shared.compare_exchange(ARMED, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                            waker();
                        }
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("block-ticker".to_owned()).spawn(run).ok();
        Ticker { thread, state }
    }

    /// Asks for a call, unless one is on its way.
    pub(super) fn arm(&self) {
        if self.state.swap(ARMED, Ordering::AcqRel) == IDLE
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        if let Some(handle) = self.thread.take() {
            self.state.store(END, Ordering::Release);
            handle.thread().unpark();
            // It does nothing but sleep and call.
            let _ = handle.join();
        }
    }
}
