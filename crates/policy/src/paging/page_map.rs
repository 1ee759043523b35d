//! Frames of pages: which frame each page has, and which page each frame is.
//!
//! Pages are sparse: a program reserves terabytes and touches gibibytes, in a hundred thousand mappings. So a frame is given to a
//! page when it is first present, and the map has a chunk of 64 pages wherever one of them has a frame: 256 bytes, and its place
//! in an ordered map. A page costs 12 bytes where its neighbours are present too, 300 where it is alone.

use std::collections::BTreeMap;

use super::page_range::PageRange;
use crate::Id;
use crate::column::Column;
use crate::frames::Frame;

/// Pages of a chunk.
const CHUNK_LOG2: u32 = 6;
pub(super) const CHUNK: u64 = 1 << CHUNK_LOG2;
/// Chunks that there can be: their pages have 32 bits.
const CHUNKS_MAX: u32 = 1 << (32 - CHUNK_LOG2);

/// A page without a frame holds 0, any other its frame's number plus one.
#[derive(Clone, Debug, Default)]
pub(super) struct PageMap {
    /// From a page's upper bits to its chunk.
    chunks: BTreeMap<u64, u32>,
    /// Chunk after chunk.
    frames: Column<u32>,
    /// Pages of each chunk that have a frame.
    held: Column<u32>,
    chunks_made: u32,
    free_chunks: Vec<u32>,
    /// The page of each frame.
    pages: Column<u64>,
    frames_made: u32,
    free_frames: Vec<u32>,
    /// The chunk that was found last. One that is free holds nothing, so it may be remembered until it is used again.
    last: Option<(u64, u32)>,
}

impl PageMap {
    /// The frame of a page.
    pub fn find(&self, page: u64) -> Option<Frame> {
        let chunk = *self.chunks.get(&(page >> CHUNK_LOG2))?;
        self.frames.get(cell(chunk, page)).checked_sub(1).map(Frame)
    }

    /// The same, for pages that are asked for one after the other: it remembers their chunk.
    #[inline]
    pub fn get(&mut self, page: u64) -> Option<Frame> {
        let upper = page >> CHUNK_LOG2;
        let chunk = match self.last {
            Some((last, chunk)) if last == upper => chunk,
            _ => *self.chunks.get(&upper)?,
        };
        self.last = Some((upper, chunk));
        self.frames.get(cell(chunk, page)).checked_sub(1).map(Frame)
    }

    /// The frame of a page, which is given one if it has none; `None` where there are as many as there can be.
    pub fn give(&mut self, page: u64) -> Option<Frame> {
        if let Some(frame) = self.get(page) {
            return Some(frame);
        }
        if self.free_frames.is_empty() && self.frames_made == Id::COUNT_MAX {
            return None;
        }
        let chunk = self.chunk_of(page >> CHUNK_LOG2)?;
        let frame = self.free_frames.pop().unwrap_or_else(|| {
            self.frames_made += 1;
            self.pages.grow_to(Id(self.frames_made - 1));
            self.frames_made - 1
        });
        *self.pages.at(Id(frame)) = page;
        *self.frames.at(cell(chunk, page)) = frame + 1;
        *self.held.at(Id(chunk)) += 1;
        Some(Frame(frame))
    }

    fn chunk_of(&mut self, upper: u64) -> Option<u32> {
        let chunk = match self.chunks.get(&upper) {
            Some(chunk) => *chunk,
            None => {
                let chunk = match self.free_chunks.pop() {
                    Some(chunk) => chunk,
                    None if self.chunks_made == CHUNKS_MAX => return None,
                    None => {
                        self.chunks_made += 1;
                        self.chunks_made - 1
                    }
                };
                self.frames.grow_to(cell(chunk, CHUNK - 1));
                self.held.grow_to(Id(chunk));
                self.chunks.insert(upper, chunk);
                chunk
            }
        };
        self.last = Some((upper, chunk));
        Some(chunk)
    }

    /// Takes a page's frame away.
    pub fn take(&mut self, page: u64) {
        let upper = page >> CHUNK_LOG2;
        let Some(frame) = self.get(page) else { return };
        let Some(chunk) = self.chunks.get(&upper).copied() else { return };
        *self.frames.at(cell(chunk, page)) = 0;
        self.free_frames.push(frame.0);
        let held = self.held.at(Id(chunk));
        *held -= 1;
        if *held == 0 {
            self.chunks.remove(&upper);
            self.free_chunks.push(chunk);
        }
    }

