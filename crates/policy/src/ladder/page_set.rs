//! Set of page numbers, as bits.

/// Pages below a fixed capacity, each in the set or not.
#[derive(Clone, Debug)]
pub struct PageSet {
    words: Vec<u64>,
    capacity: u32,
    len: u32,
    /// No member lies in a word before this one.
    first_word: usize,
    /// No member lies in a word behind this one.
    last_word: usize,
}

impl PageSet {
    /// No page of `capacity`.
    pub fn empty(capacity: u32) -> Self {
        PageSet {
            words: vec![0; capacity.div_ceil(64) as usize],
            capacity,
            len: 0,
            first_word: 0,
            last_word: 0,
        }
    }

    /// All pages of `capacity`.
    pub fn full(capacity: u32) -> Self {
        let mut set = PageSet::empty(capacity);
        set.words.fill(u64::MAX);
        if !capacity.is_multiple_of(64)
            && let Some(last) = set.words.last_mut()
        {
            *last = (1 << (capacity % 64)) - 1;
        }
        set.len = capacity;
        set.last_word = set.words.len().saturating_sub(1);
        set
    }

    /// How many pages there can be.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Members.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether a page below the capacity is a member.
    pub fn contains(&self, page: u32) -> bool {
        self.words[page as usize / 64] & 1 << (page % 64) != 0
    }

    /// Adds a page.
    pub fn insert(&mut self, page: u32) {
        let word = page as usize / 64;
        let bit = 1u64 << (page % 64);
        self.len += u32::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
        self.first_word = self.first_word.min(word);
        self.last_word = self.last_word.max(word);
    }

    /// Takes a page out.
    pub fn remove(&mut self, page: u32) {
        let word = &mut self.words[page as usize / 64];
        let bit = 1u64 << (page % 64);
        self.len -= u32::from(*word & bit != 0);
        *word &= !bit;
    }

    /// The lowest member.
    pub fn first(&mut self) -> Option<u32> {
        while *self.words.get(self.first_word)? == 0 {
            self.first_word += 1;
        }
        Some(self.first_word as u32 * 64 + self.words[self.first_word].trailing_zeros())
    }

    /// The highest member.
    pub fn last(&self) -> Option<u32> {
        self.last_common(self)
    }

    /// Makes the next [`Self::last`] fast where members at the end were taken out.
    pub fn trim(&mut self) {
        while self.last_word > 0 && self.words[self.last_word] == 0 {
            self.last_word -= 1;
        }
    }

    /// The highest page that is in both sets. It is looked for from the highest on that was ever in, so not for every request.
    pub fn last_common(&self, other: &PageSet) -> Option<u32> {
        let until = self.last_word.min(other.last_word) + 1;
        let words = self.words.iter().zip(&other.words).take(until).enumerate();
        words.rev().find_map(|(at, (a, b))| highest(at, a & b))
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.words.capacity() * 8) as u64
    }
}

/// The highest page of a word.
fn highest(at: usize, word: u64) -> Option<u32> {
    Some(at as u32 * 64 + word.checked_ilog2()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn equals_a_set(
            capacity in 1u32..300,
            is_full in any::<bool>(),
            ops in prop::collection::vec((any::<bool>(), any::<u32>()), 0..300),
        ) {
            let mut set = if is_full { PageSet::full(capacity) } else { PageSet::empty(capacity) };
            let mut model: BTreeSet<u32> = if is_full { (0..capacity).collect() } else { BTreeSet::new() };
            for (add, page) in ops {
                let page = page % capacity;
                if add { set.insert(page); model.insert(page); } else { set.remove(page); model.remove(&page); }
                if page % 3 == 0 { set.trim(); }
                prop_assert_eq!(set.last(), model.last().copied());
            }
            prop_assert_eq!(set.len() as usize, model.len());
            prop_assert_eq!(set.first(), model.first().copied());
            prop_assert_eq!(set.last_common(&PageSet::full(capacity)), model.last().copied());
        }
    }
}
