//! The segment that is being emptied, as it was read: what stands in it, and who survives.

use tiermem_policy::log::{Appended, ITEM_ALIGN_BYTES, SEGMENT_HEADER_BYTES, Stream};
use tiermem_policy::shard::Lying;
use tiermem_sys::aligned::AlignedBuffer;

use super::announce::Emptied;
use super::format::{BLOCK_BYTES, ITEM_HEADER_BYTES, ItemHeader, find_item};
use super::{Flash, Purpose};
use crate::block::Request;

/// A segment's bytes.
#[derive(Debug)]
pub(super) struct Victim {
    pub(super) segment: u32,
    pub(super) sequence: u32,
    pub(super) bytes: AlignedBuffer,
}

impl Flash {
    /// Reads a whole segment, which is then the one that is being emptied.
    pub fn read(&mut self, segment: u32) {
        let buffer = AlignedBuffer::zeroed(self.layout.segment_bytes as usize);
        let offset = self.layout.segment(segment);
        self.reading = Some(segment);
        self.requests.push(Request::read(Purpose::Victim.token(), offset, buffer));
    }

    /// The item that stands at byte `at` of the segment that is being emptied, of this filling.
    pub fn header_at(&self, segment: u32, sequence: u32, at: u32) -> Option<ItemHeader> {
        let victim = self.victim.as_ref().filter(|victim| victim.segment == segment)?;
        ItemHeader::read(victim.bytes.get(at as usize..)?, sequence)
    }

    /// The first item at byte `from` or behind it in the same page. Power loss may damage an item and leave those behind it
    /// whole: whoever looks for them finds them, so they are found here as well.
    pub fn lying_at(&self, segment: u32, sequence: u32, from: u32) -> Option<Lying> {
        let page_end = (from + 1).next_multiple_of(BLOCK_BYTES as u32);
        let mut places = (from..page_end).step_by(ITEM_ALIGN_BYTES as usize);
        let (at, header) = places.find_map(|at| Some((at, self.header_at(segment, sequence, at)?)))?;
        let victim = self.victim.as_ref()?;
        let block = at as usize / BLOCK_BYTES * BLOCK_BYTES;
        // A later version of the key may begin in the same block; then this one is buried.
        let first = if block == 0 { SEGMENT_HEADER_BYTES as usize } else { 0 };
        let latest = find_item(&victim.bytes[block..], first, header.hash, header.sequence);
        let is_latest = latest.is_some_and(|(latest, _)| block + latest == at as usize);
        let is_expired = header.expires_at_ms != 0 && header.expires_at_ms <= self.now_ms;
        let is_over = is_expired || self.is_flushed(&header);
        Some(Lying { at, hash: header.hash, bytes: header.item_len() as u32, is_latest, is_over })
    }

    /// Appends the item at byte `at` of the segment that is being emptied again.
    pub fn append_survivor(&mut self, to: &Appended, at: u32) {
        let Some(victim) = self.victim.take() else { return };
        if let Some(header) = ItemHeader::read(&victim.bytes[at as usize..], victim.sequence) {
            let bytes = &victim.bytes[at as usize + ITEM_HEADER_BYTES..at as usize + header.item_len()];
            self.append(to, Stream::Kept, header, bytes);
        }
        self.victim = Some(victim);
    }

    /// Nothing is needed from a segment any more once what was appended by now is safe.
    pub fn free(&mut self, segment: u32) {
        self.victim = None;
        self.emptied.push(Emptied { segment, appended: self.appended, announced: None });
    }
}
