//! Paging against its naive twin: after every event the same acts, the same places, the same counts, in whatever order acts are
//! settled; and every eviction order and prefetcher over the machine's own audit.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

#[path = "paging_world/naive.rs"]
mod naive;
mod paging_world;

use std::fmt::Debug;

use naive::{Lies, Naive};
use paging_world::{Op, PAGES, World, op, page, planned};
use proptest::prelude::*;
use tiermem_policy::evict::any_policy::WithPolicy;
use tiermem_policy::evict::lru::{Bump, Lru};
use tiermem_policy::evict::{Evict, Named};
use tiermem_policy::frames::{Arrival, References, TierConfig, domains};
use tiermem_policy::paging::{Config, Event, Outcome, Paging, Watermarks};
use tiermem_policy::prefetch;
use tiermem_policy::prefetch::best_offset::BestOffsetParameters;
use tiermem_policy::prefetch::feedback::FeedbackParameters;
use tiermem_policy::prefetch::leap::LeapParameters;
use tiermem_policy::prefetch::next_n::NextNParameters;
use tiermem_policy::prefetch::readahead::ReadaheadParameters;

/// Prefetchers that wish for much and change their minds often.
fn prefetcher() -> impl Strategy<Value = prefetch::Named> {
    let steered = FeedbackParameters { interval_evictions: 4, ..FeedbackParameters::DEFAULT };
    // Off at first, and again and again.
    let learning = BestOffsetParameters {
        offset_max: 2,
        offset_start: 0,
        score_max: 2,
        round_max: 4,
        bad_score: 0,
        ..BestOffsetParameters::DEFAULT
    };
    let history = LeapParameters { history: 4, ..LeapParameters::DEFAULT };
    prop_oneof![
        1 => Just(prefetch::Named::None),
        4 => (1u32..4, 0u32..2)
            .prop_map(|(degree, offset)| prefetch::Named::NextN(NextNParameters { degree, offset })),
        3 => Just(prefetch::Named::FeedbackDirected(steered)),
        3 => Just(prefetch::Named::BestOffset(learning)),
        2 => Just(prefetch::Named::Leap(history)),
    ]
}

/// DRAM with or without watermarks over swap with or without room for all.
fn config() -> impl Strategy<Value = Config> {
    let sizes = (2u32..12, prop_oneof![3 => Just(100u32), 1 => 2u32..16]);
    let references = prop_oneof![Just(References::Told), Just(References::Sampled)];
    (sizes, 0u32..3, 0u32..3, 1u32..10, prefetcher(), references).prop_map(
        |((dram, swap), low, more, moves_max, prefetch, references)| {
            let high = (low + more).min(dram - 1);
            let mut config = Config { prefetch, moves_max, references, ..Config::kernel(dram, swap) };
            config.tiers[0] = TierConfig { low: low.min(high), high, ..TierConfig::memory(dram) };
            config
        },
    )
}

fn lru(config: &Config) -> Paging<Lru> {
    let policy = Lru::new(vec![1.0; domains(&config.frames())], Bump::Always);
    Paging::new(config.clone(), policy).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(768))]

    #[test]
    fn equals_its_twin(config in config(), ops in prop::collection::vec(op(), 1..250)) {
        let mut world = World::new(lru(&config));
        let mut naive = Naive::new(&config);
        for op in ops {
            let tickets: Vec<usize> = world.tickets.iter().map(|(_, number)| *number).collect();
            let expected = naive.run(op, &tickets);
            prop_assert_eq!(world.run(op), expected, "{:?}", op);
            prop_assert_eq!(world.paging.counts(), naive.counts, "after {:?}", op);
            world.paging.audit();
            for page in (0..PAGES).map(page) {
                let twin = naive.pages.get(&page);
                let lies = match twin.map_or(Lies::Nowhere, |page| page.lies) {
                    Lies::Nowhere => None,
                    Lies::Dram => Some(0),
                    Lies::Swap => Some(1),
                };
                prop_assert_eq!(world.paging.tier(page), lies, "page {} after {:?}", page, op);
                let is_prefetched = twin.is_some_and(|page| page.prefetched);
                prop_assert_eq!(world.paging.is_prefetched(page), is_prefetched, "page {} after {:?}", page, op);
            }
            let space = world.paging.space();
            prop_assert_eq!((space.used(0), space.used(1)), (naive.in_dram(), naive.in_swap()));
            prop_assert_eq!(space.capacity(0), naive.dram);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the order of eviction, and with local memory before DRAM or without: the audit holds, the same events give the same acts, and in the end all can be paged out.
    #[test]
    fn every_order_conforms(mut config in config(), local in prop::option::of(1u32..6), ops in prop::collection::vec(prop_oneof![12 => op(), 1 => planned()], 1..200)) {
        if let Some(local) = local {
            config.tiers.insert(0, TierConfig::memory(local));
            config.arrival = Arrival::Spill;
        }
        for named in Named::ALL {
            let count = domains(&config.frames());
            let first = named.build(count, 0, Conform { config: &config, ops: &ops });
            let again = named.build(count, 0, Conform { config: &config, ops: &ops });
            prop_assert_eq!(first, again, "{} decides alike", named);
        }
    }
}

struct Conform<'a> {
    config: &'a Config,
    ops: &'a [Op],
}

impl WithPolicy for Conform<'_> {
    type Output = Vec<Vec<String>>;

    fn with<E: Evict + Send + Debug + 'static>(self, policy: E) -> Self::Output {
        let mut config = self.config.clone();
        config.tiers.last_mut().unwrap().frames = 100;
        let turnover_tier = config.turnover_tier() as u8;
        config.drop_behind = true;
        let readahead = ReadaheadParameters { window_min: 1, window_max: 4, ..ReadaheadParameters::DEFAULT };
        if self.ops.len().is_multiple_of(2) {
            config.prefetch = prefetch::Named::Plan(readahead);
        }
        let mut world = World::new(Paging::new(config, policy).unwrap());
        let told = self.ops.iter().map(|op| {
            let told = world.run(*op);
            world.paging.audit();
            told
        });
        let told = told.collect();
        let settle_all = |world: &mut World<E>| {
            while !world.tickets.is_empty() {
                world.run(Op::Settled { nth: 0, outcome: Outcome::Done });
            }
        };
        settle_all(&mut world);
        let watermarks = Watermarks::default();
        world.run(Op::Event(Event::Capacity { dram_pages: 0, watermarks }));
        for _ in 0..2 * PAGES {
            world.run(Op::Event(Event::Step { budget: 100 }));
            settle_all(&mut world);
        }
        assert_eq!(world.paging.space().used(turnover_tier), 0, "no page stays where pages leave memory");
        told
    }
}
