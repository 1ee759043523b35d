//! Fetches: items read back from flash by place and delivered by key.
//!
//! Items that are read but not yet taken are bounded in bytes; later fetches wait in line without
//! a buffer. A request may need more than the bound at once, and several requests may each hold a
//! part of what they need. So a few reads proceed beyond the bound, and no request waits for ever.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use tiermem_policy::log::LogPlace;
use tiermem_sys::aligned::AlignedBuffer;

use super::format::{BLOCK_BYTES, ItemHeader, find_item};

/// Bytes that may be under way or wait to be taken.
const BYTES_MAX: usize = 32 << 20;
/// Bytes that may be under way all the same.
const READING_BYTES_SPARE: usize = 1 << 20;
/// Buffers kept for the next readings: as many as a pipeline has under way, each as long as most readings are. A new one would have to
/// be zeroed, which costs more than all else in a look-up.
const SPARE_BUFFERS: usize = 32;
const SPARE_BUFFER_BYTES_MAX: usize = 2 * BLOCK_BYTES;

/// A question's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FetchId(pub(super) u64);

/// Bytes that hold an item.
#[derive(Debug)]
enum Bytes {
    Read(AlignedBuffer),
    Copied(Box<[u8]>),
}

impl Bytes {
    fn all(&self) -> &[u8] {
        match self {
            Bytes::Read(bytes) => bytes,
            Bytes::Copied(bytes) => bytes,
        }
    }
}

/// An item as it was read.
#[derive(Debug)]
pub struct FlashItem {
    bytes: Bytes,
    at: usize,
    /// Its header.
    pub header: ItemHeader,
    /// Where it lay.
    pub place: LogPlace,
}

impl FlashItem {
    /// Its key.
    pub fn key(&self) -> &[u8] {
        let start = self.at + super::format::ITEM_HEADER_BYTES;
        &self.bytes.all()[start..start + usize::from(self.header.key_len)]
    }

    /// Bytes of memory that it holds.
    fn held_bytes(&self) -> usize {
        self.bytes.all().len()
    }

    /// Its value.
    pub fn value(&self) -> &[u8] {
        let end = self.at + self.header.item_len();
        &self.bytes.all()[end - self.header.value_len as usize..end]
    }
}

#[derive(Debug)]
enum State {
    /// Its segment is still in memory.
    InMemory,
    /// In line for a buffer.
    Queued,
    Reading,
    /// It is not wanted any more; the buffer is still in flight.
    Abandoned,
    Done(Option<FlashItem>),
}

#[derive(Debug)]
struct Fetch {
    hash: u64,
    place: LogPlace,
    sequence: u32,
    /// Where items begin in the first block.
    first: usize,
    /// Bytes to read.
    len: usize,
    state: State,
    waker: Option<Waker>,
}

/// Facts about a fetch.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The page in which the item begins.
    pub page: u32,
    /// Whether the segment was in memory when it was asked.
    pub in_memory: bool,
}

/// A read to be done for a fetch.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The fetch.
    pub id: FetchId,
    /// The page with which reading begins.
    pub page: u32,
    /// Bytes.
    pub len: usize,
}

/// All questions.
#[derive(Debug, Default)]
pub struct Fetches {
    fetches: BTreeMap<FetchId, Fetch>,
    line: VecDeque<FetchId>,
    next: u64,
    bytes: usize,
    /// Of readings under way.
    reading_bytes: usize,
    /// Free buffers: at most [`SPARE_BUFFERS`].
    spare: Vec<AlignedBuffer>,
}

impl Fetches {
    /// A new question about the item of `hash` at `place`, in filling `sequence` of its segment; items begin behind byte
    /// `first` of its block, and `len` bytes hold it.
    pub fn ask(&mut self, hash: u64, place: LogPlace, sequence: u32, first: usize, len: usize) -> FetchId {
        let id = FetchId(self.next);
        self.next += 1;
        let fetch = Fetch { hash, place, sequence, first, len, state: State::Queued, waker: None };
        self.fetches.insert(id, fetch);
        self.line.push_back(id);
        id
    }

