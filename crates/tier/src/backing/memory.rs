//! Volume in memory, for tests: it can be inspected, killed, and opened again.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::block::completion_queue::Bell;
use crate::block::{BLOCK_BYTES, Medium};
use tiermem_base::rng::Rng;

use super::{
    Backing, BackingError, Completion, EXTENTS_MAX, Extent, Identity, Op, Request, StoreLabel, Waker,
};

/// The medium, which outlives its opened stores. Its clones are the same medium.
#[derive(Clone, Debug)]
pub struct MemoryStore(Arc<Mutex<Media>>);

#[derive(Debug)]
pub(super) struct Media {
    pub(super) medium: Medium,
    number: u64,
    pub(super) session: u64,
    version: u64,
    label: Option<String>,
}

impl MemoryStore {
    /// A volume of zeroes.
    pub fn new(size_bytes: u64) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        MemoryStore(Arc::new(Mutex::new(Media {
            medium: Medium::new(size_bytes as usize),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            session: 0,
            version: 0,
            label: None,
        })))
    }

    /// Opens it to read and write.
    pub fn open(&self) -> MemoryBacking {
        MemoryBacking { store: self.clone(), read_only: false, done: Vec::new(), bell: Bell::default() }
    }

    /// Opens it to read.
    pub fn open_read_only(&self) -> MemoryBacking {
        MemoryBacking { read_only: true, ..self.open() }
    }

    /// The store dies and is there again: all that was not flushed is as it was, and a new session begins.
    pub fn crash(&self) {
        self.lose(Medium::lose_unsynced);
    }

    /// The same, but each sector is as it was written last or, by a coin, as it was at any time since the last flush.
    pub fn crash_some(&self, rng: &mut Rng) {
        self.lose(|medium| medium.lose_some_unsynced(rng));
    }

    fn lose(&self, lose: impl FnOnce(&mut Medium)) {
        let mut media = self.lock();
        lose(&mut media.medium);
        media.session += 1;
        media.version += 1;
    }

    /// Whether nothing that was written to these bytes may be lost in a [crash](Self::crash).
    pub fn is_synced(&self, bytes: Range<u64>) -> bool {
        self.lock().medium.is_synced(bytes.start as usize..bytes.end as usize)
    }

    /// All bytes, to look at or to spoil; what is changed here counts as flushed, and as another's doing.
    pub fn with_bytes<R>(&self, look: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut media = self.lock();
        media.version += 1;
        look(media.medium.bytes_mut())
    }

    /// Makes it longer, by zeroes, or shorter.
    pub fn resize(&self, size_bytes: u64) {
        let mut media = self.lock();
        media.version += 1;
        media.medium.resize(size_bytes as usize);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Media> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Media {
    /// Units that read as zeroes, as if they were holes; and the others.
    pub(super) fn describe(&self, range: Range<usize>) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = range.start;
        while at < range.end && extents.len() < EXTENTS_MAX {
            let end = ((at / BLOCK_BYTES + 1) * BLOCK_BYTES).min(range.end);
            let is_zero = self.medium.bytes()[at..end].iter().all(|byte| *byte == 0);
            match extents.last_mut() {
                Some(last) if last.is_zero == is_zero => last.bytes += (end - at) as u64,
                _ => {
                    let bytes = (end - at) as u64;
                    extents.push(if is_zero { Extent::hole(bytes) } else { Extent::data(bytes) });
                }
            }
            at = end;
        }
        extents
    }

    /// The bytes `at..end` in order to change them.
    pub(super) fn change(&mut self, at: usize, end: usize) -> &mut [u8] {
        self.version += 1;
        self.medium.change(at..end)
    }
}

/// An open [`MemoryStore`]. A request takes effect in `submit`, and its completion is taken by the next `completed`, in the order
/// of submission.
pub struct MemoryBacking {
    store: MemoryStore,
    read_only: bool,
    done: Vec<Completion>,
    bell: Bell,
}

impl Backing for MemoryBacking {
    fn submit(&mut self, mut request: Request) {
        let mut media = self.store.lock();
        let answer = request.answer(media.medium.bytes().len() as u64, self.read_only);
        let (at, bytes) = (request.offset as usize, request.bytes as usize);
        if answer.is_none() {
            match request.op {
                Op::Read => request.buffer[..bytes].copy_from_slice(&media.medium.bytes()[at..at + bytes]),
                Op::Write => media.change(at, at + bytes).copy_from_slice(&request.buffer[..bytes]),
                // Of what a trim may leave, zeroes are what a careless caller notices soonest.
                Op::Trim | Op::Zero => media.change(at, at + bytes).fill(0),
                Op::Flush => media.medium.sync(u64::MAX),
                Op::Describe => {
                    let extents = media.describe(at..at + bytes);
                    let session = media.session;
                    drop(media);
                    self.done.push(request.described(extents, session));
                    return self.bell.ring();
                }
            }
        }
        self.done.push(request.done(answer.unwrap_or(Ok(())), media.session));
        drop(media);
        self.bell.ring();
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.bell.silence();
        out.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn notify(&mut self, waker: Waker) {
        self.bell.set(waker);
    }

    fn size_bytes(&self) -> u64 {
        self.store.lock().medium.bytes().len() as u64
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn session(&self) -> u64 {
        self.store.lock().session
    }

    fn identity(&mut self) -> Identity {
        let media = self.store.lock();
        let (which, version) = (format!("memory {}", media.number), media.version.to_string());
        Identity { which: Some(which), version: Some(version) }
    }

    fn label(&mut self) -> Result<StoreLabel, BackingError> {
        Ok(self.store.lock().label.clone().map_or(StoreLabel::Absent, StoreLabel::Text))
    }

    fn set_label(&mut self, text: &str) -> Result<(), BackingError> {
        if self.read_only {
            return Err(BackingError::ReadOnly);
        }
        self.store.lock().label = Some(text.to_owned());
        Ok(())
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }
}
