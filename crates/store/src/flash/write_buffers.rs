//! Write buffers: the bytes of all segments being filled.

use std::ops::Range;

use tiermem_policy::log::Stream;
use tiermem_sys::aligned::AlignedBuffer;

use super::filling::Filling;
use super::syncs::Syncs;

/// Memory of segments that are safe, kept for the next ones.
const SPARE_MAX: usize = 2;

/// Segments with bytes in memory, until all of them are on the device and announced.
pub struct Segments {
    segment_bytes: usize,
    uuid: [u8; 16],
    fillings: Vec<Filling>,
    spare: Vec<Box<[u8]>>,
}

impl Segments {
    /// No segments yet; each will have `segment_bytes`, on the device of this name.
    pub fn new(segment_bytes: u32, uuid: [u8; 16]) -> Self {
        let segment_bytes = segment_bytes as usize;
        Segments { segment_bytes, uuid, fillings: Vec::new(), spare: Vec::new() }
    }

    fn find(&self, segment: u32) -> Option<&Filling> {
        self.fillings.iter().find(|filling| filling.segment == segment)
    }

    fn find_mut(&mut self, segment: u32) -> Option<&mut Filling> {
        self.fillings.iter_mut().find(|filling| filling.segment == segment)
    }

    /// Whether a segment is being filled.
    pub fn has(&self, segment: u32) -> bool {
        self.find(segment).is_some()
    }

    /// Begins to fill a segment.
    pub fn begin(&mut self, segment: u32, sequence: u32, stream: Stream) {
        assert!(!self.has(segment), "a segment is filled once at a time");
        let bytes = self.spare.pop().unwrap_or_else(|| vec![0; self.segment_bytes].into_boxed_slice());
        self.fillings.push(Filling::new(segment, sequence, stream, self.uuid, bytes));
    }

    /// Room for an item in this filling of a segment.
    ///
    /// # Panics
    /// When it was not begun.
    pub fn item(&mut self, (segment, sequence): (u32, u32), offset: u32, len: usize) -> &mut [u8] {
        let filling = self.find_mut(segment).filter(|filling| filling.sequence == sequence);
        filling.expect("a segment is filled once at a time").item(offset as usize, len)
    }

    /// Seals a segment: no more items are appended to it.
    pub fn seal(&mut self, segment: u32) {
        if let Some(filling) = self.find_mut(segment) {
            filling.seal();
        }
    }

    /// A copy of a piece that is to be written now.
    pub fn piece(&mut self, segment: u32, start: u32, end: u32) -> Option<AlignedBuffer> {
        Some(self.find_mut(segment)?.piece(start as usize, end as usize))
    }

    /// The piece that starts there is on the device. One that could not be written is not found when it is read, and costs a miss.
    pub fn piece_written(&mut self, segment: u32, start: u32) {
        if let Some(filling) = self.find_mut(segment) {
            filling.chunk_written(start as usize);
        }
    }

    /// Up to which byte each of them is safe.
    pub fn safe(&mut self, syncs: &mut Syncs) -> impl Iterator<Item = (u32, u32)> {
        self.fillings.iter_mut().map(|filling| (filling.segment, filling.release(syncs) as u32))
    }

    /// Marks an item that died as dead in its segment's buffer, if it is not written yet.
    pub fn bury(&mut self, segment: u32, bytes: Range<u32>) {
        if let Some(filling) = self.find_mut(segment) {
            filling.bury(bytes.start as usize..bytes.end as usize);
        }
    }

    /// The number of the filling of a segment.
    pub fn sequence(&self, segment: u32) -> Option<u32> {
        self.find(segment).map(|filling| filling.sequence)
    }

    /// The bytes of a segment from this one on; none where it is not being filled.
    pub fn bytes_from(&self, segment: u32, start: u32) -> &[u8] {
        self.find(segment).and_then(|it| it.bytes().get(start as usize..)).unwrap_or_default()
    }

    /// The memory of a segment is needed no longer.
    pub fn release(&mut self, segment: u32) {
        let at = self.fillings.iter().position(|filling| filling.segment == segment);
        debug_assert!(at.is_some(), "what is released was being filled");
        if let Some(at) = at {
            let filling = self.fillings.swap_remove(at);
            assert!(filling.is_written(), "what is released is on the device");
            if self.spare.len() < SPARE_MAX {
                self.spare.push(filling.into_bytes());
            }
        }
    }

    /// Bytes of memory held.
    pub fn buffer_bytes(&self) -> u64 {
        (self.fillings.len() + self.spare.len()) as u64 * self.segment_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_when_all_is_on_the_device() {
        let mut segments = Segments::new(16 << 10, [7; 16]);
        let mut syncs = Syncs::new(false);
        for sequence in 1..5 {
            segments.begin(3, sequence, Stream::Fresh);
            segments.item((3, sequence), 64, 100).fill(sequence as u8);
            assert_eq!(segments.bytes_from(3, 64), [sequence as u8; 100]);
            assert_eq!((segments.sequence(3), segments.sequence(4)), (Some(sequence), None));
            segments.seal(3);
            assert_eq!(segments.piece(3, 0, 4096).expect("it is there")[64], sequence as u8);
            assert!(segments.safe(&mut syncs).eq([(3, 0)]));
            segments.piece_written(3, 0);
            assert!(segments.safe(&mut syncs).eq([(3, 4096)]));
            segments.release(3);
            assert!(!segments.has(3) && segments.bytes_from(3, 0).is_empty());
            assert_eq!(segments.buffer_bytes(), 16 << 10, "one is enough");
        }
    }
}
