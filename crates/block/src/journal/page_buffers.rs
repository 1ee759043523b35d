//! Pages of the table in memory: all of them, or the recently used ones.

use tiermem_base::Rng;
use tiermem_policy::Id;
use tiermem_policy::evict::clock::Clock;
use tiermem_policy::evict::{Departure, Domain, Evict, Item, Origin, Touch};

/// Stands for no frame.
pub const NO_FRAME: u32 = u32::MAX;
const NO_PAGE: u32 = u32::MAX;
const ALL: Domain = Domain(0);

/// A place for a page.
#[derive(Debug)]
struct Frame {
    bytes: Box<[u8]>,
    page: u32,
}

/// Buffers for pages. When there are too many pages, a clock chooses the one to drop; it skips pages used
/// since its last pass. A use costs one bit, and most uses are of a table that is in memory as a whole.
#[derive(Debug)]
pub struct Frames {
    frames: Vec<Frame>,
    free: Vec<u32>,
    order: Clock,
    /// The clock draws nothing.
    rng: Rng,
    pages_max: usize,
    /// The last search found no page to drop: this number of pages may come before the next search.
    patience: usize,
}

impl Frames {
    /// For `pages_max` pages, and more only while these are all in use.
    pub fn new(pages_max: usize) -> Self {
        let (order, rng) = (Clock::new(1, 1), Rng::seeded(0));
        Frames { frames: Vec::new(), free: Vec::new(), order, rng, pages_max, patience: 0 }
    }

    /// Most pages in memory.
    pub fn pages_max(&self) -> usize {
        self.pages_max
    }

    fn pages(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    /// Whether another page may come without one that goes.
    pub fn has_room(&self) -> bool {
        self.pages() < self.pages_max
    }

    /// The bytes of a page.
    #[inline]
    pub fn get(&self, frame: u32) -> &[u8] {
        &self.frames[frame as usize].bytes
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, frame: u32) -> &mut [u8] {
        self.used(frame);
        &mut self.frames[frame as usize].bytes
    }

    /// The page in it was of use.
    #[inline]
    pub fn used(&mut self, frame: u32) {
        self.order.hit(Id(frame), Touch { now: 0, write: false }, || ALL);
    }

    /// Takes a page in; its frame.
    pub fn insert(&mut self, page: u32, image: &[u8]) -> u32 {
        self.patience = self.patience.saturating_sub(1);
        let at = self.free.pop().unwrap_or_else(|| {
            self.frames.push(Frame { bytes: Box::default(), page: NO_PAGE });
            self.frames.len() as u32 - 1
        });
        let frame = &mut self.frames[at as usize];
        if frame.bytes.is_empty() {
            frame.bytes = image.into();
        } else {
            frame.bytes.copy_from_slice(image);
        }
        frame.page = page;
        let item = Item { key: page.into(), size: 1, dirty: false, now: 0 };
        self.order.insert(Id(at), ALL, Origin::Admitted(item));
        at
    }

    /// Some page may go now that could not before.
    #[inline]
    pub fn look_again(&mut self) {
        self.patience = 0;
    }

    /// Drops a page where there are too many, one that `may_go`; returns which.
    pub fn evict(&mut self, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        if self.pages() <= self.pages_max || self.patience > 0 {
            return None;
        }
        let frames = &mut self.frames;
        let victim = self.order.victim(ALL, 0, &mut self.rng, |Id(at)| may_go(frames[at as usize].page));
        let Some(Id(at)) = victim else {
            // To look costs as much as there are pages; shared out among these it costs each of them a little.
            self.patience = 1 + self.pages() / 8;
            return None;
        };
        self.order.remove(Id(at), ALL, Departure::Evicted);
        self.free.push(at);
        let frame = &mut self.frames[at as usize];
        if at as usize >= self.pages_max {
            // It was one too many.
            frame.bytes = Box::default();
        }
        Some(std::mem::replace(&mut frame.page, NO_PAGE))
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let bytes: usize = self.frames.iter().map(|frame| frame.bytes.len()).sum();
        (bytes + self.frames.capacity() * size_of::<Frame>()) as u64 + self.order.metadata_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::page::PAGE_BYTES;

    #[test]
    fn what_was_used_stays_and_what_may_not_go_does_not() {
        let mut frames = Frames::new(2);
        let places: Vec<u32> = (0..3).map(|page| frames.insert(page, &[page as u8; PAGE_BYTES])).collect();
        assert!(!frames.has_room());
        assert_eq!(frames.evict(|_| false), None);
        assert_eq!(frames.evict(|_| true), None, "it is not looked at again for nothing");
        frames.look_again();
        frames.used(places[0]);
        assert_eq!(frames.evict(|page| page != 1), Some(2));
        assert_eq!(frames.evict(|_| true), None, "there are not too many any more");
        assert_eq!((frames.get(places[0])[7], frames.get(places[1])[7]), (0, 1));
        assert_eq!(frames.insert(9, &[9; PAGE_BYTES]), places[2]);
    }
}
