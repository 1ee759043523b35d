//! How much of a tier's address space may be used: where it ends, and how many pages before that.

use super::slots::Slots;

impl Slots {
    /// Pages that there is address space for.
    pub fn pages_total(&self) -> u32 {
        self.free_pages.capacity()
    }

    /// How many pages may be given out.
    pub fn page_limit(&self) -> u32 {
        self.page_limit
    }

    /// Changes how many pages may be given out. What is above the limit stays until reclaimed.
    pub fn set_page_limit(&mut self, pages: u32) {
        self.page_limit = pages.min(self.end);
    }

    /// Changes where the pages end that may be given out. What lies behind stays until it was emptied, so that a tier that was made
    /// smaller has the same order of pages as one that always was.
    pub fn set_end(&mut self, end: u32) {
        let (before, end) = (self.end, end.min(self.pages_total()));
        self.end = end;
        for page in end..before {
            self.free_pages.remove(page);
        }
        for page in before..end {
            if self.is_free(page) && !self.is_held(&(page..page + 1)) {
                self.free_pages.insert(page);
            }
        }
        self.page_limit = self.page_limit.min(end);
    }

    /// A page has become free.
    pub(super) fn set_free(&mut self, page: u32) {
        if page < self.end {
            self.free_pages.insert(page);
        }
    }

    /// The last page behind the end that something lies on, of a large item its first.
    pub fn used_behind_end(&mut self) -> Option<u32> {
        while self.pages.len() as u32 > self.end {
            let last = self.pages.len() as u32 - 1;
            if !self.is_free(last) {
                return Some(self.run_head(last));
            }
            self.pages.pop();
        }
        None
    }

    /// Whether something lies behind the end.
    pub fn is_used_behind_end(&self) -> bool {
        (self.end..self.pages.len() as u32).any(|page| !self.is_free(page))
    }

    /// Whether memory is held that may be given back: behind the end, or more of it than may be used.
    pub fn has_surplus(&self) -> bool {
        self.touched.len() > self.page_limit || self.touched.last().is_some_and(|page| page >= self.end)
    }

    /// A free page that was written and is not to be used, to be given back to the system. Asked in every step, so it costs
    /// nothing while there is none.
    pub fn take_surplus(&mut self) -> Option<u32> {
        if !self.has_surplus() {
            return None;
        }
        let behind = self.touched.last().filter(|&page| page >= self.end && self.is_free(page));
        // What is used was touched: where all that was touched is used, there is no free one to look for.
        let is_above = self.touched.len() > self.page_limit.max(self.pages_used());
        let above = || is_above.then(|| self.touched.last_common(&self.free_pages)).flatten();
        let page = behind.or_else(above)?;
        self.touched.remove(page);
        self.touched.trim();
        Some(page)
    }
}
