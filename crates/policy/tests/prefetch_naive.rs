//! Each prefetcher against an obvious twin (`prefetch_twins`), over calls in any order.

mod prefetch_twins;

use prefetch_twins::{LAST_PAGE, naive};
use proptest::prelude::*;
use tiermem_policy::prefetch::best_offset::BestOffsetParameters;
use tiermem_policy::prefetch::feedback::{Base, FeedbackParameters, Level};
use tiermem_policy::prefetch::leap::LeapParameters;
use tiermem_policy::prefetch::next_n::NextNParameters;
use tiermem_policy::prefetch::readahead::ReadaheadParameters;
use tiermem_policy::prefetch::stream::StreamParameters;
use tiermem_policy::prefetch::{Demand, Named, Prefetch, Why};

#[derive(Clone, Debug)]
enum Event {
    Demand(u64, Demand),
    Issued(u64),
    Filled(u64, Why),
    Evicted(u64, Why, bool),
}

fn found() -> impl Strategy<Value = Demand> {
    prop_oneof![
        1 => Just(Demand::Hit),
        2 => Just(Demand::PrefetchHit),
        1 => Just(Demand::LatePrefetch),
        1 => Just(Demand::UnderMiss),
        5 => Just(Demand::Miss),
    ]
}

fn why() -> impl Strategy<Value = Why> {
    prop_oneof![1 => Just(Why::Demand), 2 => Just(Why::Prefetch)]
}

/// Small ranges: at the beginning, somewhere, beyond what 32 bits hold, and at the end.
fn page() -> impl Strategy<Value = u64> {
    (prop_oneof![Just(0), Just(5000), Just(1 << 40), Just(u64::MAX - 79)], 0u64..80)
        .prop_map(|(base, page)| base + page)
}

/// Single events, and runs of demands of one stride with what usually follows them.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let single = prop_oneof![
        4 => (page(), found()).prop_map(|(page, found)| Event::Demand(page, found)),
        1 => page().prop_map(Event::Issued),
        2 => (page(), why()).prop_map(|(page, why)| Event::Filled(page, why)),
        2 => (page(), why(), any::<bool>())
            .prop_map(|(page, why, unused)| Event::Evicted(page, why, unused)),
    ]
    .prop_map(|event| vec![event]);
    let run = (page(), -5i64..6, 1usize..60, prop::collection::vec(found(), 60), why(), 0u64..4);
    let run = run.prop_map(|(start, stride, length, found, why, ahead)| {
        let mut events = vec![];
        for (at, found) in found.into_iter().enumerate().take(length) {
            let Some(page) = start.checked_add_signed(stride * at as i64) else { break };
            events.push(Event::Demand(page, found));
            events.push(Event::Issued(page));
            events.push(Event::Filled(page.saturating_add(ahead), why));
            events.push(Event::Evicted(page.saturating_sub(30), why, at % 3 == 0));
        }
        events
    });
    prop::collection::vec(prop_oneof![2 => single, 1 => run], 1..40).prop_map(|events| events.concat())
}

fn level() -> impl Strategy<Value = Level> {
    (0u32..6, 0u32..40).prop_map(|(degree, distance)| Level { degree, distance })
}

fn share() -> impl Strategy<Value = f64> {
    (0u32..=16).prop_map(|of| f64::from(of) / 16.0)
}

fn feedback() -> impl Strategy<Value = FeedbackParameters> {
    let stream = (1u32..6, 0u32..20, 0u32..8).prop_map(|(streams, train_pages, startup_pages)| {
        StreamParameters { streams, train_pages, startup_pages }
    });
    let base = prop_oneof![3 => stream.prop_map(Base::Stream), 1 => Just(Base::Sequential)];
    let levels = (prop::array::uniform5(level()), 0usize..7, 1u64..12);
    (base, levels, prop::array::uniform6(share()), any::<bool>(), 1u32..5000).prop_map(
        |(base, (levels, level_start, interval_evictions), shares, steer_insertion, filter_bits)| {
            let [a, b, lateness, pollution, c, d] = shares;
            FeedbackParameters {
                base,
                levels,
                level_start,
                interval_evictions,
                accuracy_high: a.max(b),
                accuracy_low: a.min(b),
                lateness,
                pollution,
                steer_insertion,
                insertion_pollution_low: c.min(d),
                insertion_pollution_high: c.max(d),
                filter_bits,
            }
        },
    )
}

fn best_offset() -> impl Strategy<Value = BestOffsetParameters> {
    let offset_max = prop_oneof![4 => 1u16..30, 1 => Just(256u16)];
    (offset_max, 0u16..20, 1u32..6, 1u32..6, 0u32..3, 1u32..300, 1u32..=20).prop_map(|of| {
        BestOffsetParameters {
            offset_max: of.0,
            offset_start: of.1,
            score_max: of.2,
            round_max: of.3,
            bad_score: of.4,
            recent_entries: of.5,
            recent_tag_bits: of.6,
        }
    })
}

/// Small parameters, so that much is decided in a short test, and the defaults.
fn prefetcher() -> impl Strategy<Value = Named> {
    prop_oneof![
        1 => Just(Named::None),
        1 => (0u32..5, 0u32..20).prop_map(|(degree, offset)| Named::NextN(NextNParameters { degree, offset })),
        5 => feedback().prop_map(Named::FeedbackDirected),
        5 => best_offset().prop_map(Named::BestOffset),
        5 => (1u32..40, 1u32..9, 0u32..20).prop_map(|(history, splits, window_max)| {
            Named::Leap(LeapParameters { history, splits, window_max })
        }),
        5 => (1u32..5, 0u32..8, 0u32..9, 0u32..20).prop_map(|(streams, gap_pages, window_min, more)| {
            Named::Readahead(ReadaheadParameters { streams, gap_pages, window_min, window_max: window_min + more })
        }),
        5 => prop::sample::select(Named::ALL.to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_wish_is_the_twins_wish(prefetcher in prefetcher(), events in events()) {
        let (mut fast, mut naive) = (prefetcher.build(), naive(prefetcher));
        let mut again = prefetcher.build();
        for (at, event) in events.into_iter().enumerate() {
            match event {
                Event::Demand(page, found) => {
                    // What was in the vector stays.
                    let mut wanted = vec![page];
                    fast.demand(page, found, &mut wanted);
                    let mut wishes = naive.demand(i128::from(page), found);
                    wishes.retain(|wish| (0..=LAST_PAGE).contains(wish));
                    let compared: Vec<i128> = wanted.iter().skip(1).map(|page| i128::from(*page)).collect();
                    prop_assert_eq!(&compared, &wishes, "{:?} at event {}", prefetcher, at);
                    prop_assert_eq!(wanted[0], page);
                    prop_assert!(!wanted[1..].contains(&page));
                    let mut wanted_again = vec![page];
                    again.demand(page, found, &mut wanted_again);
                    prop_assert_eq!(wanted, wanted_again);
                }
                Event::Issued(page) => {
                    fast.issued(page);
                    again.issued(page);
                    naive.issued();
                }
                Event::Filled(page, why) => {
                    fast.filled(page, why);
                    again.filled(page, why);
                    naive.filled(i128::from(page), why);
                }
                Event::Evicted(page, why, unused) => {
                    fast.evicted(page, why, unused);
                    again.evicted(page, why, unused);
                    naive.evicted(i128::from(page), why, unused);
                }
            }
            prop_assert_eq!(fast.insertion(), naive.insertion());
        }
    }
}
