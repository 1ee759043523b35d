//! Prefetchers against the statements of their papers, on accesses small enough to follow by hand, and on a small device.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use tiermem_base::Rng;
use tiermem_policy::prefetch::best_offset::{BestOffset, BestOffsetParameters};
use tiermem_policy::prefetch::feedback::{Base, Feedback, FeedbackParameters};
use tiermem_policy::prefetch::leap::{Leap, LeapParameters};
use tiermem_policy::prefetch::next_n::{NextN, NextNParameters};
use tiermem_policy::prefetch::stream::{StreamParameters, Streams};
use tiermem_policy::prefetch::{Demand, Insertion, Named, Prefetch, Why};

fn wishes(prefetcher: &mut impl Prefetch, page: u64, found: Demand) -> Vec<u64> {
    let mut wanted = vec![];
    prefetcher.demand(page, found, &mut wanted);
    wanted
}

/// A cache in the order of use, in which a fetch takes a number of accesses.
struct Device<P> {
    prefetcher: P,
    /// The most recently used first, with whether it is an unused prefetch.
    cached: Vec<(u64, bool)>,
    capacity: usize,
    /// The page, why it is fetched, when it arrives, and whether a demand waits for it.
    under_way: Vec<(u64, Why, u64, bool)>,
    latency: u64,
    now: u64,
    misses: u64,
}

impl<P: Prefetch> Device<P> {
    fn new(prefetcher: P, capacity: usize, latency: u64) -> Self {
        Device { prefetcher, cached: vec![], capacity, under_way: vec![], latency, now: 0, misses: 0 }
    }

    fn arrive(&mut self) {
        let now = self.now;
        let arrived: Vec<_> = self.under_way.extract_if(.., |fetch| fetch.2 <= now).collect();
        for (page, why, _, awaited) in arrived {
            if self.cached.len() >= self.capacity {
                let (victim, unused) = self.cached.pop().unwrap();
                self.prefetcher.evicted(victim, why, unused);
            }
            self.cached.insert(0, (page, why == Why::Prefetch && !awaited));
            self.prefetcher.filled(page, why);
        }
    }

    fn access(&mut self, page: u64) {
        self.now += 1;
        self.arrive();
        let found = if let Some(at) = self.cached.iter().position(|one| one.0 == page) {
            let (_, unused) = self.cached.remove(at);
            self.cached.insert(0, (page, false));
            if unused { Demand::PrefetchHit } else { Demand::Hit }
        } else if let Some(fetch) = self.under_way.iter_mut().find(|one| one.0 == page) {
            let first = fetch.1 == Why::Prefetch && !fetch.3;
            fetch.3 = true;
            if first { Demand::LatePrefetch } else { Demand::UnderMiss }
        } else {
            self.misses += 1;
            Demand::Miss
        };
        let wanted = wishes(&mut self.prefetcher, page, found);
        let due = self.now + self.latency;
        if found == Demand::Miss {
            self.under_way.push((page, Why::Demand, due, true));
        }
        for page in wanted {
            let here = self.cached.iter().any(|one| one.0 == page);
            if !here && !self.under_way.iter().any(|one| one.0 == page) {
                self.under_way.push((page, Why::Prefetch, due, false));
                self.prefetcher.issued(page);
            }
        }
        self.arrive();
    }

    fn run(&mut self, pages: impl IntoIterator<Item = u64>) -> u64 {
        let before = self.misses;
        pages.into_iter().for_each(|page| self.access(page));
        self.misses - before
    }
}

#[test]
fn next_n_skips_its_offset() {
    let mut next = NextN::new(NextNParameters { degree: 3, offset: 2 });
    assert_eq!(wishes(&mut next, 10, Demand::Miss), [13, 14, 15]);
    assert_eq!(wishes(&mut next, 10, Demand::PrefetchHit), [13, 14, 15]);
    assert_eq!(wishes(&mut next, 10, Demand::LatePrefetch), [13, 14, 15]);
    assert!(wishes(&mut next, 10, Demand::Hit).is_empty());
    assert!(wishes(&mut next, 10, Demand::UnderMiss).is_empty());
    assert_eq!(wishes(&mut next, u64::MAX - 4, Demand::Miss), [u64::MAX - 1, u64::MAX]);
    assert!(wishes(&mut next, u64::MAX - 2, Demand::Miss).is_empty());
    assert!(wishes(&mut next, u64::MAX, Demand::Miss).is_empty());
    // The plain next page: only the first of a run is missed.
    let mut device = Device::new(NextN::new(NextNParameters { degree: 1, offset: 0 }), 8, 0);
    assert_eq!(device.run(0..100), 1);
}

