//! Requests by a pool of threads that read and write: for kernels and containers that forbid io_uring.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tiermem_sys::disk;

use super::file::BlockFile;
use super::mailbox::{Inbox, Outbox, mailbox};
use super::{BlockError, BlockIo, Completion, Op, OpenError, Request, Waker};

/// A file or block device whose requests are done by a pool of threads, one request per thread at a time.
pub struct ThreadedFile {
    file: Arc<BlockFile>,
    pool: Arc<Pool>,
    outbox: Outbox,
    inbox: Inbox,
    threads: Vec<JoinHandle<()>>,
}

/// The queue that the threads share.
#[derive(Default)]
struct Pool {
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    closed: bool,
    /// Threads that sleep.
    idle: usize,
    /// A thread was woken and has not run yet. Until it has, nobody wakes another: it will do that itself if there is more
    /// to do. So the submitter of a batch makes one system call, or none while all threads are busy.
    waking: bool,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes a thread if that is needed and has not been done.
    fn wake(&self, mut queue: MutexGuard<'_, Queue>) {
        if !queue.requests.is_empty() && queue.idle > 0 && !queue.waking {
            queue.waking = true;
            drop(queue);
            self.work.notify_one();
        }
    }

    /// The next request; `None` once there will be no more.
    fn next(&self) -> Option<Request> {
        let mut queue = self.lock();
        loop {
            if let Some(request) = queue.requests.pop_front() {
                self.wake(queue);
                return Some(request);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
            queue.waking = false;
        }
    }
}

impl ThreadedFile {
    /// Opens `path` as [`open`](super::open) does, with `threads` threads (at least one).
    pub fn open(path: &Path, capacity_bytes: u64, threads: usize) -> Result<Self, OpenError> {
        Self::new(Arc::new(BlockFile::open(path, capacity_bytes)?), threads)
    }

    pub(super) fn new(file: Arc<BlockFile>, threads: usize) -> Result<Self, OpenError> {
        let (outbox, inbox) = mailbox();
        let pool = Arc::new(Pool::default());
        let mut this = ThreadedFile { file, pool, outbox, inbox, threads: Vec::new() };
        for _ in 0..threads.max(1) {
            let (file, pool, outbox) = (this.file.clone(), this.pool.clone(), this.outbox.clone());
            let work = move || {
                while let Some(request) = pool.next() {
                    outbox.put([perform(&file, request)]);
                }
            };
            let spawned = std::thread::Builder::new().name("block-io".to_owned()).spawn(work);
            let path = &this.file.path;
            this.threads.push(spawned.map_err(|source| OpenError::Io {
                what: "start a thread for",
                path: path.clone(),
                source,
            })?);
        }
        Ok(this)
    }

    fn queue(&mut self, requests: &mut dyn Iterator<Item = Request>) {
        let mut queue = self.pool.lock();
        for request in requests {
            self.inbox.in_flight += 1;
            match request.check(self.file.capacity_bytes) {
                Ok(()) => queue.requests.push_back(request),
                Err(error) => self.outbox.put([request.done(Err(error))]),
            }
        }
        self.pool.wake(queue);
    }
}

/// Does one request, to its end.
fn perform(file: &BlockFile, mut request: Request) -> Completion {
    let (op, offset, len) = (request.op, request.offset, request.buffer.len());
    let error = |error: &std::io::Error| BlockError::from_io(op, offset, len, error);
    if op == Op::Sync {
        let result = disk::sync_data(&file.requests).map_err(|it| error(&it));
        return request.done(result);
    }
    let mut done = 0;
    let result = loop {
        if done == len {
            break Ok(());
        }
        let (rest, place) = (&mut request.buffer[done..], offset + done as u64);
        let got = match op {
            Op::Read => file.requests.read_at(rest, place),
            _ => file.requests.write_at(rest, place),
        };
        match got {
            Ok(got) => match file.advance(done, got) {
                Some(now) => done = now,
                None => {
                    let (len_bytes, done_bytes) = (len as u64, done as u64);
                    break Err(BlockError::Short { op, offset, len_bytes, done_bytes });
                }
            },
            Err(it)
                if matches!(it.kind(), std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock) => {}
            Err(it) => break Err(error(&it)),
        }
    };
    request.done(result)
}

impl BlockIo for ThreadedFile {
    fn submit(&mut self, request: Request) {
        self.queue(&mut std::iter::once(request));
    }

    fn submit_all(&mut self, requests: &mut Vec<Request>) {
        self.queue(&mut requests.drain(..));
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.inbox.completed(out);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        self.inbox.wait(out);
    }

    fn in_flight(&self) -> usize {
        self.inbox.in_flight
    }

    fn notify(&mut self, waker: Waker) {
        self.inbox.notify(waker);
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
        self.file.capacity_bytes
    }

    fn describe(&self) -> &'static str {
        if self.file.direct { "threads, past the page cache" } else { "threads, through the page cache" }
    }
}

impl Drop for ThreadedFile {
    /// Waits for what is in flight.
    fn drop(&mut self) {
        self.pool.lock().closed = true;
        self.pool.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
