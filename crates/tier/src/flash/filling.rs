//! Segments that are being filled: their bytes stay in memory until all of them are on the device.

use std::collections::VecDeque;
use std::ops::Range;

use tiermem_policy::log::{LogPlace, SEGMENT_HEADER_BYTES, Stream};
use tiermem_sys::aligned::AlignedBuffer;

use super::format::{self, SegmentHeader};
use super::syncs::{Moment, Syncs};

/// An item whose place is announced in the journal once its bytes are on the device.
#[derive(Clone, Copy, Debug)]
pub struct Unwritten {
    /// The hash of its key.
    pub hash: u64,
    /// Its place.
    pub place: LogPlace,
    /// Its database.
    pub db: u8,
    /// Its number among all items ever appended.
    pub number: u64,
    /// It was overwritten or deleted meanwhile.
    pub dead: bool,
}

/// A write under way.
#[derive(Debug)]
struct Chunk {
    start: usize,
    end: usize,
    done: bool,
}

/// One segment's bytes.
#[derive(Debug)]
pub struct Filling {
    /// The segment.
    pub segment: u32,
    /// The number of this filling.
    pub sequence: u32,
    /// Who comes here.
    pub stream: Stream,
    bytes: Box<[u8]>,
    used: usize,
    submitted: usize,
    chunks: VecDeque<Chunk>,
    /// Everything before this is on the device.
    written: usize,
    /// Everything before this may be announced.
    announceable: usize,
    /// The sync that makes everything before that byte durable.
    syncing: Option<(Moment, usize)>,
    sealed: bool,
    /// Items to announce, with their bytes.
    unwritten: VecDeque<(Range<usize>, Unwritten)>,
}

impl Filling {
    /// Begins a segment in `bytes`, which are as long as it is.
    pub fn new(segment: u32, sequence: u32, stream: Stream, uuid: [u8; 16], mut bytes: Box<[u8]>) -> Self {
        SegmentHeader { sequence, uuid }.write(&mut bytes);
        Filling {
            segment,
            sequence,
            stream,
            bytes,
            used: SEGMENT_HEADER_BYTES as usize,
            submitted: 0,
            chunks: VecDeque::new(),
            written: 0,
            announceable: 0,
            syncing: None,
            sealed: false,
            unwritten: VecDeque::new(),
        }
    }

    /// Room for an item at `offset`; what lies between it and the item before is zero.
    pub fn item(&mut self, offset: usize, len: usize, item: Unwritten) -> &mut [u8] {
        debug_assert!(offset >= self.used && !self.sealed);
        self.bytes[self.used..offset].fill(0);
        self.used = offset + len;
        self.unwritten.push_back((offset..self.used, item));
        &mut self.bytes[offset..offset + len]
    }

    /// Bytes of the segment so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// Nothing more comes: the rest is written as it is.
    pub fn seal(&mut self) {
        self.sealed = true;
    }

    /// A copy of a piece that is to be written now, with zeroes behind what was written.
    pub fn piece(&mut self, start: usize, end: usize) -> AlignedBuffer {
        debug_assert!(start == self.submitted && start < end, "a segment is written in order, once");
        if end > self.used {
            self.bytes[self.used..end].fill(0);
            self.used = end;
        }
        let mut buffer = AlignedBuffer::zeroed(end - start);
        buffer.copy_from_slice(&self.bytes[start..end]);
        self.submitted = end;
        self.chunks.push_back(Chunk { start, end, done: false });
        buffer
    }

    /// Notes that the piece at `start` is on the device.
    pub fn chunk_written(&mut self, start: usize) {
        if let Some(chunk) = self.chunks.iter_mut().find(|chunk| chunk.start == start) {
            chunk.done = true;
        }
        while let Some(chunk) = self.chunks.front().filter(|chunk| chunk.done) {
            self.written = chunk.end;
            self.chunks.pop_front();
        }
    }

    /// Lets items be announced whose bytes are on the device. Survivors, where power loss matters, only when their bytes are durable: of
    /// bytes and announcement power loss could leave the latter alone, and they would be found neither here nor where they came from.
    pub fn release(&mut self, syncs: &mut Syncs) {
        if self.stream == Stream::Fresh || !syncs.is_wanted() {
            self.announceable = self.written;
            return;
        }
        if let Some((_, end)) = self.syncing.take_if(|(moment, _)| syncs.is_past(*moment)) {
            self.announceable = end;
        }
        if self.syncing.is_none() && self.written > self.announceable {
            self.syncing = Some((syncs.ask(), self.written));
        }
    }