#[test]
fn leap_follows_the_trends_of_the_papers_figure() {
    let mut leap = Leap::new(LeapParameters { history: 8, splits: 2, window_max: 8 });
    let accesses =
        [0x48, 0x45, 0x42, 0x3f, 0x3c, 0x02, 0x04, 0x06, 0x08, 0x0a, 0x0c, 0x10, 0x39, 0x12, 0x14, 0x16];
    let mut trends = vec![];
    let mut made = vec![];
    for (time, page) in accesses.into_iter().enumerate() {
        let wanted = wishes(&mut leap, page, Demand::Miss);
        trends.push(leap.trend().unwrap());
        made.extend(wanted.into_iter().map(|wish| (time, wish)));
    }
    // From t3 on -3; at t7 neither the newest four nor all eight have a majority; at t8 it is +2, and stays that over the
    // strays from t11 to t13, at last by all eight.
    assert_eq!(trends[2..8], [-3; 6]);
    assert_eq!(trends[8..], [2; 8]);
    let expected = [(0, 0x90), (2, 0x3f), (3, 0x3c), (4, 0x39), (8, 0x0a), (9, 0x0c), (10, 0x0e)];
    let and = [(14, 0x16), (15, 0x18)];
    assert_eq!(made, [&expected[..], &and[..]].concat());
}

#[test]
fn leap_widens_with_hits_and_closes_without() {
    let mut leap = Leap::new(LeapParameters::DEFAULT);
    for page in 1..4 {
        assert_eq!(wishes(&mut leap, page, Demand::Miss), [page + 1]);
    }
    // One more than the hits, rounded up to a power of two, at most eight.
    let mut page = 3;
    for (hits, window) in [(1, 2), (2, 4), (3, 4), (4, 8), (8, 8)] {
        for _ in 0..hits {
            page += 1;
            assert!(wishes(&mut leap, page, Demand::PrefetchHit).is_empty());
        }
        page += 1;
        let expected: Vec<u64> = (page + 1..=page + window).collect();
        assert_eq!(wishes(&mut leap, page, Demand::Miss), expected);
    }
    // Nothing is hit, and nothing follows the trend: by halves down to none. The trend of the history is still +1.
    for (stray, window) in [(1000, 4), (3000, 2), (9000, 1), (27_000, 0)] {
        assert_eq!(wishes(&mut leap, stray, Demand::Miss).len(), window);
        assert_eq!(leap.trend(), Some(1));
    }
    assert_eq!(wishes(&mut leap, 27_001, Demand::Miss), [27_002]);
}

#[test]
fn leap_tries_the_last_trend_around_the_page() {
    let mut leap = Leap::new(LeapParameters { history: 4, splits: 1, window_max: 8 });
    for page in [10, 20, 30] {
        wishes(&mut leap, page, Demand::Miss);
    }
    for page in [40, 50, 60] {
        wishes(&mut leap, page, Demand::PrefetchHit);
    }
    assert_eq!(wishes(&mut leap, 70, Demand::Miss), [80, 90, 100, 110]);
    // Two of four are no majority.
    wishes(&mut leap, 500, Demand::PrefetchHit);
    assert_eq!(wishes(&mut leap, 15, Demand::Miss), [25, 5]);
    assert_eq!(leap.trend(), Some(10));
}

#[test]
fn best_offset_learns_a_stride() {
    let mut device = Device::new(BestOffset::new(BestOffsetParameters::DEFAULT), 1000, 0);
    device.run((0..6000).map(|at| at * 3));
    assert_eq!(device.prefetcher.offset(), Some(3));
    assert_eq!(device.run((6000..7000).map(|at| at * 3)), 0);
}

