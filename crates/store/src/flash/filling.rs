//! Segments being filled: their bytes stay in memory until all of them are on the device.

use std::collections::VecDeque;
use std::ops::Range;

use tiermem_policy::log::{SEGMENT_HEADER_BYTES, Stream};
use tiermem_sys::aligned::AlignedBuffer;

use super::format::{self, SegmentHeader};
use super::syncs::{Moment, Syncs};

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
    /// The stream of items that fills it.
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
        }
    }

    /// Room for an item at `offset`; what lies between it and the item before is zero.
    pub fn item(&mut self, offset: usize, len: usize) -> &mut [u8] {
        debug_assert!(offset >= self.used && !self.sealed);
        self.bytes[self.used..offset].fill(0);
        self.used = offset + len;
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

    /// The byte up to which items may be announced, as they are on the device. With power-loss durability,
    /// survivors are announced only when their bytes are durable: power loss could otherwise keep the
    /// announcement and lose the bytes, and the items would be found neither here nor in their old segment.
    pub fn release(&mut self, syncs: &mut Syncs) -> usize {
        if self.stream == Stream::Fresh || !syncs.is_wanted() {
            self.announceable = self.written;
            return self.announceable;
        }
        if let Some((_, end)) = self.syncing.take_if(|(moment, _)| syncs.is_past(*moment)) {
            self.announceable = end;
        }
        if self.syncing.is_none() && self.written > self.announceable {
            self.syncing = Some((syncs.ask(), self.written));
        }
        self.announceable
    }

    /// Marks an item that died as dead if its block was not submitted yet. So no block on the device
    /// holds two live versions of a key, and damage to the newer one cannot bring back the older.
    pub fn bury(&mut self, item: Range<usize>) {
        if item.start >= self.submitted {
            format::bury(&mut self.bytes[item]);
        }
    }

    /// Whether nothing more comes and everything is on the device.
    pub fn is_written(&self) -> bool {
        self.sealed && self.chunks.is_empty() && self.submitted >= self.used
    }

    /// The memory, for the next segment.
    pub fn into_bytes(self) -> Box<[u8]> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK_BYTES: usize = 128 << 10;

    #[test]
    fn items_may_be_announced_when_their_bytes_are_written_whatever_the_order() {
        let bytes = vec![9; 1 << 20].into_boxed_slice();
        let mut filling = Filling::new(3, 7, Stream::Fresh, [0; 16], bytes);
        let mut syncs = Syncs::default();
        (0..30).for_each(|at| filling.item(64 + at * 10_000, 10_000).fill(at as u8));
        for start in [0, CHUNK_BYTES] {
            assert_eq!(filling.piece(start, start + CHUNK_BYTES).len(), CHUNK_BYTES);
        }
        filling.chunk_written(CHUNK_BYTES);
        assert_eq!(filling.release(&mut syncs), 0, "the first chunk is missing");
        filling.chunk_written(0);
        assert_eq!(filling.release(&mut syncs), 2 * CHUNK_BYTES);
        filling.seal();
        let buffer = filling.piece(2 * CHUNK_BYTES, 300_064usize.next_multiple_of(4096));
        assert!(buffer[buffer.len() - 1] == 0 && !filling.is_written());
        filling.chunk_written(2 * CHUNK_BYTES);
        assert!(filling.release(&mut syncs) >= 300_064 && filling.is_written());
    }

    #[test]
    fn what_was_submitted_is_not_buried() {
        let mut filling = Filling::new(3, 7, Stream::Fresh, [0; 16], vec![0; 1 << 16].into_boxed_slice());
        filling.item(64, 4032).fill(1);
        filling.item(4096, 100).fill(1);
        filling.piece(0, 4096);
        [64..4096, 4096..4196].into_iter().for_each(|item| filling.bury(item));
        assert!(filling.bytes()[64..4096].iter().all(|&byte| byte == 1));
        assert!(filling.bytes()[4096..].iter().any(|&byte| byte != 1));
    }

    #[test]
    fn survivors_are_announced_when_their_bytes_are_durable() {
        let mut filling = Filling::new(3, 7, Stream::Kept, [0; 16], vec![0; 1 << 16].into_boxed_slice());
        filling.item(64, 100).fill(1);
        filling.seal();
        filling.piece(0, 4096);
        let mut syncs = Syncs::new(true);
        // One that is under way when the bytes arrive does not cover them.
        syncs.ask();
        syncs.begin();
        filling.chunk_written(0);
        filling.release(&mut syncs);
        syncs.end();
        assert!(filling.release(&mut syncs) == 0 && syncs.is_due());
        syncs.begin();
        syncs.end();
        assert_eq!(filling.release(&mut syncs), 4096);
    }
}
