//! Readahead: windows ahead of accesses that go on in order, each twice as long as the one before, as file systems read ahead.
//!
//! A page asked for soon after another, a little above or below it, makes a stream. It fetches a window of pages beyond; when a half of
//! the window is left, the next one, twice as long, up to the most. A stream that is not asked for again is replaced. It suits a medium
//! that takes long to answer and much at a time, such as flash below a program's memory: what lies between two windows is the time that the
//! driver has. The stream prefetcher ([`super::stream`]) keeps a distance of tens of pages, which fits a cache. Where accesses are far apart no
//! stream begins, and nothing is fetched.
//!
//! Random accesses to a small part of memory come near each other by chance, and what is fetched for such a stream throws out what is used. So
//! there is a credit: a page that is sent for costs one, and one that its stream then comes to gives two. One that is used later, by
//! chance, gives nothing: where memory is twice as large as DRAM half of what is fetched will be used before it leaves, and half of what
//! left for it would have been. While there is credit the second page of a stream begins to fetch; each time that a stream wants to begin
//! without credit, streams have to be twice as long from then on. When the credit is full again they have to be half as long. A sweep that
//! goes on needs no credit.
//!
//! Only the first use of a page counts ([`Demand::is_first`]).

use super::credit::Credit;
use super::{Demand, Prefetch, wish_above, wish_below};

/// How many streams, and how far each reads ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadaheadParameters {
    /// Streams at once, at least one; the one used longest ago is replaced.
    pub streams: u32,
    /// Pages between one and the next of a stream at most: what a medium or a kernel brings by itself makes gaps.
    pub gap_pages: u32,
    /// Pages of the first window.
    pub window_min: u32,
    /// Pages of a window at most.
    pub window_max: u32,
}

impl ReadaheadParameters {
    /// For pages of 4 KiB: 32 streams, windows of 64 KiB to 4 MiB. The kernel reads 8 pages around a fault from swap.
    pub const DEFAULT: Self =
        ReadaheadParameters { streams: 32, gap_pages: 16, window_min: 16, window_max: 1024 };
}

impl Default for ReadaheadParameters {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// The credit at most, in pages: what streams that are none may cost before they have to be longer.
const CREDIT_PAGES: u32 = 128;
/// The longest run that a stream has to have before it fetches.
const RUN_MAX: u32 = 256;

/// A stream, or a page that may begin one.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The page asked for last.
    last: u64,
    /// The farthest page that was fetched or asked for.
    end: u64,
    /// Pages of the window before; 0: it has not begun to fetch.
    window: u32,
    /// Pages that followed its first one.
    run: u32,
    /// `None`: it has one page.
    direction: Option<Direction>,
    /// When it was asked for last, in demands.
    used: u64,
}

impl Stream {
    /// The direction in which a page goes on with the stream; `None`: it does not, or lies farther than `gap` beyond all that was fetched.
    fn step_to(&self, page: u64, gap: u64) -> Option<Direction> {
        let direction = if page > self.last { Direction::Up } else { Direction::Down };
        let beyond = match direction {
            Direction::Up => page.saturating_sub(self.end),
            Direction::Down => self.end.saturating_sub(page),
        };
        let goes_on = self.direction.is_none_or(|its| its == direction) && page != self.last;
        (goes_on && beyond <= gap).then_some(direction)
    }
}

/// The prefetcher.
#[derive(Clone, Debug)]
pub struct Readahead {
    parameters: ReadaheadParameters,
    streams: Vec<Stream>,
    demands: u64,
    credit: Credit,
    /// How long a run has to be for a stream to begin to fetch.
    run_min: u32,
}

impl Readahead {
    /// With these parameters.
    pub fn new(parameters: ReadaheadParameters) -> Self {
        let streams = Vec::with_capacity(parameters.streams.max(1) as usize);
        Readahead { parameters, streams, demands: 0, credit: Credit::full(CREDIT_PAGES), run_min: 1 }
    }

    /// A stream has come to a page that was sent for.
    fn has_paid(&mut self) {
        if self.credit.earn() && self.run_min > 1 {
            self.run_min /= 2;
            self.credit.halve();
        }
    }

