//! Worker thread of a file: its last bytes, flushes, trims and zeroes, one after another.
//!
//! Sequential flushes matter: Linux reports data that could not be written only once, to
//! one flush. Later flushes succeed, so they must be known to belong to the next session.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::block::BLOCK_BYTES;
use crate::block::completion_queue::{CompletionReceiver, CompletionSender, completion_queue};
use tiermem_sys::disk;

use crate::backing::{BackingError, Completion, EXTENTS_MAX, Extent, Op, Request, Waker};

/// Zeroes are written in pieces of this size where the file system has no better way.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// The way to the thread.
pub(super) struct FileWorker {
    /// `None` only while it is dropped.
    queue: Option<Sender<(Request, u64)>>,
    completion_receiver: CompletionReceiver<Completion>,
    completion_sender: CompletionSender<Completion>,
    session: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

struct Worker {
    file: Arc<File>,
    whole_bytes: u64,
    session: Arc<AtomicU64>,
    completion_sender: CompletionSender<Completion>,
}

impl FileWorker {
    pub(super) fn start(file: Arc<File>, size_bytes: u64) -> io::Result<Self> {
        let (queue, requests) = channel();
        let (completion_sender, completion_receiver) = completion_queue();
        let session = Arc::new(AtomicU64::new(0));
        let whole_bytes = size_bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let worker = Worker {
            file,
            whole_bytes,
            session: session.clone(),
            completion_sender: completion_sender.clone(),
        };
        let thread = std::thread::Builder::new().name("backing-file".to_owned());
        let thread = Some(thread.spawn(move || worker.run(&requests))?);
        Ok(FileWorker { queue: Some(queue), completion_receiver, completion_sender, session, thread })
    }

    pub(super) fn submit(&mut self, request: Request) {
        self.completion_receiver.in_flight += 1;
        let session = self.session();
        if let Some(Err(lost)) = self.queue.as_ref().map(|queue| queue.send((request, session))) {
            let error = BackingError::Failed("the store's thread has ended".to_owned());
            self.completion_sender.put([lost.0.0.done(Err(error), session)]);
        }
    }

    pub(super) fn completed(&mut self, out: &mut Vec<Completion>) {
        self.completion_receiver.completed(out);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.completion_receiver.in_flight
    }

    pub(super) fn notify(&self, waker: Waker) {
        self.completion_receiver.notify(waker);
    }

    pub(super) fn session(&self) -> u64 {
        self.session.load(Ordering::Acquire)
    }
}

impl Drop for FileWorker {
    /// Waits for what is in flight.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Worker {
    fn run(self, requests: &Receiver<(Request, u64)>) {
        for (mut request, mut session) in requests {
            if request.op == Op::Flush {
                session = self.session.load(Ordering::Acquire);
            }
            if request.op == Op::Describe {
                let extents = self.describe(&request);
                self.completion_sender.put([request.described(extents, session)]);
                continue;
            }
            let result = self.perform(&mut request);
            if request.op == Op::Flush && result.is_err() {
                self.session.fetch_add(1, Ordering::AcqRel);
            }
            let result = result.map_err(|error| told(&request, &error));
            self.completion_sender.put([request.done(result, session)]);
        }
    }

    fn perform(&self, request: &mut Request) -> io::Result<()> {
        let (offset, bytes) = (request.offset, request.bytes);
        match request.op {
            Op::Read => self.file.read_exact_at(&mut request.buffer[..bytes as usize], offset),
            Op::Write => self.file.write_all_at(&request.buffer[..bytes as usize], offset),
            Op::Flush => disk::sync_data(&self.file),
            // Part of a page would be zeroed in the page cache for no room won.
            Op::Trim if offset >= self.whole_bytes => Ok(()),
            Op::Trim => disk::punch_hole(&self.file, offset, bytes).map(|_| ()),
            Op::Zero => self.zero(offset, bytes),
            // It is no work that could fail: see `describe`.
            Op::Describe => Ok(()),
        }
    }

    /// Holes and data of a range; none where the file system cannot tell.
    fn describe(&self, request: &Request) -> Vec<Extent> {
        let (mut at, end) = (request.offset, request.end());
        let mut extents = Vec::new();
        while at < end && extents.len() < EXTENTS_MAX {
            let Ok(Some((is_data, to))) = disk::data_or_hole(&self.file, at, end) else { break };
            extents.push(if is_data { Extent::data(to - at) } else { Extent::hole(to - at) });
            at = to;
        }
        extents
    }

    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        // Some file systems know holes and no ranges of zeroes.
        if offset < self.whole_bytes
            && (disk::zero_range(&self.file, offset, bytes)? || disk::punch_hole(&self.file, offset, bytes)?)
        {
            return Ok(());
        }
        let mut done = 0;
        while done < bytes {
            let some = (bytes - done).min(ZEROES.len() as u64);
            self.file.write_all_at(&ZEROES[..some as usize], offset + done)?;
            done += some;
        }
        Ok(())
    }
}

fn told(request: &Request, error: &io::Error) -> BackingError {
    use io::ErrorKind::{QuotaExceeded, StorageFull, UnexpectedEof};
    let (op, bytes, offset) = (request.op, request.bytes, request.offset);
    match error.kind() {
        StorageFull | QuotaExceeded => BackingError::Full,
        UnexpectedEof => BackingError::Failed(format!(
            "{op:?} of {bytes} bytes at byte {offset}: the file is shorter than it was at start; restore it"
        )),
        _ => BackingError::Failed(format!("{op:?} of {bytes} bytes at byte {offset} failed: {error}")),
    }
}
