//! A window of pages of a tier that is held for one large item: what becomes free in it is given to nobody else.

use std::ops::Range;

use super::{PageState, Slots};

/// The window, and how many of its pages are free.
#[derive(Clone, Debug, Default)]
pub(in crate::ladder) struct Held {
    window: Range<u32>,
    free: u32,
}

impl Held {
    /// Whether the page is held; it is free from now on.
    pub fn keeps(&mut self, page: u32) -> bool {
        let is_held = self.window.contains(&page);
        self.free += u32::from(is_held);
        is_held
    }

    /// Free pages that nobody is given.
    pub fn free(&self) -> u32 {
        self.free
    }
}

impl Slots {
    /// Holds a window of pages. There is one at a time.
    pub fn hold(&mut self, window: Range<u32>) {
        self.held = Held { window: window.clone(), free: 0 };
        for page in window.filter(|&page| self.is_free(page)).collect::<Vec<_>>() {
            self.free_pages.remove(page);
            self.held.free += 1;
        }
    }

    /// Gives the window's free pages back to everybody.
    pub fn unhold(&mut self) {
        let Held { window, .. } = std::mem::take(&mut self.held);
        for page in window.filter(|&page| self.is_free(page)).collect::<Vec<_>>() {
            self.set_free(page);
        }
    }

    /// Whether any of these pages is held.
    pub fn is_held(&self, pages: &Range<u32>) -> bool {
        pages.start < self.held.window.end && self.held.window.start < pages.end
    }

    /// Whether a window is held and empty.
    pub fn is_held_free(&self) -> bool {
        !self.held.window.is_empty() && self.held.free as usize == self.held.window.len()
    }

    /// Whether the pages of the window may be given out, as many as they are.
    pub fn held_fits(&self) -> bool {
        self.pages_used() + self.held.window.len() as u32 <= self.page_limit()
    }

    /// Whether so many pages in a row can be given out.
    pub fn has_run(&mut self, pages: u32) -> bool {
        pages <= self.pages_free() && self.free_pages.first_run(pages).is_some()
    }

    /// Whether so many pages in a row are free, may they be given out or not.
    pub fn has_pages_in_row(&mut self, pages: u32) -> bool {
        self.free_pages.first_run(pages).is_some()
    }

    /// How many pages have to become free before so many may be given out.
    pub fn pages_short(&self, pages: u32) -> u32 {
        (self.pages_used() + self.held.free() + pages).saturating_sub(self.page_limit())
    }

    /// Whether nothing lies on a page.
    pub fn is_free(&self, page: u32) -> bool {
        self.pages.get(page as usize).is_none_or(|page| page.state == PageState::Free)
    }
}