    /// The page of a frame that has one.
    #[inline]
    pub fn page_of(&self, frame: Frame) -> u64 {
        self.pages.get(frame.id())
    }

    /// How many frames were made: their numbers are below it.
    pub fn frames(&self) -> u32 {
        self.frames_made
    }

    /// Of the first chunk that a range reaches into: its first page, and the numbers of its pages' frames plus one.
    pub fn next_chunk(&self, range: PageRange) -> Option<(u64, [u32; CHUNK as usize])> {
        if range.first >= range.end {
            return None;
        }
        let (first, last) = (range.first >> CHUNK_LOG2, (range.end - 1) >> CHUNK_LOG2);
        let (upper, chunk) = self.chunks.range(first..=last).next()?;
        Some((upper << CHUNK_LOG2, std::array::from_fn(|at| self.frames.get(cell(*chunk, at as u64)))))
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        // A node of the ordered map is at least half full: 11 entries.
        let entries = self.chunks.len() * (size_of::<(u64, u32)>() * 2 + 8);
        let free = 4 * (self.free_chunks.capacity() + self.free_frames.capacity());
        self.frames.bytes() + self.held.bytes() + self.pages.bytes() + (entries + free) as u64
    }

    /// Checks that pages and frames know each other.
    pub fn audit(&self) {
        let mut seen = 0;
        for (upper, chunk) in &self.chunks {
            let mut held = 0;
            for page in (upper << CHUNK_LOG2)..=(upper << CHUNK_LOG2) + (CHUNK - 1) {
                if let Some(frame) = self.frames.get(cell(*chunk, page)).checked_sub(1) {
                    held += 1;
                    assert_eq!(self.pages.get(Id(frame)), page, "frame {frame} knows its page");
                }
            }
            assert!(held > 0 && held == self.held.get(Id(*chunk)), "a chunk that holds nothing is free");
            seen += held;
        }
        assert_eq!(
            seen as usize + self.free_frames.len(),
            self.frames_made as usize,
            "frames have pages or are free"
        );
        assert_eq!(
            self.chunks.len() + self.free_chunks.len(),
            self.chunks_made as usize,
            "chunks are used or free"
        );
    }
}

/// The place of a page of a chunk.
#[inline]
fn cell(chunk: u32, page: u64) -> Id {
    Id(chunk << CHUNK_LOG2 | (page % CHUNK) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As an ordered map of pages would have it. A frame's number is given again once its page is gone.
        #[test]
        fn equals_an_ordered_map(ops in prop::collection::vec((0u64..300, 0u64..40, 0u8..6), 1..300)) {
            let mut map = PageMap::default();
            let mut naive = BTreeMap::<u64, Frame>::new();
            for (page, pages, what) in ops {
                let range = PageRange { first: page, end: page + pages };
                match what {
                    0 => {
                        map.take(page);
                        naive.remove(&page);
                    }
                    1 => {
                        let mut found = Vec::new();
                        let mut rest = range;
                        while let Some((start, frames)) = map.next_chunk(rest) {
                            let frames = (start..).zip(frames).filter(|(page, frame)| *frame > 0 && range.holds(*page));
                            found.extend(frames.map(|(page, frame)| (page, Frame(frame - 1))));
                            rest.first = start + CHUNK;
                        }
                        let expected: Vec<_> = naive.range(range.first..range.end).map(|(page, frame)| (*page, *frame)).collect();
                        prop_assert_eq!(found, expected);
                    }
                    _ => {
                        let frame = map.give(page).unwrap();
                        prop_assert_eq!(map.page_of(frame), page);
                        prop_assert_eq!(*naive.entry(page).or_insert(frame), frame);
                    }
                }
                map.audit();
                prop_assert_eq!(map.get(page), naive.get(&page).copied());
                prop_assert_eq!(map.find(page + 1), naive.get(&(page + 1)).copied());
                prop_assert_eq!(map.frames() as usize - map.free_frames.len(), naive.len());
            }
        }
    }
}