    /// The next item that may be announced and was not yet.
    pub fn next_written(&self) -> Option<Unwritten> {
        self.unwritten.front().filter(|(bytes, _)| bytes.end <= self.announceable).map(|(_, item)| *item)
    }

    /// Notes that the item of [`Self::next_written`] was announced, or needs no announcing.
    pub fn announced(&mut self) {
        self.unwritten.pop_front();
    }

    /// Has an item that died not be announced any more; whether it was one that would have been, for the first time.
    ///
    /// Where its block was not submitted yet it is buried there too. So no block on the device holds two versions of a key,
    /// and damage to the newer one cannot bring back the older.
    pub fn withdraw(&mut self, hash: u64, place: LogPlace) -> bool {
        // Items stand in the order of their pages; of two versions the older one comes first, and dies first.
        let first = self.unwritten.partition_point(|(_, item)| item.place.page() < place.page());
        let mut in_page =
            self.unwritten.range_mut(first..).take_while(|(_, item)| item.place.page() == place.page());
        let found = in_page
            .find(|(_, item)| !item.dead && item.hash >> 24 == hash >> 24 && item.place.is_same(place));
        let Some((bytes, item)) = found else { return false };
        item.dead = true;
        if bytes.start >= self.submitted {
            format::bury(&mut self.bytes[bytes.clone()]);
        }
        // Survivors were announced where they lay before.
        self.stream == Stream::Fresh
    }

    /// The number of the first item that was not announced.
    pub fn first_unannounced(&self) -> Option<u64> {
        self.unwritten.front().map(|(_, item)| item.number)
    }

    /// Whether nothing more comes and everything is on the device and announced: the memory is needed no longer.
    pub fn is_finished(&self) -> bool {
        self.sealed && self.unwritten.is_empty() && self.chunks.is_empty() && self.submitted >= self.used
    }

    /// The memory, for the next segment.
    pub fn into_bytes(self) -> Box<[u8]> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_announced_when_their_bytes_are_written_whatever_the_order() {
        const CHUNK_BYTES: usize = 128 << 10;
        let bytes = vec![9; 1 << 20].into_boxed_slice();
        let mut filling = Filling::new(3, 7, Stream::Fresh, [0; 16], bytes);
        let mut offset = 64;
        for hash in 0..30u64 {
            let item = Unwritten { hash, place: LogPlace(0), db: 0, number: hash, dead: false };
            filling.item(offset, 10_000, item).fill(hash as u8);
            offset += 10_000;
        }
        for start in [0, CHUNK_BYTES] {
            assert_eq!(filling.piece(start, start + CHUNK_BYTES).len(), CHUNK_BYTES);
        }
        assert!(filling.next_written().is_none());
        let mut syncs = Syncs::default();
        filling.chunk_written(CHUNK_BYTES);
        filling.release(&mut syncs);
        assert!(filling.next_written().is_none(), "the first chunk is missing");
        filling.chunk_written(0);
        filling.release(&mut syncs);
        let mut announced = 0;
        while filling.next_written().is_some() {
            filling.announced();
            announced += 1;
        }
        assert_eq!(announced, (2 * CHUNK_BYTES - 64) / 10_000);
        filling.seal();
        let buffer = filling.piece(2 * CHUNK_BYTES, 300_064usize.next_multiple_of(4096));
        assert!(buffer[buffer.len() - 1] == 0 && !filling.is_finished());
        filling.chunk_written(2 * CHUNK_BYTES);
        filling.release(&mut syncs);
        while filling.next_written().is_some() {
            filling.announced();
        }
        assert!(filling.is_finished());
    }

    #[test]
    fn survivors_are_announced_when_their_bytes_are_durable() {
        let mut filling = Filling::new(3, 7, Stream::Kept, [0; 16], vec![0; 1 << 16].into_boxed_slice());
        let item = Unwritten { hash: 1, place: LogPlace(0), db: 0, number: 1, dead: false };
        filling.item(64, 100, item).fill(1);
        filling.seal();
        filling.piece(0, 4096);
        let mut syncs = Syncs::new(true);
        // One that is under way when the bytes arrive does not cover them.
        syncs.ask();
        syncs.begin();
        filling.chunk_written(0);
        filling.release(&mut syncs);
        syncs.end();
        filling.release(&mut syncs);
        assert!(filling.next_written().is_none() && syncs.is_due());
        syncs.begin();
        syncs.end();
        filling.release(&mut syncs);
        assert!(filling.next_written().is_some());
    }
}
