//! Reserved range: a window of pages of a tier that is held for one large item. Pages that become free in it are given to no
//! other.

use std::ops::Range;

/// The window, and how many of its pages are free.
#[derive(Clone, Debug, Default)]
pub(in crate::ladder) struct Held {
    window: Range<u32>,
    free: u32,
}

impl Held {
    /// A window of which nothing is known to be free.
    pub(super) fn of(window: Range<u32>) -> Self {
        Held { window, free: 0 }
    }

    /// Its pages.
    pub(super) fn window(&self) -> Range<u32> {
        self.window.clone()
    }

    /// Whether the page is held; it is free from now on.
    pub(super) fn keeps(&mut self, page: u32) -> bool {
        let is_held = self.window.contains(&page);
        self.free += u32::from(is_held);
        debug_assert!(self.free as usize <= self.window.len(), "a page of the window becomes free once");
        is_held
    }

    /// Free pages of the window, which are not given out.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// Whether any of these pages is held.
    pub fn overlaps(&self, pages: &Range<u32>) -> bool {
        pages.start < self.window.end && self.window.start < pages.end
    }

    /// Whether there is a window and nothing lies in it.
    pub fn is_free(&self) -> bool {
        !self.window.is_empty() && self.free as usize == self.window.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_what_becomes_free_in_it() {
        let mut held = Held::of(3..6);
        assert!(!held.keeps(2) && !held.keeps(6) && held.free() == 0);
        assert!(held.keeps(3) && held.keeps(5) && !held.is_free());
        assert!(held.keeps(4) && held.is_free());
        assert!(
            held.overlaps(&(0..4))
                && held.overlaps(&(5..9))
                && !held.overlaps(&(0..3))
                && !held.overlaps(&(6..9))
        );
        let none = Held::default();
        assert!(!none.is_free() && !none.overlaps(&(0..9)));
    }
}
