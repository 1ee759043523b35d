//! Checkpoint bytes, written a part at a time.

use tiermem_policy::log::{Filled, LogPlace};
use tiermem_sys::aligned::AlignedBuffer;

use super::DATABASES;
use super::format::{BLOCK_BYTES, CHECKPOINT_HEADER_BYTES, CheckpointHeader, entry_record, segment_record};
use super::journal::Position;

/// Gathered bytes of the checkpoint under way.
#[derive(Debug)]
pub struct Gathered {
    /// Where replaying begins once it is complete.
    pub journal: Position,
    /// The first filling of each database that was not flushed when it began.
    pub flushed: [u32; DATABASES],
    /// Items per database then.
    pub items: [u64; DATABASES],
    part: Vec<u8>,
    segments: u32,
    entries: u32,
}

impl Gathered {
    /// A checkpoint with no part yet.
    pub fn new(journal: Position, flushed: [u32; DATABASES], items: [u64; DATABASES]) -> Self {
        let part = vec![0; CHECKPOINT_HEADER_BYTES];
        Gathered { journal, flushed, items, part, segments: 0, entries: 0 }
    }

    /// A segment, before all items of the part.
    pub fn add_segment(&mut self, filled: Filled) {
        debug_assert_eq!(self.entries, 0, "segments stand before items");
        self.part.extend_from_slice(&segment_record(filled));
        self.segments += 1;
    }

    /// An item.
    pub fn add_item(&mut self, hash: u64, place: LogPlace) {
        self.part.extend_from_slice(&entry_record(hash, place.0));
        self.entries += 1;
    }

    /// Takes the present part, with its header: the device's name, the epoch of the
    /// superblock that will name it, the segment of the next part. Another part begins.
    pub fn take_part(&mut self, uuid: [u8; 16], epoch: u64, next: u32) -> AlignedBuffer {
        let (segments, entries) = (std::mem::take(&mut self.segments), std::mem::take(&mut self.entries));
        CheckpointHeader { uuid, epoch, next, segments, entries }.seal(&mut self.part);
        let mut buffer = AlignedBuffer::zeroed(self.part.len().next_multiple_of(BLOCK_BYTES));
        buffer[..self.part.len()].copy_from_slice(&self.part);
        self.part.truncate(CHECKPOINT_HEADER_BYTES);
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_says_how_many_records_it_has() {
        let position = Position { half: 0, skipped: 0, sequence: 1 };
        let mut gathered = Gathered::new(position, [0; DATABASES], [0; DATABASES]);
        for (segments, entries) in [(3, 500), (0, 2), (1, 0)] {
            (0..segments).for_each(|segment| gathered.add_segment(Filled { segment, ..Filled::default() }));
            (0..entries).for_each(|hash| gathered.add_item(hash << 24, LogPlace(7)));
            let part = gathered.take_part([5; 16], 9, 4);
            let header = CheckpointHeader::read(&part).expect("it is sound");
            let entries = entries as u32;
            assert_eq!(header, CheckpointHeader { uuid: [5; 16], epoch: 9, next: 4, segments, entries });
            assert!(part.len().is_multiple_of(BLOCK_BYTES));
        }
    }
}
