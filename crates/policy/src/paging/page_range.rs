//! Ranges of pages.

/// Pages that follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PageRange {
    /// The first page.
    pub first: u64,
    /// Behind the last one.
    pub end: u64,
}

impl PageRange {
    /// One page.
    pub fn one(page: u64) -> Self {
        PageRange { first: page, end: page.saturating_add(1) }
    }

    /// Whether the page is among them.
    #[inline]
    pub fn holds(&self, page: u64) -> bool {
        self.first <= page && page < self.end
    }

    /// The parts of it that lie outside of another.
    pub(super) fn without(self, other: PageRange) -> impl Iterator<Item = PageRange> {
        let before = PageRange { end: self.end.min(other.first), ..self };
        let behind = PageRange { first: self.first.max(other.end), ..self };
        [before, behind].into_iter().filter(|part| part.first < part.end)
    }
}
