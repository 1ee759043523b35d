//! Feedback-directed prefetching: S. Srinath, O. Mutlu, H. Kim, Y. N. Patt, "Feedback directed prefetching: improving the
//! performance and bandwidth-efficiency of hardware prefetchers", HPCA 2007, section 3.
//!
//! Three ratios steer the prefetcher beneath: accuracy (the share of prefetched pages that is used), lateness (the share of those
//! that came too late) and pollution (the share of misses for pages that prefetches evicted). They move it between five levels of
//! degree and distance (tables 1 and 2), and move the place where prefetched pages enter the order of eviction (section 3.3.2).
//! They are judged at the end of each interval of evictions, on counters of which half is history (equation 1).
//!
//! The prefetcher beneath is the paper's [`super::stream`], or the pages that follow a miss as in [`super::next_n`]. Do not use
//! it for a cache so large, or a run so short, that few intervals pass: it then stays at the level it started with.
//!
//! A miss counts if it sent for a page. The paper does not say what a ratio is when nothing is counted: here it is 0, which is
//! low accuracy, not late and not polluting, and changes nothing.

use super::next_n::wish_next;
use super::stream::{StreamParameters, Streams};
use super::{Demand, Insertion, Prefetch, Why};

/// A level of aggressiveness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Level {
    /// Pages requested at a time.
    pub degree: u32,
    /// How far ahead of the demands requests run, in pages.
    pub distance: u32,
}

/// The prefetcher that is steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// The paper's stream prefetcher.
    Stream(StreamParameters),
    /// The `degree` pages that follow the `distance`th after a miss or a first use, as CXL-flash devices were studied with.
    Sequential,
}

/// Levels, thresholds and sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeedbackParameters {
    /// The prefetcher that is steered.
    pub base: Base,
    /// From very conservative to very aggressive.
    pub levels: [Level; 5],
    /// The index of the level to start with.
    pub level_start: usize,
    /// Evictions that make an interval, at least one. The paper has half the blocks of its cache.
    pub interval_evictions: u64,
    /// Accuracy is high above this share.
    pub accuracy_high: f64,
    /// Accuracy is low below this share.
    pub accuracy_low: f64,
    /// Prefetches are late above this share of the useful ones.
    pub lateness: f64,
    /// Prefetches pollute above this share of the misses.
    pub pollution: f64,
    /// Whether the place of insertion follows the pollution; if not, it is the most recently used end.
    pub steer_insertion: bool,
    /// Below this pollution prefetched pages enter in the middle.
    pub insertion_pollution_low: f64,
    /// From this pollution on prefetched pages enter at the end, below it at a quarter.
    pub insertion_pollution_high: f64,
    /// Bits of the filter that remembers what prefetches threw out, rounded up to a power of two.
    pub filter_bits: u32,
}

impl FeedbackParameters {
    /// Tables 1 and 2, sections 3.2 and 4.3; docs/prefetchers.md marks the uncertain ones.
    pub const DEFAULT: Self = FeedbackParameters {
        base: Base::Stream(StreamParameters::DEFAULT),
        levels: [
            Level { degree: 1, distance: 4 },
            Level { degree: 1, distance: 8 },
            Level { degree: 2, distance: 16 },
            Level { degree: 4, distance: 32 },
            Level { degree: 4, distance: 64 },
        ],
        level_start: 2,
        interval_evictions: 8192,
        accuracy_high: 0.75,
        accuracy_low: 0.40,
        lateness: 0.01,
        pollution: 0.005,
        steer_insertion: true,
        insertion_pollution_low: 0.005,
        insertion_pollution_high: 0.25,
        filter_bits: 4096,
    };
}

impl Default for FeedbackParameters {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Equation 1: at the end of an interval, half of the old value and half of the interval's count.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    settled: f64,
    during: u64,
}

impl Counter {
    fn settle(&mut self) {
        self.settled = 0.5 * self.settled + 0.5 * self.during as f64;
        self.during = 0;
    }

    fn share_of(&self, whole: &Counter) -> f64 {
        if whole.settled > 0.0 { self.settled / whole.settled } else { 0.0 }
    }
}

/// Pollution filter (figure 4): a bit for each fold of a page number, set while a page that a prefetch evicted has not been
/// prefetched again. Pages of the same fold share a bit.
#[derive(Clone, Debug)]
struct Filter {
    words: Vec<u64>,
    /// Bits of an index.
    index_bits: u32,
}

impl Filter {
    fn new(bits: u32) -> Self {
        let index_bits = bits.max(1).checked_next_power_of_two().map_or(31, u32::trailing_zeros);
        Filter { words: vec![0; (1usize << index_bits).div_ceil(64)], index_bits }
    }

    /// The lowest bits of the number, exclusive or the next.
    #[inline]
    fn index(&self, page: u64) -> (usize, u64) {
        let fold = (page ^ (page >> self.index_bits)) & ((1 << self.index_bits) - 1);
        ((fold / 64) as usize, 1 << (fold % 64))
    }