    /// A question that memory answers, when the answer is taken.
    pub fn answered(&mut self, hash: u64, place: LogPlace, sequence: u32, first: usize) -> FetchId {
        let id = FetchId(self.next);
        self.next += 1;
        let fetch = Fetch { hash, place, sequence, first, len: 0, state: State::InMemory, waker: None };
        self.fetches.insert(id, fetch);
        id
    }

    /// Facts about a fetch.
    pub fn about(&self, id: FetchId) -> Option<About> {
        let fetch = self.fetches.get(&id)?;
        let in_memory = matches!(fetch.state, State::InMemory);
        Some(About { page: fetch.place.page(), in_memory })
    }

    /// The next reading that may begin.
    pub fn next_reading(&mut self) -> Option<Reading> {
        while let Some(&id) = self.line.front() {
            let Some(fetch) = self.fetches.get_mut(&id) else {
                self.line.pop_front();
                continue;
            };
            // A few reads may always begin, and one of any length: items that were
            // read and not taken may belong to a request that waits for more.
            let spare = self.reading_bytes == 0 || self.reading_bytes + fetch.len <= READING_BYTES_SPARE;
            if !spare && self.bytes + fetch.len > BYTES_MAX {
                return None;
            }
            self.line.pop_front();
            self.bytes += fetch.len;
            self.reading_bytes += fetch.len;
            fetch.state = State::Reading;
            return Some(Reading { id, page: fetch.place.page(), len: fetch.len });
        }
        None
    }

    /// A buffer for a reading. It may still hold what an earlier one has read, until the device fills all of it.
    pub fn buffer(&mut self, len: usize) -> AlignedBuffer {
        match self.spare.iter().rposition(|buffer| buffer.len() == len) {
            Some(at) => self.spare.swap_remove(at),
            None => AlignedBuffer::zeroed(len),
        }
    }

    /// Takes what was read; `None`: it could not be.
    pub fn read(&mut self, id: FetchId, buffer: Option<AlignedBuffer>) {
        let Some(fetch) = self.fetches.get_mut(&id) else { return };
        self.reading_bytes -= fetch.len;
        if let State::Abandoned = fetch.state {
            self.bytes -= fetch.len;
            self.fetches.remove(&id);
            return;
        }
        let item = buffer.and_then(|buffer| {
            let (at, header) = find_item(&buffer, fetch.first, fetch.hash, fetch.sequence)?;
            let (place, item_len) = (fetch.place, header.item_len());
            if item_len * 2 > buffer.len() {
                return Some(FlashItem { bytes: Bytes::Read(buffer), at, header, place });
            }
            // Until it is taken a small item keeps no block from others.
            let bytes = Bytes::Copied(buffer[at..at + item_len].into());
            if self.spare.len() < SPARE_BUFFERS && buffer.len() <= SPARE_BUFFER_BYTES_MAX {
                self.spare.push(buffer);
            }
            Some(FlashItem { bytes, at: 0, header, place })
        });
        // What is held from now on; without an item the buffer is gone already.
        self.bytes -= fetch.len;
        fetch.len = item.as_ref().map_or(0, FlashItem::held_bytes);
        self.bytes += fetch.len;
        fetch.state = State::Done(item);
        if let Some(waker) = fetch.waker.take() {
            waker.wake();
        }
    }

    /// Whether the item is read; if not, `waker` is woken later.
    pub fn is_ready(&mut self, id: FetchId, waker: Option<&Waker>) -> bool {
        match self.fetches.get_mut(&id) {
            None => true,
            Some(Fetch { state: State::Done(_) | State::InMemory, .. }) => true,
            Some(fetch) => {
                fetch.waker = waker.cloned();
                false
            }
        }
    }

