//! Bit sets that are read and set in runs: which units are valid, which are dirty, which slots begin a block.

use std::ops::Range;

/// A fixed number of bits, all clear at first. The memory of those never touched is not taken from the system.
#[derive(Clone, Debug)]
pub struct RunBits {
    words: Vec<u64>,
}

/// The bits `low..high` of a word, `high` at most 64.
fn mask(low: u64, high: u64) -> u64 {
    let upto = |end: u64| if end >= 64 { u64::MAX } else { (1 << end) - 1 };
    upto(high) & !upto(low)
}

impl RunBits {
    /// `bits` bits, all clear.
    pub fn new(bits: u64) -> Self {
        RunBits { words: vec![0; bits.div_ceil(64) as usize] }
    }

    /// Bits there are, rounded up to whole words.
    pub fn bits(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    /// The words that a range touches, each with the part of it that is meant.
    fn parts(range: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
        let (first, last) = (range.start / 64, range.end.div_ceil(64));
        (first..last).map(move |word| {
            let base = word * 64;
            (word as usize, mask(range.start.saturating_sub(base), range.end - base))
        })
    }

    /// Sets all of a range.
    #[inline]
    pub fn set(&mut self, range: Range<u64>) {
        for (word, mask) in Self::parts(range) {
            self.words[word] |= mask;
        }
    }

    /// Clears all of a range.
    #[inline]
    pub fn clear(&mut self, range: Range<u64>) {
        for (word, mask) in Self::parts(range) {
            self.words[word] &= !mask;
        }
    }

    /// How many of a range are set.
    #[inline]
    pub fn count(&self, range: Range<u64>) -> u64 {
        Self::parts(range).map(|(word, mask)| u64::from((self.words[word] & mask).count_ones())).sum()
    }

    /// Whether all of a range are set.
    #[inline]
    pub fn all(&self, range: Range<u64>) -> bool {
        Self::parts(range).all(|(word, mask)| self.words[word] & mask == mask)
    }

    /// Whether any of a range is set.
    #[inline]
    pub fn any(&self, range: Range<u64>) -> bool {
        Self::parts(range).any(|(word, mask)| self.words[word] & mask != 0)
    }

    /// Whether this one is set.
    #[inline]
    pub fn get(&self, bit: u64) -> bool {
        self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// The first bit of a range that is `value`, or the range's end.
    fn next(&self, range: Range<u64>, value: bool) -> u64 {
        let end = range.end;
        for (word, mask) in Self::parts(range) {
            let found = if value { self.words[word] } else { !self.words[word] } & mask;
            if found != 0 {
                return word as u64 * 64 + u64::from(found.trailing_zeros());
            }
        }
        end
    }

    /// The runs of bits that are `value` in a range, in order, as long as possible.
    pub fn runs(&self, range: Range<u64>, value: bool) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let start = self.next(at..range.end, value);
            if start == range.end {
                return None;
            }
            at = self.next(start..range.end, !value);
            Some(start..at)
        })
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.words.capacity() * 8) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn like_a_vector_of_bools(steps in prop::collection::vec((0u64..300, 0u64..300, any::<bool>()), 1..60)) {
            let mut bits = RunBits::new(300);
            let mut naive = vec![false; 300];
            for (a, b, value) in steps {
                let range = a.min(b)..a.max(b);
                let cells = range.start as usize..range.end as usize;
                if value { bits.set(range.clone()) } else { bits.clear(range.clone()) }
                naive[cells].fill(value);
                let look = (a + b) / 3..(a + b) / 3 + b.min(299 - (a + b) / 3);
                let seen = &naive[look.start as usize..look.end as usize];
                prop_assert_eq!(bits.all(look.clone()), seen.iter().all(|&bit| bit));
                prop_assert_eq!(bits.any(look.clone()), seen.iter().any(|&bit| bit));
                prop_assert_eq!(bits.count(look.clone()), seen.iter().filter(|&&bit| bit).count() as u64);
                for wanted in [false, true] {
                    let mut from_runs = vec![!wanted; 300];
                    let mut last = None;
                    for run in bits.runs(look.clone(), wanted) {
                        prop_assert!(run.start < run.end && last.is_none_or(|end| end < run.start));
                        last = Some(run.end);
                        from_runs[run.start as usize..run.end as usize].fill(wanted);
                    }
                    prop_assert_eq!(&from_runs[look.start as usize..look.end as usize], seen);
                }
            }
        }
    }
}
