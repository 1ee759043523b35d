//! Room: how much DRAM there is for the pages that are known, and whether it is full.

use super::config::{Reclaim, UNLIMITED_PAGES, Watermarks};
use super::machine::Paging;
use crate::evict::Evict;

/// More than one page in so many that are not known are a file cache.
const OTHERS_ONE_OF: u32 = 8;

impl<E: Evict> Paging<E> {
    /// DRAM has so many pages from now on.
    pub(super) fn set_dram(&mut self, dram_pages: u32, watermarks: Watermarks) {
        self.dram_pages = dram_pages;
        self.set_capacity(dram_pages, watermarks);
    }

    /// All that DRAM is used for takes so many pages. What is not among the pages that are known, such as a file cache, takes room
    /// from them, of which a half stays theirs.
    pub(super) fn charged(&mut self, pages: u64) {
        self.charged_pages = Some(pages);
        let known_pages = u64::from(self.frames.space().used(0));
        let others = pages.saturating_sub(known_pages).min(u64::from(self.dram_pages) / 2) as u32;
        let dram_pages = self.dram_pages - others;
        self.set_capacity(dram_pages, Watermarks::of(dram_pages));
    }

    fn set_capacity(&mut self, dram_pages: u32, watermarks: Watermarks) {
        let (dram_pages, watermarks) = match self.config.reclaim {
            Reclaim::Order => (dram_pages, watermarks),
            Reclaim::Kernel => (UNLIMITED_PAGES, Watermarks::of(UNLIMITED_PAGES)),
        };
        let high = watermarks.high.min(dram_pages.saturating_sub(1));
        self.frames.set_capacity(0, dram_pages, &mut self.frame_acts);
        self.frames.set_watermarks(0, watermarks.low.min(high), high);
    }

    /// Whether so little of DRAM is free that what comes next makes something leave.
    pub(super) fn is_full(&self) -> bool {
        self.used_pages() + self.next_pages() >= u64::from(self.dram_pages)
    }

    /// Whether less than half of what comes next has room, and that for pages that are known: a file cache takes what room there is.
    pub(super) fn is_crowded(&self) -> bool {
        let others = self.used_pages().saturating_sub(u64::from(self.frames.space().used(0)));
        self.used_pages() + self.next_pages() / 2 >= u64::from(self.dram_pages)
            && others < u64::from(self.dram_pages / OTHERS_ONE_OF)
    }

    fn used_pages(&self) -> u64 {
        self.charged_pages.unwrap_or_else(|| u64::from(self.frames.space().used(0)))
    }

    /// Pages that may come before anything is dropped for them.
    fn next_pages(&self) -> u64 {
        u64::from(Watermarks::of(self.dram_pages).high + self.pages_ahead)
    }

    /// A page has come to DRAM since it was last told what is used.
    pub(super) fn has_come(&mut self) {
        self.charged_pages = self.charged_pages.map(|pages| pages + 1);
    }
}
