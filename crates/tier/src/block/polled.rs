//! io_uring backend on the caller's thread: requests go to the kernel with one system call when they are submitted, and
//! completions are taken from memory that the kernel shares.
//!
//! No other thread takes part, so a request costs no wake-up, neither on its way in nor out. A caller with an event loop waits for
//! the ring's descriptor among its others ([`BlockIo::pollable`]). What the kernel cannot begin at once it gives to threads of its own.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::yield_now;

use tiermem_sys::uring::{AnyThread, Ring};

use super::file::BlockFile;
use super::flight::{ENTRIES, Flight};
use super::{AlignedBuffer, BlockError, BlockIo, Completion, OpenError, Request, Waker};

/// A file or block device with requests done through io_uring by the thread that submits them.
pub struct PolledFile {
    /// `None` once it has failed. It waits for what is in flight when it is dropped.
    ring: Option<Ring<Flight, AnyThread>>,
    file: Arc<BlockFile>,
    /// Requests for which the ring has no room.
    waiting: VecDeque<Request>,
    /// What is done without the ring.
    done: Vec<Completion>,
    /// What the ring has done in part, while it is looked through.
    again: Vec<(Flight, AlignedBuffer)>,
    waker: Option<Waker>,
}

impl PolledFile {
    /// Opens `path` as [`open`](super::open) does.
    pub fn open(path: &Path, capacity_bytes: u64) -> Result<Self, OpenError> {
        let file = Arc::new(BlockFile::open(path, capacity_bytes)?);
        Self::with_ring(file).map_err(|source| OpenError::Uring { path: path.to_owned(), source })
    }

    /// An error where io_uring cannot be used.
    pub(super) fn with_ring(file: Arc<BlockFile>) -> io::Result<Self> {
        let ring = Ring::movable(file.requests.clone(), ENTRIES)?;
        Ok(PolledFile {
            ring: Some(ring),
            file,
            waiting: VecDeque::new(),
            done: Vec::new(),
            again: Vec::new(),
            waker: None,
        })
    }

    fn queue(&mut self, request: Request) {
        match request.check(self.file.capacity_bytes()) {
            Ok(()) => self.waiting.push_back(request),
            Err(error) => self.end(request.done(Err(error))),
        }
    }

    /// One is done, and the ring's descriptor does not say so.
    fn end(&mut self, completion: Completion) {
        self.done.push(completion);
        if let Some(waker) = &self.waker {
            waker();
        }
    }

    /// Hands to the kernel what waits and has room, and, with `wait`, waits for a completion.
    fn enter(&mut self, mut wait: bool) {
        let Some(ring) = &mut self.ring else { return self.fail() };
        while !ring.is_full()
            && let Some(request) = self.waiting.pop_front()
        {
            Flight::begin(request, ring);
        }
        while wait || !ring.is_submitted() {
            if ring.enter(wait).is_err() {
                return self.fail();
            }
            wait = false;
            if !ring.is_submitted() {
                // The kernel lacks memory for now.
                yield_now();
            }
        }
    }

    /// The ring is broken: all that was and will be submitted ends in an error.
    fn fail(&mut self) {
        let lost = self.ring.take().map(Ring::abandon).unwrap_or_default();
        lost.into_iter().for_each(|flight| self.end(flight.fail()));
        while let Some(request) = self.waiting.pop_front() {
            let error = BlockError::device(request.op, request.offset, request.buffer.len());
            self.end(request.done(Err(error)));
        }
    }
}

impl BlockIo for PolledFile {
    fn submit(&mut self, request: Request) {
        self.queue(request);
        self.enter(false);
    }

    fn submit_all(&mut self, requests: &mut Vec<Request>) {
        requests.drain(..).for_each(|request| self.queue(request));
        self.enter(false);
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        out.append(&mut self.done);
        let PolledFile { ring: Some(ring), file, again, .. } = self else { return };
        ring.take(|done| match Flight::judge(file, done) {
            Ok(completion) => out.push(completion),
            Err(unfinished) => again.push(unfinished),
        });
        again.drain(..).for_each(|(flight, buffer)| flight.push(ring, buffer));
        let is_all_submitted = ring.is_submitted();
        if !self.waiting.is_empty() || !is_all_submitted {
            self.enter(false);
            out.append(&mut self.done);
        }
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        let before = out.len();
        self.completed(out);
        while out.len() == before && self.in_flight() > 0 {
            self.enter(true);
            self.completed(out);
        }
    }

    fn in_flight(&self) -> usize {
        self.ring.as_ref().map_or(0, Ring::in_flight) + self.waiting.len() + self.done.len()
    }

    fn notify(&mut self, waker: Waker) {
        if !self.done.is_empty() {
            waker();
        }
        self.waker = Some(waker);
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(AsFd::as_fd)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.file.write_at(offset, bytes)
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        self.file.read_at(offset, bytes)
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        self.file.sync()
    }

    fn capacity_bytes(&self) -> u64 {
        self.file.capacity_bytes()
    }

    fn grow(&mut self, capacity_bytes: u64) -> Result<(), OpenError> {
        self.file.grow(capacity_bytes)
    }

    fn describe(&self) -> &'static str {
        match self.file.direct {
            true => "io_uring without a thread, past the page cache",
            false => "io_uring without a thread, through the page cache",
        }
    }
}