    /// The answer, once it is ready; the question is over. `None`: the item is not there. `block` are the bytes from its
    /// block on, if its segment is in memory.
    pub fn take(&mut self, id: FetchId, block: Option<&[u8]>) -> Option<FlashItem> {
        let fetch = self.fetches.remove(&id)?;
        match fetch.state {
            State::InMemory => {
                let block = block?;
                let (at, header) = find_item(block, fetch.first, fetch.hash, fetch.sequence)?;
                let bytes = Bytes::Copied(block[at..at + header.item_len()].into());
                Some(FlashItem { bytes, at: 0, header, place: fetch.place })
            }
            State::Done(item) => {
                self.bytes -= fetch.len;
                item
            }
            state => {
                self.fetches.insert(id, Fetch { state, ..fetch });
                None
            }
        }
    }

    /// The answer is not wanted any more.
    pub fn cancel(&mut self, id: FetchId) {
        let Some(fetch) = self.fetches.get_mut(&id) else { return };
        match fetch.state {
            State::Reading => {
                fetch.state = State::Abandoned;
                fetch.waker = None;
            }
            State::Done(_) => {
                self.bytes -= fetch.len;
                self.fetches.remove(&id);
            }
            State::Queued | State::InMemory => {
                self.fetches.remove(&id);
            }
            State::Abandoned => {}
        }
    }

    /// Bytes of buffers held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Bytes to read for an item at `place` of a segment of `pages` pages.
pub fn reading_len(place: LogPlace, pages: u32) -> usize {
    let behind = pages - place.page() % pages;
    place.pages().min(behind) as usize * BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::format::ITEM_HEADER_BYTES;

    /// A block that begins with an item of this hash, read into `buffer`.
    fn fill(buffer: &mut AlignedBuffer, hash: u64) {
        let header =
            ItemHeader { sequence: 1, hash, value_len: 5, key_len: 3, db: 0, kind: 0, expires_at_ms: 0 };
        buffer[ITEM_HEADER_BYTES..][..8].copy_from_slice(b"keyvalue");
        header.seal(&mut buffer[..header.item_len()]);
    }

    /// Asks for an item, reads it, and takes it.
    fn look_up(fetches: &mut Fetches, hash: u64) -> FlashItem {
        let id = fetches.ask(hash, LogPlace::new(0, 1), 1, 0, BLOCK_BYTES);
        let reading = fetches.next_reading().unwrap();
        let mut buffer = fetches.buffer(reading.len);
        fill(&mut buffer, hash);
        fetches.read(id, Some(buffer));
        fetches.take(id, None).unwrap()
    }

    #[test]
    fn a_buffer_serves_one_reading_after_the_other() {
        let mut fetches = Fetches::default();
        for hash in 1..100 {
            let item = look_up(&mut fetches, hash);
            assert_eq!((item.key(), item.value(), item.header.hash), (&b"key"[..], &b"value"[..], hash));
            assert_eq!((fetches.spare.len(), fetches.bytes()), (1, 0));
        }
        // One of another length is made, and is zero.
        assert!(fetches.buffer(2 * BLOCK_BYTES).iter().all(|&byte| byte == 0));
        assert_eq!(fetches.spare.len(), 1);
    }

    #[test]
    fn as_many_buffers_are_kept_as_a_pipeline_needs() {
        let mut fetches = Fetches::default();
        let ids: Vec<_> =
            (0..100).map(|hash| fetches.ask(hash, LogPlace::new(0, 1), 1, 0, BLOCK_BYTES)).collect();
        let mut buffers: Vec<_> = ids
            .iter()
            .map(|_| fetches.next_reading().map(|reading| fetches.buffer(reading.len)).unwrap())
            .collect();
        for (hash, &id) in ids.iter().enumerate().rev() {
            let mut buffer = buffers.pop().unwrap();
            fill(&mut buffer, hash as u64);
            fetches.read(id, Some(buffer));
        }
        assert_eq!(fetches.spare.len(), SPARE_BUFFERS);
        assert!(ids.iter().all(|&id| fetches.take(id, None).is_some()));
        assert_eq!(fetches.bytes(), 0);
    }
}
