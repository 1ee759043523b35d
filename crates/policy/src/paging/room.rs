//! Room: how much DRAM there is for the pages that are known, and whether it is full.

use super::config::Watermarks;

/// More than one page in so many that are not known are a file cache.
const OTHERS_ONE_OF: u32 = 8;

/// DRAM, whoever reclaims, and what is used of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Pages of DRAM.
    pub dram_pages: u32,
    /// Pages that a prefetcher needs room for ahead of a sweep.
    pages_ahead: u32,
    /// Pages that are used: as told last, and what has come and gone since; `None`: it is not told, and all are known.
    charged_pages: Option<u64>,
}

impl Room {
    pub fn new(dram_pages: u32, pages_ahead: u32) -> Self {
        Room { dram_pages, pages_ahead, charged_pages: None }
    }

    /// So many pages are used. Returns what that leaves for those that are known: what is not among them, such as a file cache, takes
    /// room from them, of which a half stays theirs.
    pub fn charge(&mut self, pages: u64, known_pages: u32) -> u32 {
        self.charged_pages = Some(pages);
        let others = pages.saturating_sub(known_pages.into()).min(u64::from(self.dram_pages) / 2) as u32;
        self.dram_pages - others
    }

    /// Whether so little of DRAM is free that what comes next makes something leave.
    pub fn is_full(&self, known_pages: u32) -> bool {
        self.used_pages(known_pages).saturating_add(self.next_pages()) >= u64::from(self.dram_pages)
    }

    /// Whether less than half of what comes next has room, and that for pages that are known: a file cache takes what room there is.
    pub fn is_crowded(&self, known_pages: u32) -> bool {
        let used_pages = self.used_pages(known_pages);
        let others = used_pages.saturating_sub(known_pages.into());
        used_pages.saturating_add(self.next_pages() / 2) >= u64::from(self.dram_pages)
            && others < u64::from(self.dram_pages / OTHERS_ONE_OF)
    }

    /// Pages that are fetched ahead of a sweep, or have come for it, at most.
    pub fn pages_ahead(&self) -> u32 {
        self.pages_ahead
    }

    fn used_pages(&self, known_pages: u32) -> u64 {
        self.charged_pages.unwrap_or(known_pages.into())
    }

    /// Pages that may come before anything is dropped for them.
    fn next_pages(&self) -> u64 {
        u64::from(Watermarks::of(self.dram_pages).high + self.pages_ahead)
    }

    /// A page has come to DRAM since it was last told what is used.
    pub fn has_come(&mut self) {
        self.charged_pages = self.charged_pages.map(|pages| pages.saturating_add(1));
    }

    /// A page has left.
    pub fn has_left(&mut self) {
        self.charged_pages = self.charged_pages.map(|pages| pages.saturating_sub(1));
    }
}