#[test]
fn best_offset_looks_as_far_ahead_as_a_fetch_takes() {
    let mut device = Device::new(BestOffset::new(BestOffsetParameters::DEFAULT), 1000, 7);
    device.run((0..20_000).map(|at| at * 3));
    // A page that is asked for in the access after the seventh has arrived: the smallest such multiple of 3 in the list.
    assert_eq!(device.prefetcher.offset(), Some(24));
    assert_eq!(device.run((20_000..21_000).map(|at| at * 3)), 0);
    assert!(device.under_way.iter().all(|fetch| !fetch.3));
}

#[test]
fn best_offset_turns_off_where_no_offset_is_good_and_on_again() {
    let mut device = Device::new(BestOffset::new(BestOffsetParameters::DEFAULT), 1000, 0);
    assert_eq!(device.prefetcher.offset(), Some(1));
    let mut rng = Rng::seeded(1);
    device.run((0..12_000).map(|_| rng.next_u64() >> 20));
    assert_eq!(device.prefetcher.offset(), None);
    // Learning goes on from what the misses fetch.
    device.run((1000..8000).map(|at| at * 2));
    assert_eq!(device.prefetcher.offset(), Some(2));
    // Offsets lead upwards only.
    device.run((1_000_000..1_012_000).rev());
    assert_eq!(device.prefetcher.offset(), None);
}

#[test]
fn best_offset_takes_the_end_of_a_round() {
    let parameters = BestOffsetParameters { offset_max: 4, score_max: 2, ..BestOffsetParameters::DEFAULT };
    let mut best = BestOffset::new(parameters);
    // The offset in force is 1, so that each of these is remembered by the page before.
    for page in [101, 102, 103, 104] {
        best.filled(page, Why::Prefetch);
    }
    // The list is 1 2 3 4. Only offset 2 is tested where it finds something: 102, at 104, once a round.
    for page in [900, 104, 900, 900, 900, 104, 900] {
        assert_eq!(wishes(&mut best, page, Demand::Miss), [page + 1]);
    }
    // It has the score already, but the phase ends with its round.
    assert_eq!(wishes(&mut best, 900, Demand::PrefetchHit), [902]);
    assert_eq!(best.offset(), Some(2));
    // Demand fetches are not remembered while something is prefetched, and hits test nothing.
    best.filled(500, Why::Demand);
    for page in [501, 502, 503, 504] {
        assert!(wishes(&mut best, page, Demand::Hit).is_empty());
        assert!(wishes(&mut best, page, Demand::UnderMiss).is_empty());
    }
    // One round of nothing found, and all the others up to the hundredth: the best score is 0.
    for _ in 0..4 * 100 {
        wishes(&mut best, 501, Demand::Miss);
    }
    assert_eq!(best.offset(), None);
}

#[test]
fn a_stream_is_trained_by_three_misses_and_runs_a_distance_ahead() {
    let mut streams = Streams::new(StreamParameters::DEFAULT);
    let mut demand = |page, found| {
        let mut wanted = vec![];
        streams.demand(page, found, 2, 16, &mut wanted);
        wanted
    };
    for page in [100, 101, 103] {
        assert!(demand(page, Demand::Miss).is_empty());
    }
    // From the first miss to four beyond the last: 100 to 107. Sixty-four bytes at a time, a page is asked for often.
    assert_eq!(demand(104, Demand::Miss), [108, 109]);
    assert!(demand(104, Demand::Hit).is_empty());
    assert_eq!(demand(105, Demand::Miss), [110, 111]);
    assert_eq!(demand(106, Demand::Hit), [112, 113]);
    assert!(demand(105, Demand::Miss).len() == 2, "a page of the region, though it was used before");
    // 100 to 115 now, 15 long: the next request makes it 16 long, and then it slides.
    assert_eq!(demand(107, Demand::Miss), [116, 117]);
    assert!(demand(100, Demand::Hit).is_empty());
    assert_eq!(demand(101, Demand::Hit), [118, 119]);
    assert!(demand(102, Demand::Hit).is_empty());
    // Another stream, downwards, to the first page.
    for page in [24, 20, 16] {
        assert!(demand(page, Demand::Miss).is_empty());
    }
    assert_eq!(demand(13, Demand::Miss), [11, 10]);
    for page in [12, 11, 10, 9] {
        assert_eq!(demand(page, Demand::PrefetchHit).len(), 2);
    }
    assert_eq!(demand(8, Demand::PrefetchHit), [1, 0]);
    assert!(demand(7, Demand::PrefetchHit).is_empty());
}

