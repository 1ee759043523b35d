//! Read buffer of segment cleaning: the segment being emptied, its items, and which of them survive.

use tiermem_policy::log::{ITEM_ALIGN_BYTES, SEGMENT_HEADER_BYTES};
use tiermem_policy::shard::Lying;
use tiermem_sys::aligned::AlignedBuffer;

use super::format::{BLOCK_BYTES, ITEM_HEADER_BYTES, ItemHeader, find_item};

/// A segment's bytes.
#[derive(Debug)]
struct Victim {
    segment: u32,
    sequence: u32,
    bytes: AlignedBuffer,
}

/// The segment that is read to be emptied, and the one that was.
#[derive(Debug, Default)]
pub struct Emptying {
    reading: Option<u32>,
    victim: Option<Victim>,
}

impl Emptying {
    /// A segment is being read.
    pub fn begin(&mut self, segment: u32) {
        debug_assert!(self.reading.is_none(), "one segment is emptied at a time");
        self.reading = Some(segment);
    }

    /// The segment that was being read; ends the reading.
    pub fn take_reading(&mut self) -> Option<u32> {
        self.reading.take()
    }

    /// It was read, in this filling.
    pub fn arrived(&mut self, segment: u32, sequence: u32, bytes: AlignedBuffer) {
        self.victim = Some(Victim { segment, sequence, bytes });
    }

    /// Nothing is needed of it any more.
    pub fn end(&mut self) {
        self.victim = None;
    }

    /// The item at byte `at` of the segment, in this filling of it.
    pub fn header_at(&self, segment: u32, sequence: u32, at: u32) -> Option<ItemHeader> {
        let victim = self.victim.as_ref().filter(|victim| victim.segment == segment)?;
        ItemHeader::read(victim.bytes.get(at as usize..)?, sequence)
    }

    /// The first item at byte `from` or behind it in the same page, in the form that the shard
    /// needs. Power loss may damage an item and leave the items behind it whole; a search
    /// finds those, so they are found here as well. `is_over`: whether an item has expired.
    pub fn lying_at(
        &self,
        (segment, sequence): (u32, u32),
        from: u32,
        is_over: impl FnOnce(&ItemHeader) -> bool,
    ) -> Option<Lying> {
        let page_end = (from + 1).next_multiple_of(BLOCK_BYTES as u32);
        let mut places = (from..page_end).step_by(ITEM_ALIGN_BYTES as usize);
        let (at, header) = places.find_map(|at| Some((at, self.header_at(segment, sequence, at)?)))?;
        let victim = self.victim.as_ref()?;
        let block = at as usize / BLOCK_BYTES * BLOCK_BYTES;
        // A later version of the key may begin in the same block; then this one is buried.
        let first = if block == 0 { SEGMENT_HEADER_BYTES as usize } else { 0 };
        let latest = find_item(&victim.bytes[block..], first, header.hash, header.sequence);
        let is_latest = latest.is_some_and(|(latest, _)| block + latest == at as usize);
        let bytes = header.item_len() as u32;
        Some(Lying { at, hash: header.hash, bytes, is_latest, is_over: is_over(&header) })
    }

    /// The item at byte `at`, and its key and value.
    pub fn survivor(&self, at: u32) -> Option<(ItemHeader, &[u8])> {
        let Victim { sequence, bytes, .. } = self.victim.as_ref()?;
        let item = bytes.get(at as usize..)?;
        let header = ItemHeader::read(item, *sequence)?;
        Some((header, &item[ITEM_HEADER_BYTES..header.item_len()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_segment_is_told_of_the_filling_that_was_read() {
        let mut bytes = AlignedBuffer::zeroed(8192);
        let header = ItemHeader {
            sequence: 5,
            hash: 9 << 24,
            value_len: 3,
            key_len: 2,
            db: 1,
            kind: 0,
            expires_at_ms: 0,
        };
        for at in [64, 512, 4096] {
            bytes[at + ITEM_HEADER_BYTES..at + header.item_len()].copy_from_slice(b"keval");
            header.seal(&mut bytes[at..at + header.item_len()]);
        }
        let mut emptying = Emptying::default();
        assert_eq!(emptying.header_at(2, 5, 64), None);
        emptying.begin(2);
        assert_eq!((emptying.take_reading(), emptying.take_reading()), (Some(2), None));
        emptying.arrived(2, 5, bytes);
        assert_eq!((emptying.header_at(2, 4, 64), emptying.header_at(3, 5, 64)), (None, None));
        let is_latest = |at| emptying.lying_at((2, 5), at, |_| false).expect("it is there").is_latest;
        assert_eq!([64, 512, 4096].map(is_latest), [false, true, true]);
        let found_from = |from| emptying.lying_at((2, 5), from, |_| true).map(|it| it.at);
        assert_eq!([72, 520, 4088].map(found_from), [Some(512), None, None], "in the same page");
        assert_eq!(emptying.survivor(512), Some((header, &b"keval"[..])));
        assert_eq!((emptying.survivor(8), emptying.survivor(9000)), (None, None));
        emptying.end();
        assert_eq!(emptying.survivor(64), None);
    }
}
