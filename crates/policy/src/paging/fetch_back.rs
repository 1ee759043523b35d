//! Held pages that the kernel has taken: they are fetched back, as long as that pays.
//!
//! A page that is fetched back takes the room of another, and if it is not used that was for nothing. So there is a [`Credit`], also for
//! what is fetched with a page fault in what is held. A plan that holds what is not used costs so many reads, and no more.

use std::collections::VecDeque;

use crate::prefetch::credit::Credit;

/// The credit.
const CREDIT_PAGES: u32 = 512;
/// Pages that wait; of more the oldest are left out, which fault.
const TAKEN_MAX: usize = 4096;

/// What was taken, and the credit.
#[derive(Clone, Debug)]
pub(super) struct FetchBack {
    taken: VecDeque<u64>,
    pub credit: Credit,
}

impl Default for FetchBack {
    fn default() -> Self {
        FetchBack { taken: VecDeque::new(), credit: Credit::full(CREDIT_PAGES) }
    }
}

impl FetchBack {
    /// The kernel has taken a page that is held.
    pub fn add(&mut self, page: u64) {
        if self.taken.len() == TAKEN_MAX {
            self.taken.pop_front();
        }
        self.taken.push_back(page);
    }

    /// The next page to fetch back, for which the credit is charged: those taken first come first.
    pub fn next(&mut self) -> Option<u64> {
        if self.credit.pages() == 0 {
            return None;
        }
        let page = self.taken.pop_front()?;
        self.credit.spend();
        Some(page)
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        (self.taken.capacity() * size_of::<u64>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_used_is_fetched_back_no_more() {
        let mut back = FetchBack::default();
        (0..5000).for_each(|page| back.add(page));
        assert_eq!(back.next(), Some(904), "the oldest are left out");
        assert_eq!((0..5000).filter_map(|_| back.next()).count(), 511);
        for _ in 0..10 {
            assert!(!back.credit.earn());
        }
        assert_eq!((0..5000).filter_map(|_| back.next()).count(), 20);
        assert!((0..5000).filter(|_| back.credit.earn()).count() > 4500);
        assert_eq!((0..5000).filter_map(|_| back.next()).count(), 512);
        assert!(back.metadata_bytes() < 1 << 16);
    }
}
