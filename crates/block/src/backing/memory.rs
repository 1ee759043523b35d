//! A volume in memory, for tests: it can be looked at, killed, and opened again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tiermem_base::rng::Rng;
use tiermem_tier::block::completion_queue::Bell;

use super::{Backing, Completion, Identity, Op, Request, Waker};

/// What survives as a whole or not at all.
const SECTOR_BYTES: usize = 512;

/// The medium, which outlives those who open it. Its clones are the same medium.
#[derive(Clone, Debug)]
pub struct MemoryStore(Arc<Mutex<Media>>);

#[derive(Debug)]
struct Media {
    bytes: Vec<u8>,
    /// Sectors changed since the last flush, as they were at that time.
    unflushed: BTreeMap<usize, Box<[u8]>>,
    number: u64,
    session: u64,
    version: u64,
}

impl MemoryStore {
    /// A volume of zeroes.
    pub fn new(size_bytes: u64) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        MemoryStore(Arc::new(Mutex::new(Media {
            bytes: vec![0; size_bytes as usize],
            unflushed: BTreeMap::new(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            session: 0,
            version: 0,
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
        self.lose(|| true);
    }

    /// The same, but each sector is, by a coin, as it was at the last flush or as it was written last.
    pub fn crash_some(&self, rng: &mut Rng) {
        self.lose(|| rng.below(2) == 0);
    }

    fn lose(&self, mut lost: impl FnMut() -> bool) {
        let mut media = self.lock();
        for (sector, was) in std::mem::take(&mut media.unflushed) {
            let start = sector * SECTOR_BYTES;
            if lost() && media.bytes.len() >= start + was.len() {
                media.bytes[start..start + was.len()].copy_from_slice(&was);
            }
        }
        media.session += 1;
        media.version += 1;
    }

    /// Whether all that was written to these bytes is flushed.
    pub fn is_flushed(&self, offset: u64, bytes: u64) -> bool {
        let sectors = offset as usize / SECTOR_BYTES..((offset + bytes) as usize).div_ceil(SECTOR_BYTES);
        self.lock().unflushed.range(sectors).next().is_none()
    }

    /// All bytes, to look at or to spoil; what is changed here counts as flushed, and as another's doing.
    pub fn with_bytes<R>(&self, look: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut media = self.lock();
        media.version += 1;
        look(&mut media.bytes)
    }

    /// Makes it longer, by zeroes, or shorter.
    pub fn resize(&self, size_bytes: u64) {
        let mut media = self.lock();
        media.version += 1;
        media.bytes.resize(size_bytes as usize, 0);
    }

    fn lock(&self) -> MutexGuard<'_, Media> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Media {
    /// The bytes `at..end` in order to change them.
    fn change(&mut self, at: usize, end: usize) -> &mut [u8] {
        for sector in at / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            let start = sector * SECTOR_BYTES;
            let was = || self.bytes[start..(start + SECTOR_BYTES).min(self.bytes.len())].into();
            self.unflushed.entry(sector).or_insert_with(was);
        }
        self.version += 1;
        &mut self.bytes[at..end]
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
        let answer = request.answer(media.bytes.len() as u64, self.read_only);
        let (at, bytes) = (request.offset as usize, request.bytes as usize);
        if answer.is_none() {
            match request.op {
                Op::Read => request.buffer[..bytes].copy_from_slice(&media.bytes[at..at + bytes]),
                Op::Write => media.change(at, at + bytes).copy_from_slice(&request.buffer[..bytes]),
                // Of what a trim may leave, zeroes are what a careless caller notices soonest.
                Op::Trim | Op::Zero => media.change(at, at + bytes).fill(0),
                Op::Flush => media.unflushed.clear(),
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
        self.store.lock().bytes.len() as u64
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

    fn describe(&self) -> String {
        "memory".to_owned()
    }
}