/// One interval in which `useful` of a hundred prefetches are used, a share of them late, and a share of the misses is polluted;
/// then the level and the insertion.
fn judged(from: FeedbackParameters, useful: u64, late: u64, polluted: u64) -> (usize, Insertion) {
    let mut feedback = Feedback::new(FeedbackParameters { interval_evictions: polluted + 1, ..from });
    let mut wanted = vec![];
    for page in 0..100 {
        feedback.issued(page);
    }
    for at in 0..useful {
        let found = if at < late { Demand::LatePrefetch } else { Demand::PrefetchHit };
        feedback.demand(at, found, &mut wanted);
    }
    for page in 0..polluted {
        feedback.evicted(page, Why::Prefetch, false);
    }
    // A thousand misses, of pages that are not folded together.
    for page in 0..1000 {
        feedback.demand(page, Demand::Miss, &mut wanted);
    }
    assert_eq!(feedback.level(), from.level_start);
    feedback.evicted(5000, Why::Demand, false);
    (feedback.level(), feedback.insertion())
}

#[test]
fn feedback_moves_as_table_2_says() {
    let from = FeedbackParameters::DEFAULT;
    // Accuracy high, medium and low; late or not; polluting or not.
    for (useful, moves) in [(80, [1, 1, 0, -1]), (60, [1, -1, 0, -1]), (20, [-1, -1, 0, -1])] {
        for (case, step) in [(10, 0), (10, 10), (0, 0), (0, 10)].into_iter().zip(moves) {
            let (level, insertion) = judged(from, useful, case.0, case.1);
            assert_eq!(level as i32, 2 + step, "{useful} useful, {} late, {} polluted", case.0, case.1);
            assert_eq!(insertion, if case.1 == 0 { Insertion::Mid } else { Insertion::Quarter });
        }
    }
    // At the thresholds: three quarters used is not yet high, two fifths not yet low, one in a hundred late not late,
    // one in two hundred polluted not polluting (yet not of the lowest pollution).
    assert_eq!(judged(from, 75, 10, 10).0, 1);
    assert_eq!(judged(from, 40, 10, 0).0, 3);
    assert_eq!(judged(from, 100, 1, 0).0, 2);
    assert_eq!(judged(from, 80, 0, 5), (2, Insertion::Quarter));
    assert_eq!(judged(from, 80, 0, 4), (2, Insertion::Mid));
    assert_eq!(judged(from, 80, 0, 249).1, Insertion::Quarter);
    assert_eq!(judged(from, 80, 0, 250).1, Insertion::Lru);
    // The lowest and the highest level are the last.
    assert_eq!(judged(FeedbackParameters { level_start: 4, ..from }, 80, 10, 0).0, 4);
    assert_eq!(judged(FeedbackParameters { level_start: 0, ..from }, 20, 10, 0).0, 0);
    // Nothing counted: nothing changes.
    assert_eq!(judged(from, 0, 0, 0), (2, Insertion::Mid));
    assert_eq!(judged(FeedbackParameters { steer_insertion: false, ..from }, 80, 0, 250).1, Insertion::Mru);
}

#[test]
fn feedback_remembers_half_of_what_was() {
    let from = FeedbackParameters { interval_evictions: 1, ..FeedbackParameters::DEFAULT };
    let mut feedback = Feedback::new(from);
    let mut interval = |useful: u64, late: u64| {
        let mut wanted = vec![];
        (0..100).for_each(|page| feedback.issued(page));
        for at in 0..useful {
            let found = if at < late { Demand::LatePrefetch } else { Demand::PrefetchHit };
            feedback.demand(at, found, &mut wanted);
        }
        feedback.evicted(1, Why::Demand, false);
        feedback.level()
    };
    assert_eq!(interval(100, 100), 3);
    // 50 of 50, then 25 + 10 of 75 are used: less than half, though more than two fifths.
    assert_eq!(interval(20, 20), 4);
    // 17.5 + 0 of 87.5.
    assert_eq!(interval(0, 0), 3);
}

