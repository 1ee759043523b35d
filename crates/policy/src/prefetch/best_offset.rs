//! Best offset: P. Michaud, "Best-offset hardware prefetching", HPCA 2016, section 4.
//!
//! One offset D is in force: a demand for X that misses or finds a prefetched page fetches X + D. The offset is learned:
//! each such demand tests one offset d of a list in turn, and d scores if X - d is among the recent requests, that is, if
//! a prefetch of X issued at X - d would have arrived by now. Recent requests are the bases Y - D of prefetched pages Y as
//! they arrive, which is what makes a late offset lose. Where even the best offset scores badly nothing is prefetched, and
//! learning goes on from every page that arrives.
//!
//! Good for streams of any stride in the list, upwards only. Not for descending streams, and one stream's offset serves
//! all. The paper's prefetches stay within a memory page; here the pages are the blocks, and there is no such border.
//!
//! What the paper leaves open is decided so: of offsets that score the same the smallest is taken; a late prefetch is a
//! miss, and its base is recorded when it arrives.

use super::{Demand, Prefetch, Why};

/// Sizes and limits of the learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BestOffsetParameters {
    /// Offsets from 1 to this without a prime factor above 5 are tried, in pages; at least 1.
    pub offset_max: u16,
    /// The offset in force until the first is learned, in pages; 0: none.
    pub offset_start: u16,
    /// A phase of learning ends with the round in which an offset has this score.
    pub score_max: u32,
    /// A phase of learning ends after this many rounds.
    pub round_max: u32,
    /// Nothing is prefetched if the best score is no more than this.
    pub bad_score: u32,
    /// Recent requests that can be remembered, rounded up to a power of two.
    pub recent_entries: u32,
    /// Bits of a page number by which a recent request is known, in addition to its position in the table; 1 to 31.
    pub recent_tag_bits: u32,
}

impl BestOffsetParameters {
    /// Section 4: 52 offsets up to 256, SCOREMAX, ROUNDMAX, BADSCORE, 256 entries of 12 bits. No first offset is
    /// prescribed; it is 1 in the author's program for the prefetching championship of 2015.
    pub const DEFAULT: Self = BestOffsetParameters {
        offset_max: 256,
        offset_start: 1,
        score_max: 31,
        round_max: 100,
        bad_score: 1,
        recent_entries: 256,
        recent_tag_bits: 12,
    };
}

impl Default for BestOffsetParameters {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The recent requests: direct-mapped, known by part of their number, so that now and then one is taken for another.
#[derive(Clone, Debug)]
struct Recent {
    tags: Vec<u32>,
    index_bits: u32,
    tag_bits: u32,
}

/// No tag has this many bits.
const EMPTY: u32 = u32::MAX;

impl Recent {
    fn new(entries: u32, tag_bits: u32) -> Self {
        let index_bits = entries.max(1).checked_next_power_of_two().map_or(31, u32::trailing_zeros);
        Recent { tags: vec![EMPTY; 1 << index_bits], index_bits, tag_bits: tag_bits.clamp(1, 31) }
    }

    /// The lowest bits exclusive or the next give the place, the bits above the lowest the tag.
    #[inline]
    fn place(&self, page: u64) -> (usize, u32) {
        let above = page >> self.index_bits;
        let index = (page ^ above) & ((1 << self.index_bits) - 1);
        (index as usize, (above & ((1 << self.tag_bits) - 1)) as u32)
    }

    #[inline]
    fn holds(&self, page: u64) -> bool {
        let (index, tag) = self.place(page);
        self.tags[index] == tag
    }

    #[inline]
    fn insert(&mut self, page: u64) {
        let (index, tag) = self.place(page);
        self.tags[index] = tag;
    }
}

/// The offset in force, the recent requests and the scores of the phase.
#[derive(Clone, Debug)]
pub struct BestOffset {
    parameters: BestOffsetParameters,
    /// `None`: nothing is prefetched.
    offset: Option<u64>,
    recent: Recent,
    offsets: Vec<u64>,
    /// One for each of `offsets`.
    scores: Vec<u32>,
    /// The index in `offsets` that is tested next.
    at: usize,
    rounds: u32,
}

/// Whether 2, 3 and 5 are the only prime factors.
fn is_regular(mut number: u16) -> bool {
    for factor in [2, 3, 5] {
        while number.is_multiple_of(factor) {
            number /= factor;
        }
    }
    number == 1
}

impl BestOffset {
    /// With these parameters, nothing learned yet.
    pub fn new(parameters: BestOffsetParameters) -> Self {
        let offsets: Vec<u64> =
            (1..=parameters.offset_max.max(1)).filter(|one| is_regular(*one)).map(u64::from).collect();
        BestOffset {
            offset: (parameters.offset_start > 0).then_some(u64::from(parameters.offset_start)),
            recent: Recent::new(parameters.recent_entries, parameters.recent_tag_bits),
            scores: vec![0; offsets.len()],
            offsets,
            at: 0,
            rounds: 0,
            parameters,
        }
    }

    /// The offset in force, in pages.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// Tests the next offset; at the end of a round perhaps chooses.
    fn learn(&mut self, page: u64) {
        let base = page.checked_sub(self.offsets[self.at]);
        self.scores[self.at] += u32::from(base.is_some_and(|base| self.recent.holds(base)));
        self.at += 1;
        if self.at < self.offsets.len() {
            return;
        }
        self.at = 0;
        self.rounds += 1;
        let best_score = self.scores.iter().copied().max().unwrap_or(0);
        if best_score < self.parameters.score_max && self.rounds < self.parameters.round_max {
            return;
        }
        let best = self.scores.iter().position(|score| *score == best_score);
        self.offset = best.filter(|_| best_score > self.parameters.bad_score).map(|best| self.offsets[best]);
        self.scores.fill(0);
        self.rounds = 0;
    }
}

impl Prefetch for BestOffset {
    #[inline]
    fn demand(&mut self, page: u64, found: Demand, wanted: &mut Vec<u64>) {
        if !found.is_first() {
            return;
        }
        self.learn(page);
        wanted.extend(self.offset.and_then(|offset| page.checked_add(offset)));
    }

    #[inline]
    fn filled(&mut self, page: u64, why: Why) {
        // The offset in force now, though another may have been when the page was wished for: the paper stores none.
        let base = match (self.offset, why) {
            (Some(offset), Why::Prefetch) => page.checked_sub(offset),
            (Some(_), Why::Demand | Why::Hint) => None,
            (None, _) => Some(page),
        };
        if let Some(base) = base {
            self.recent.insert(base);
        }
    }

    fn metadata_bytes(&self) -> u64 {
        let offsets = self.offsets.capacity() * size_of::<u64>();
        let scores = (self.scores.capacity() + self.recent.tags.capacity()) * size_of::<u32>();
        (offsets + scores) as u64
    }
}