    /// Whether a stream with such a run begins to fetch.
    fn may_begin(&mut self, run: u32) -> bool {
        if self.credit.pages() == 0 && run >= self.run_min {
            self.run_min = (self.run_min * 2).min(RUN_MAX);
            self.credit.halve();
        }
        run >= self.run_min
    }

    fn begin(&mut self, page: u64) {
        let new = Stream { last: page, end: page, window: 0, run: 0, direction: None, used: self.demands };
        if self.streams.len() < self.parameters.streams.max(1) as usize {
            self.streams.push(new);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.used) {
            *oldest = new;
        }
    }
}

impl Prefetch for Readahead {
    fn demand(&mut self, page: u64, found: Demand, wanted: &mut Vec<u64>) {
        if !found.is_first() {
            return;
        }
        self.demands += 1;
        let was_fetched = matches!(found, Demand::PrefetchHit | Demand::LatePrefetch);
        let gap = u64::from(self.parameters.gap_pages);
        if self.streams.iter().any(|stream| stream.last == page) {
            return;
        }
        let found =
            self.streams.iter().enumerate().find_map(|(at, stream)| Some((at, stream.step_to(page, gap)?)));
        let Some((at, direction)) = found else { return self.begin(page) };
        let (window, run) = (self.streams[at].window, self.streams[at].run.saturating_add(1));
        if was_fetched && window > 0 {
            self.has_paid();
        }
        let is_fetching = window > 0 || self.may_begin(run);
        let stream = &mut self.streams[at];
        (stream.last, stream.direction, stream.run, stream.used) = (page, Some(direction), run, self.demands);
        stream.end = match direction {
            Direction::Up => stream.end.max(page),
            Direction::Down => stream.end.min(page),
        };
        // A half of the window before is left: the next one is due.
        if !is_fetching || stream.end.abs_diff(page) > u64::from(stream.window / 2) {
            return;
        }
        let ReadaheadParameters { window_min, window_max, .. } = self.parameters;
        stream.window = stream.window.saturating_mul(2).max(window_min).min(window_max);
        match direction {
            Direction::Up => {
                wish_above(stream.end, stream.window, wanted);
                stream.end = stream.end.saturating_add(stream.window.into());
            }
            Direction::Down => {
                wish_below(stream.end, stream.window, wanted);
                stream.end = stream.end.saturating_sub(stream.window.into());
            }
        }
    }

    fn issued(&mut self, _page: u64) {
        self.credit.spend();
    }

