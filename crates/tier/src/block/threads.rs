//! Thread pool for block requests: for kernels and containers that forbid io_uring.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tiermem_sys::disk;

use super::completion_queue::completion_queue;
use super::file::BlockFile;
use super::served::{ServedFile, Workers};
use super::{BlockError, Completion, Op, OpenError, Request};

/// A file or block device with requests done by a pool of threads, one request per thread at a time.
pub type ThreadedFile = ServedFile<Threads>;

/// The threads.
pub struct Threads {
    pool: Arc<Pool>,
    threads: Vec<JoinHandle<()>>,
}

/// The queue that the threads share.
#[derive(Default)]
pub(super) struct Pool {
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    closed: bool,
    /// Threads that sleep.
    idle: usize,
    /// A thread was woken and has not run yet. Until it has, no other thread is woken: it will do that itself if
    /// there is more to do. So the submitter of a batch makes one system call, or none while all threads are busy.
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
        Self::with_threads(Arc::new(BlockFile::open(path, capacity_bytes)?), threads)
    }

    pub(super) fn with_threads(file: Arc<BlockFile>, threads: usize) -> Result<Self, OpenError> {
        let (completion_sender, completion_receiver) = completion_queue();
        let mut workers = Threads { pool: Arc::default(), threads: Vec::new() };
        for _ in 0..threads.max(1) {
            let (file, pool, completion_sender) =
                (file.clone(), workers.pool.clone(), completion_sender.clone());
            let path = file.path.clone();
            let work = move || {
                while let Some(request) = pool.next() {
                    completion_sender.put([perform(&file, request)]);
                }
            };
            let spawned = std::thread::Builder::new().name("block-io".to_owned()).spawn(work);
            workers.threads.push(spawned.map_err(|source| OpenError::Io {
                what: "start a thread for",
                path,
                source,
            })?);
        }
        Ok(ServedFile::new(file, workers, (completion_sender, completion_receiver)))
    }
}

impl Workers for Threads {
    const WORDS: [&'static str; 2] = ["threads, past the page cache", "threads, through the page cache"];

    fn take(&mut self, requests: &mut dyn Iterator<Item = Request>, _refuse: &mut dyn FnMut(Completion)) {
        let mut queue = self.pool.lock();
        queue.requests.extend(requests);
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

impl Drop for Threads {
    /// Waits for what is in flight.
    fn drop(&mut self) {
        self.pool.lock().closed = true;
        self.pool.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
