//! Held pages that the kernel has taken: they are fetched back, as long as that pays.
//!
//! A page that is fetched back takes the room of another, and if it is not used that was for nothing. So there is a credit: a page
//! fetched back costs one, and one that is used then gives it back. A plan that holds what is not used costs so many reads, and no more.

use std::collections::VecDeque;

/// The credit to begin with, and at most.
const CREDIT_PAGES: u32 = 1024;
/// Pages that wait; of more the oldest are left out, which fault.
const TAKEN_MAX: usize = 4096;

/// What was taken, and the credit.
#[derive(Clone, Debug)]
pub(super) struct FetchBack {
    taken: VecDeque<u64>,
    credit_pages: u32,
}

impl Default for FetchBack {
    fn default() -> Self {
        FetchBack { taken: VecDeque::new(), credit_pages: CREDIT_PAGES }
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
        if self.credit_pages == 0 {
            return None;
        }
        let page = self.taken.pop_front()?;
        self.credit_pages -= 1;
        Some(page)
    }

    /// A held page that was fetched ahead is used, or one did not need to be fetched.
    pub fn used(&mut self) {
        self.credit_pages = (self.credit_pages + 1).min(CREDIT_PAGES);
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
        assert_eq!((0..5000).filter_map(|_| back.next()).count(), 1023);
        (0..10).for_each(|_| back.used());
        assert_eq!((0..5000).filter_map(|_| back.next()).count(), 10);
        (0..5000).for_each(|_| back.used());
        assert_eq!((0..5000).filter_map(|_| back.next()).count(), 1024);
        assert!(back.metadata_bytes() < 1 << 16);
    }
}
