//! io_uring backend: requests done through io_uring by a thread of its own.
//!
//! The thread takes requests from a lock-free queue, hands all of them to the kernel with one system call and waits
//! in that call for completions. It sets `asleep` before it sleeps; only then does a submitter ring its bell, and
//! only the first one, so a batch costs its submitter one system call, or none while the thread is awake.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use tiermem_sys::uring::{Bell, Ring};

use super::completion_queue::{CompletionSender, completion_queue};
use super::file::BlockFile;
use super::flight::{ENTRIES, Flight};
use super::served::{ServedFile, Workers};
use super::{BlockError, Completion, OpenError, Request};

/// A file or block device with requests done through io_uring.
pub type UringFile = ServedFile<UringThread>;

/// The way to the thread that has the ring.
pub struct UringThread {
    /// `None` only while it is dropped.
    queue: Option<Sender<Request>>,
    asleep: Arc<AtomicBool>,
    bell: Bell,
    thread: Option<JoinHandle<()>>,
}

impl UringFile {
    /// Opens `path` as [`open`](super::open) does.
    pub fn open(path: &Path, capacity_bytes: u64) -> Result<Self, OpenError> {
        let file = Arc::new(BlockFile::open(path, capacity_bytes)?);
        Self::with_ring(file).map_err(|source| OpenError::Uring { path: path.to_owned(), source })
    }

    /// An error where io_uring cannot be used.
    pub(super) fn with_ring(file: Arc<BlockFile>) -> io::Result<Self> {
        let (completion_sender, completion_receiver) = completion_queue();
        let (queue, requests) = channel();
        let asleep = Arc::new(AtomicBool::new(false));
        let bell = Bell::new()?;
        // The ring belongs to its thread, which reports here whether it could be created.
        let (tell, told) = channel();
        let work = {
            let (file, asleep, completion_sender, bell) =
                (file.clone(), asleep.clone(), completion_sender.clone(), bell.clone());
            move || match Ring::new(file.requests.clone(), ENTRIES, bell) {
                Ok(ring) => {
                    let _ = tell.send(Ok(()));
                    Thread { file, requests, asleep, completion_sender, open: true }.run(ring);
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        };
        let thread = std::thread::Builder::new().name("block-io".to_owned()).spawn(work)?;
        if let Err(error) = told.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended"))) {
            // The thread has a share of the file, and with it of the lock, until its end.
            let _ = thread.join();
            return Err(error);
        }
        let workers = UringThread { queue: Some(queue), asleep, bell, thread: Some(thread) };
        Ok(ServedFile::new(file, workers, (completion_sender, completion_receiver)))
    }
}

impl Workers for UringThread {
    const WORDS: [&'static str; 2] = ["io_uring, past the page cache", "io_uring, through the page cache"];

    fn take(&mut self, requests: &mut dyn Iterator<Item = Request>, refuse: &mut dyn FnMut(Completion)) {
        for request in requests {
            if let Some(Err(lost)) = self.queue.as_ref().map(|queue| queue.send(request)) {
                let lost = lost.0;
                let error = BlockError::device(lost.op, lost.offset, lost.buffer.len());
                refuse(lost.done(Err(error)));
            }
        }
        self.wake();
    }
}

impl UringThread {
    fn wake(&self) {
        // Pairs with the thread's: either it sees the request that was just queued, or we see that it sleeps.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.bell.ring();
        }
    }
}

struct Thread {
    file: Arc<BlockFile>,
    requests: Receiver<Request>,
    asleep: Arc<AtomicBool>,
    completion_sender: CompletionSender,
    /// False once there will be no more requests.
    open: bool,
}

impl Thread {
    fn run(mut self, mut ring: Ring<Flight>) {
        let (mut batch, mut again) = (Vec::new(), Vec::new());
        loop {
            self.gather(&mut ring);
            if !self.open && ring.in_flight() == 0 {
                return;
            }
            // With the ring full no submitter need wake us: a completion will.
            if self.open && !ring.is_full() {
                self.asleep.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if self.gather(&mut ring) || !self.open {
                    self.asleep.store(false, Ordering::Relaxed);
                    continue;
                }
            }
            let entered = ring.enter(true);
            self.asleep.store(false, Ordering::Relaxed);
            ring.take(|done| match Flight::judge(&self.file, done) {
                Ok(completion) => batch.push(completion),
                Err(unfinished) => again.push(unfinished),
            });
            for (flight, buffer) in again.drain(..) {
                flight.push(&mut ring, buffer);
            }
            self.completion_sender.put(batch.drain(..));
            if entered.is_err() {
                return self.fail(ring);
            }
        }
    }

    /// Moves requests from the queue to the ring while it has room; true if there were any.
    fn gather(&mut self, ring: &mut Ring<Flight>) -> bool {
        let before = ring.in_flight();
        while !ring.is_full() {
            match self.requests.try_recv() {
                Ok(request) => Flight::begin(request, ring),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.open = false;
                    break;
                }
            }
        }
        ring.in_flight() > before
    }

    /// The ring is broken: all that is in flight, and all that will ever come, ends in an error.
    fn fail(&self, ring: Ring<Flight>) {
        self.completion_sender.put(ring.abandon().into_iter().map(Flight::fail));
        for request in &self.requests {
            let result = Err(BlockError::device(request.op, request.offset, request.buffer.len()));
            self.completion_sender.put([request.done(result)]);
        }
    }
}

impl Drop for UringThread {
    /// Waits for what is in flight.
    fn drop(&mut self) {
        self.queue = None;
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