#[test]
fn feedback_forgets_what_is_prefetched_again() {
    let mut feedback =
        Feedback::new(FeedbackParameters { interval_evictions: 3, ..FeedbackParameters::DEFAULT });
    let mut wanted = vec![];
    // An unused prefetch and what a demand throws out pollute nothing; what comes back as a prefetch is forgiven.
    feedback.evicted(10, Why::Prefetch, true);
    feedback.evicted(11, Why::Demand, false);
    feedback.filled(12, Why::Prefetch);
    for page in [10, 11, 12] {
        feedback.demand(page, Demand::Miss, &mut wanted);
    }
    feedback.evicted(12, Why::Prefetch, false);
    assert_eq!((feedback.level(), feedback.insertion()), (2, Insertion::Mid));
    feedback.demand(12 + (3 << 12), Demand::Miss, &mut wanted);
    for _ in 0..3 {
        feedback.evicted(20, Why::Demand, false);
    }
    // 12 + 3 * 4096 folds to 12 ^ 3 = 15, which was not thrown out.
    assert_eq!((feedback.level(), feedback.insertion()), (2, Insertion::Mid));
    feedback.demand(15 + (3 << 12), Demand::Miss, &mut wanted);
    for _ in 0..3 {
        feedback.evicted(20, Why::Demand, false);
    }
    // That one folds to 12: one in at most 1 + 1/2 + 1/2 misses is polluted.
    assert_eq!((feedback.level(), feedback.insertion()), (1, Insertion::Lru));
}

#[test]
fn feedback_goes_further_for_a_stream_and_less_for_chance() {
    let parameters = FeedbackParameters { interval_evictions: 64, ..FeedbackParameters::DEFAULT };
    for base in [Base::Stream(StreamParameters::DEFAULT), Base::Sequential] {
        let parameters = FeedbackParameters { base, ..parameters };
        // A fetch takes longer than the middle level looks ahead.
        let mut device = Device::new(Feedback::new(parameters), 256, 40);
        device.run(0..5000);
        assert!(device.prefetcher.level() > 2, "{base:?}");
    }
    // Chance trains hardly a stream, while a sequential prefetcher fetches for nothing and throws out what is used.
    let mut device =
        Device::new(Feedback::new(FeedbackParameters { base: Base::Sequential, ..parameters }), 64, 3);
    let mut rng = Rng::seeded(2);
    device.run((0..20_000).map(|_| if rng.below(2) == 0 { rng.below(60) * 100 } else { rng.below(1 << 30) }));
    assert_eq!(device.prefetcher.level(), 0);
}

#[test]
fn the_default_parameters_are_the_papers() {
    let best = BestOffset::new(BestOffsetParameters::DEFAULT);
    // Fifty-two offsets and scores, 256 tags.
    assert!(best.metadata_bytes() >= 52 * (8 + 4) + 256 * 4);
    let levels = FeedbackParameters::DEFAULT.levels.map(|level| (level.degree, level.distance));
    assert_eq!(levels, [(1, 4), (1, 8), (2, 16), (4, 32), (4, 64)]);
    assert_eq!(Feedback::new(FeedbackParameters::DEFAULT).level(), 2);
    assert_eq!(
        Named::ALL.map(Named::name),
        ["none", "next-n", "feedback-directed", "best-offset", "leap", "readahead", "plan"]
    );
}

#[test]
fn nothing_is_wished_for_beyond_the_first_and_the_last_page() {
    for named in Named::ALL {
        for (first, step) in [(40u64, -1i64), (u64::MAX - 40, 1)] {
            let mut device = Device::new(named.build(), 16, 2);
            let pages: Vec<u64> = (0..=40).map(|at| first.checked_add_signed(step * at).unwrap()).collect();
            for page in pages.iter().cycle().take(41 * 50) {
                device.access(*page);
                // What wrapped around would lie at the other end.
                let other_end = |page: u64| (page < 1 << 32) != (first < 1 << 32);
                assert!(!device.under_way.iter().any(|fetch| other_end(fetch.0)), "{named}");
            }
        }
        // Both ends in turn: the largest deltas there are.
        let mut device = Device::new(named.build(), 4, 1);
        device.run((0..1000).map(|at| if at % 2 == 0 { at / 50 } else { u64::MAX - at / 50 }));
    }
}
