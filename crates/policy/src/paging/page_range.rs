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

    /// The fewest parts of it that each have 2^n pages and begin at a multiple of that: the first page, and n.
    pub fn aligned(self) -> impl Iterator<Item = (u64, u32)> {
        let mut first = self.first;
        std::iter::from_fn(move || {
            let left = self.end.checked_sub(first).filter(|left| *left > 0)?;
            let log2 = first.trailing_zeros().min(left.ilog2());
            let part = (first, log2);
            first += 1 << log2;
            Some(part)
        })
    }

    /// The parts of it that lie outside of another.
    pub(super) fn without(self, other: PageRange) -> impl Iterator<Item = PageRange> {
        let before = PageRange { end: self.end.min(other.first), ..self };
        let behind = PageRange { first: self.first.max(other.end), ..self };
        [before, behind].into_iter().filter(|part| part.first < part.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_parts_are_the_range() {
        let parts = |first, end| PageRange { first, end }.aligned().collect::<Vec<_>>();
        assert_eq!(parts(64, 128), [(64, 6)]);
        assert_eq!(parts(0, 3), [(0, 1), (2, 0)]);
        assert_eq!(parts(63, 130), [(63, 0), (64, 6), (128, 1)]);
        assert_eq!(parts(5, 5), []);
        assert_eq!(parts(9, 5), []);
        for (first, end) in [(1, 1000), (777, 778), (u64::MAX - 5, u64::MAX)] {
            let pages: u64 = parts(first, end).iter().map(|(_, log2)| 1_u64 << log2).sum();
            assert_eq!(pages, end - first);
        }
    }
}