    #[inline]
    fn holds(&self, page: u64) -> bool {
        let (word, bit) = self.index(page);
        self.words[word] & bit != 0
    }

    #[inline]
    fn set(&mut self, page: u64, to: bool) {
        let (word, bit) = self.index(page);
        if to {
            self.words[word] |= bit;
        } else {
            self.words[word] &= !bit;
        }
    }
}

#[derive(Clone, Debug)]
enum Steered {
    Streams(Streams),
    Sequential,
}

/// The prefetcher beneath, and the feedback on it.
#[derive(Clone, Debug)]
pub struct Feedback {
    parameters: FeedbackParameters,
    base: Steered,
    /// An index of `parameters.levels`.
    level: usize,
    insertion: Insertion,
    evictions: u64,
    prefetches: Counter,
    useful: Counter,
    late: Counter,
    misses: Counter,
    polluted: Counter,
    thrown_out: Filter,
}

impl Feedback {
    /// With these parameters, at the level to start with.
    pub fn new(parameters: FeedbackParameters) -> Self {
        Feedback {
            base: match parameters.base {
                Base::Stream(streams) => Steered::Streams(Streams::new(streams)),
                Base::Sequential => Steered::Sequential,
            },
            level: parameters.level_start.min(parameters.levels.len() - 1),
            // No pollution was seen yet.
            insertion: if parameters.steer_insertion { Insertion::Mid } else { Insertion::Mru },
            evictions: 0,
            prefetches: Counter::default(),
            useful: Counter::default(),
            late: Counter::default(),
            misses: Counter::default(),
            polluted: Counter::default(),
            thrown_out: Filter::new(parameters.filter_bits),
            parameters,
        }
    }

    /// The index of the level in force.
    pub fn level(&self) -> usize {
        self.level
    }

    fn end_interval(&mut self) {
        for counter in
            [&mut self.prefetches, &mut self.useful, &mut self.late, &mut self.misses, &mut self.polluted]
        {
            counter.settle();
        }
        let of = &self.parameters;
        let accuracy = self.useful.share_of(&self.prefetches);
        let pollution = self.polluted.share_of(&self.misses);
        let late = self.late.share_of(&self.useful) > of.lateness;
        let polluting = pollution > of.pollution;
        // Table 2. An accurate prefetcher may pollute if it is late; one that is neither late nor polluting is left alone.
        let change = match (late, polluting) {
            (false, false) => 0,
            (false, true) => -1,
            (true, _) if accuracy > of.accuracy_high => 1,
            (true, false) if accuracy >= of.accuracy_low => 1,
            (true, _) => -1,
        };
        self.level = self.level.saturating_add_signed(change).min(of.levels.len() - 1);
        if of.steer_insertion {
            self.insertion = match pollution {
                _ if pollution < of.insertion_pollution_low => Insertion::Mid,
                _ if pollution < of.insertion_pollution_high => Insertion::Quarter,
                _ => Insertion::Lru,
            };
        }
    }
}

impl Prefetch for Feedback {
    #[inline]
    fn demand(&mut self, page: u64, found: Demand, wanted: &mut Vec<u64>) {
        match found {
            Demand::PrefetchHit => self.useful.during += 1,
            Demand::LatePrefetch => {
                self.useful.during += 1;
                self.late.during += 1;
            }
            Demand::Miss => {
                self.misses.during += 1;
                self.polluted.during += u64::from(self.thrown_out.holds(page));
            }
            Demand::Hit | Demand::UnderMiss => {}
        }
        let Level { degree, distance } = self.parameters.levels[self.level];
        match &mut self.base {
            Steered::Streams(streams) => streams.demand(page, found, degree, distance, wanted),
            Steered::Sequential if found.is_first() => wish_next(page, degree, distance, wanted),
            Steered::Sequential => {}
        }
    }

    #[inline]
    fn issued(&mut self, _page: u64) {
        self.prefetches.during += 1;
    }

    #[inline]
    fn filled(&mut self, page: u64, why: Why) {
        if why == Why::Prefetch {
            self.thrown_out.set(page, false);
        }
    }

    #[inline]
    fn evicted(&mut self, page: u64, for_why: Why, unused_prefetch: bool) {
        // A prefetched page that was used counts as one that was asked for, as the paper's bit per block has it.
        if for_why == Why::Prefetch && !unused_prefetch {
            self.thrown_out.set(page, true);
        }
        self.evictions += 1;
        if self.evictions >= self.parameters.interval_evictions {
            self.evictions = 0;
            self.end_interval();
        }
    }

    fn insertion(&self) -> Insertion {
        self.insertion
    }

    fn metadata_bytes(&self) -> u64 {
        let base = match &self.base {
            Steered::Streams(streams) => streams.metadata_bytes(),
            Steered::Sequential => 0,
        };
        base + (self.thrown_out.words.capacity() * size_of::<u64>()) as u64
    }
}
