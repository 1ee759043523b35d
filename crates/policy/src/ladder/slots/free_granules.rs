//! Free granules of a tier, where runs can lie, as bits.
//!
//! A tier full of large items has many short gaps between them, so a search for a long one must not look at each. The granules are
//! divided into *blocks* (16 MiB of memory each). Of a block an upper bound is known for the free granules in a row within it, and a
//! block that has too few is passed over by a look at its two ends.

use crate::ladder::classes::PAGE_GRANULES;

/// Words of 64 granules in a block.
const BLOCK_WORDS: usize = 64;
const BLOCK_GRANULES: u32 = 64 * BLOCK_WORDS as u32;

/// The granules of a tier, each free or not.
#[derive(Clone, Debug)]
pub(super) struct FreeGranules {
    words: Vec<u64>,
    /// Of each block at least as many as the longest row of free granules within it has.
    longest: Vec<u32>,
}

impl FreeGranules {
    /// None of a tier of so many pages is free.
    pub fn none(pages: u32) -> Self {
        let words = (pages * PAGE_GRANULES).div_ceil(64) as usize;
        FreeGranules { words: vec![0; words], longest: vec![0; words.div_ceil(BLOCK_WORDS)] }
    }

    /// Says which granules of a page are free, a bit for each.
    pub fn set(&mut self, page: u32, free: u16) {
        let first = page * PAGE_GRANULES;
        let (word, shift) = (first as usize / 64, first % 64);
        self.words[word] = self.words[word] & !(u64::from(u16::MAX) << shift) | u64::from(free) << shift;
        if free != 0 {
            self.longest[word / BLOCK_WORDS] = BLOCK_GRANULES;
        }
    }

    /// The free granules of a page.
    #[cfg(test)]
    pub fn get(&self, page: u32) -> u16 {
        let first = page * PAGE_GRANULES;
        (self.words[first as usize / 64] >> (first % 64)) as u16
    }

    /// The first of the lowest `count` free granules in a row.
    pub fn first_row(&mut self, count: u32) -> Option<u32> {
        // Free granules in a row up to the block that is looked at.
        let mut before = 0;
        for block in 0..self.longest.len() {
            let first = block * BLOCK_WORDS;
            let words = &self.words[first..self.words.len().min(first + BLOCK_WORDS)];
            let start = first as u32 * 64 - before;
            let leading = leading(words);
            if before + leading >= count {
                return Some(start);
            }
            if leading == words.len() as u32 * 64 {
                before += leading;
                continue;
            }
            if self.longest[block] >= count {
                match longest_row(words, count) {
                    Row::Found(at) => return Some(first as u32 * 64 + at),
                    Row::Longest(longest) => self.longest[block] = longest,
                }
            }
            before = trailing(words);
        }
        None
    }

    /// How many granules in a row are free up to one that may not be, `count` at most.
    pub fn free_before(&self, granule: u32, count: u32) -> u32 {
        let is_free = |granule: &u32| self.words[*granule as usize / 64] >> (granule % 64) & 1 == 1;
        (granule.saturating_sub(count)..granule).rev().take_while(is_free).count() as u32
    }

    /// How many granules in a row are free from one on, `count` at most.
    pub fn free_from(&self, granule: u32, count: u32) -> u32 {
        let end = granule.saturating_add(count).min(self.words.len() as u32 * 64);
        let is_free = |granule: &u32| self.words[*granule as usize / 64] >> (granule % 64) & 1 == 1;
        (granule..end).take_while(is_free).count() as u32
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.words.capacity() * 8 + self.longest.capacity() * 4) as u64
    }
}

/// Free granules at the start of a block.
fn leading(words: &[u64]) -> u32 {
    let full = words.iter().take_while(|word| **word == u64::MAX).count();
    full as u32 * 64 + words.get(full).map_or(0, |word| word.trailing_ones())
}

/// Free granules at the end of a block.
fn trailing(words: &[u64]) -> u32 {
    let full = words.iter().rev().take_while(|word| **word == u64::MAX).count();
    full as u32 * 64 + words.iter().rev().nth(full).map_or(0, |word| word.leading_ones())
}

enum Row {
    /// Enough free granules in a row, from here on.
    Found(u32),
    /// Not so many; the longest row.
    Longest(u32),
}

/// Looks for `count` free granules in a row within a block.
fn longest_row(words: &[u64], count: u32) -> Row {
    let (mut row, mut longest) = (0, 0);
    for (at, &word) in words.iter().enumerate() {
        let mut shift = 0;
        while shift < 64 {
            let rest = word >> shift;
            let free = rest.trailing_ones().min(64 - shift);
            row += free;
            shift += free;
            if row >= count {
                return Row::Found(at as u32 * 64 + shift - row);
            }
            longest = longest.max(row);
            if shift < 64 {
                row = 0;
                shift += (word >> shift).trailing_zeros().min(64 - shift);
            }
        }
    }
    Row::Longest(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Over any sequence of changes the rows found are those of a list of all granules, across words and blocks.
        #[test]
        fn equals_a_list_of_granules(
            pages in 1u32..700,
            ops in prop::collection::vec((any::<prop::sample::Index>(), 1u32..300, prop::sample::select(vec![0, u16::MAX, 0xF00F, 0x0FF0])), 1..60),
            count in prop::sample::select(vec![1, 16, 17, 40, 98, 700, 5000]),
        ) {
            let mut free = FreeGranules::none(pages);
            let mut list = vec![false; (pages * PAGE_GRANULES) as usize];
            for (first, more, mask) in ops {
                let first = first.index(pages as usize) as u32;
                for page in first..pages.min(first + more) {
                    free.set(page, mask);
                    (0..16).for_each(|bit| list[(page * 16 + bit) as usize] = mask >> bit & 1 == 1);
                    prop_assert_eq!(free.get(page), mask);
                }
                let row = |at: usize| list[at..].iter().take_while(|free| **free).count();
                let mut expected = None;
                let mut at = 0;
                while at < list.len() && expected.is_none() {
                    let row = row(at);
                    expected = (row >= count as usize).then_some(at as u32);
                    at += row.max(1);
                }
                prop_assert_eq!(free.first_row(count), expected);
                let at = first * PAGE_GRANULES + 5;
                let before = list[..at as usize].iter().rev().take_while(|free| **free).count();
                prop_assert_eq!(free.free_before(at, count), (before as u32).min(count));
                prop_assert_eq!(free.free_from(at, count), (row(at as usize) as u32).min(count));
            }
        }
    }
}