    fn metadata_bytes(&self) -> u64 {
        (self.streams.capacity() * size_of::<Stream>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn wishes(pages: impl IntoIterator<Item = u64>) -> Vec<Vec<u64>> {
        let mut readahead = Readahead::new(ReadaheadParameters::DEFAULT);
        let ask = |page| {
            let mut wanted = Vec::new();
            readahead.demand(page, Demand::Miss, &mut wanted);
            wanted
        };
        pages.into_iter().map(ask).collect()
    }

    #[test]
    fn windows_double_and_come_when_half_is_left() {
        let lengths: Vec<usize> = wishes(1000..1200).into_iter().map(|wanted| wanted.len()).collect();
        let begun: Vec<(usize, usize)> =
            lengths.into_iter().enumerate().filter(|(_, length)| *length > 0).collect();
        // The second page begins; behind it lie 16 pages, then 8 + 32, 16 + 64, 32 + 128.
        assert_eq!(begun, [(1, 16), (9, 32), (33, 64), (81, 128), (177, 256)]);
    }

    #[test]
    fn a_sweep_is_fetched_once_and_in_order_up_or_down() {
        for pages in [(5000..15_000).collect::<Vec<u64>>(), (5000..15_000).rev().collect()] {
            let wanted: Vec<u64> = wishes(pages.iter().copied()).concat();
            let is_down = pages[0] > pages[1];
            let expected: Vec<u64> = match is_down {
                true => (pages[1] - wanted.len() as u64..pages[1]).rev().collect(),
                false => (pages[1] + 1..=pages[1] + wanted.len() as u64).collect(),
            };
            assert_eq!(wanted, expected);
            // No more than two windows beyond the last.
            assert!(wanted.len() < pages.len() + 2 * 1024);
        }
    }

    #[test]
    fn streams_do_not_disturb_each_other_and_gaps_are_passed() {
        let three = (0..3000).flat_map(|step| [step * 3 + 10, 1_000_000 - step, 2_000_000 + step]);
        let wanted: BTreeSet<u64> = wishes(three).concat().into_iter().collect();
        for step in 2..3000 {
            for page in [step * 3 + 10, 1_000_000 - step, 2_000_000 + step] {
                assert!(wanted.contains(&page), "{page}");
            }
        }
    }

    /// Asks for pages one after the other, of which those that were fetched are there; the pages that were fetched.
    fn fetched(readahead: &mut Readahead, pages: impl IntoIterator<Item = u64>) -> usize {
        let mut here = BTreeSet::new();
        let mut sum = 0;
        for page in pages {
            let mut wanted = Vec::new();
            let found = if here.remove(&page) { Demand::PrefetchHit } else { Demand::Miss };
            readahead.demand(page, found, &mut wanted);
            for page in wanted {
                if here.insert(page) {
                    readahead.issued(page);
                    sum += 1;
                }
            }
        }
        sum
    }

    #[test]
    fn pages_that_are_near_each_other_by_chance_end_it_and_a_sweep_begins_it_again() {
        let mut readahead = Readahead::new(ReadaheadParameters::DEFAULT);
        // Pairs, of which nothing follows.
        let pairs = |from: u64| (from..from + 4000).flat_map(|at| [at * 1000, at * 1000 + 1]);
        let for_nothing = fetched(&mut readahead, pairs(0));
        assert!((128..300).contains(&for_nothing), "{for_nothing}");
        assert_eq!(fetched(&mut readahead, pairs(10_000)), 0);
        // A sweep is seen by its length, and then the third page is enough: what was fetched beyond the sweep's end was for nothing.
        let swept = fetched(&mut readahead, 1 << 40..(1 << 40) + 20_000);
        assert!(swept > 19_990, "{swept}");
        assert_eq!(fetched(&mut readahead, 1 << 50..(1 << 50) + 3), 16);
    }

    #[test]
    fn pages_that_are_used_later_by_chance_do_not_pay() {
        let mut readahead = Readahead::new(ReadaheadParameters::DEFAULT);
        // Pairs, and long after each of them, one by one, most of the pages behind it.
        let pair = |at: u64| [at * 1000, at * 1000 + 1];
        let later = |at: u64| (1..=12).filter_map(move |k| Some(at.checked_sub(64 * k)? * 1000 + 2 + k));
        let for_nothing =
            fetched(&mut readahead, (0..6000).flat_map(|at| pair(at).into_iter().chain(later(at))));
        assert!((128..300).contains(&for_nothing), "{for_nothing}");
    }

    #[test]
    fn the_last_pages_of_all_are_no_end_of_the_world() {
        let wanted = wishes([u64::MAX - 20, u64::MAX - 19, u64::MAX - 18, u64::MAX]).concat();
        // There is nothing beyond the last.
        assert_eq!(wanted, (u64::MAX - 18..=u64::MAX - 3).collect::<Vec<_>>());
        assert!(wishes([3, 2, 1, 0, u64::MAX]).concat().len() <= 3);
    }

    proptest! {
        /// Far apart, pages make no stream. And whatever is asked for, a wish is never the page itself, and at most a window at a time.
        #[test]
        fn random_pages_fetch_nothing(pages in prop::collection::vec(0_u64..1 << 40, 0..200), near in prop::collection::vec(0_u64..64, 0..300)) {
            let apart: Vec<u64> = pages.iter().map(|page| page << 8).collect();
            let distinct: BTreeSet<u64> = apart.iter().copied().collect();
            if distinct.len() == apart.len() {
                prop_assert_eq!(wishes(apart).concat(), Vec::<u64>::new());
            }
            for (page, wanted) in near.iter().zip(wishes(near.iter().copied())) {
                prop_assert!(!wanted.contains(page) && wanted.len() <= 1024);
            }
        }
    }
}
