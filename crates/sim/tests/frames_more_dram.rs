//! What a simulation says that more DRAM would save, against a simulation with more DRAM.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::convert::Infallible;

use proptest::prelude::*;
use tiermem_base::{Access, Op, Rng};
use tiermem_policy::evict::Named;
use tiermem_policy::frames::TierConfig;
use tiermem_policy::paging::{Saved, Watermarks};
use tiermem_policy::prefetch::{self, next_n::NextNParameters};
use tiermem_sim::frames::{Counts, Cut, FirstTouch, Memory, Order, References, Setup, Touches, run};

const FRAME: u64 = 4096;
const LRU: Order = Order::Named(Named::Lru);

fn of(accesses: &[Access]) -> Touches {
    let accesses = accesses.iter().map(|access| Ok::<_, Infallible>(*access));
    Touches::of(accesses, Cut::in_order(FRAME as u32)).unwrap()
}

fn memory(dram: u32) -> Memory {
    Memory { tiers: vec![TierConfig::memory(dram), TierConfig::storage(1 << 20)], ..Memory::default() }
}

fn counts(touches: &Touches, memory: &Memory, order: Order, prefetch: prefetch::Named) -> Counts {
    run(touches, memory, &[Setup { order, prefetch }], 1).remove(0).unwrap()
}

fn faults(touches: &Touches, memory: &Memory) -> u64 {
    counts(touches, memory, LRU, prefetch::Named::None).faults
}

/// Reads, writes and discards of few pages, some of them at once.
fn access() -> impl Strategy<Value = Access> {
    let op = prop_oneof![4 => Just(Op::Load), 4 => Just(Op::Store), 1 => Just(Op::Del)];
    let page = prop_oneof![2 => 0u64..12, 2 => 0u64..50];
    (page, op, 1u32..4).prop_map(|(page, op, pages)| Access::new(0, op, page * FRAME, pages * FRAME as u32))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Told of each touch, LRU over DRAM with `more` frames more has exactly as many faults less as it says, discards or not.
    #[test]
    fn lru_says_exactly_what_more_dram_saves(
        accesses in prop::collection::vec(access(), 0..400),
        dram in 1u32..20,
        fetch_first in any::<bool>(),
    ) {
        let touches = of(&accesses);
        let first_touch = if fetch_first { FirstTouch::Fetch } else { FirstTouch::Zero };
        let of = |dram| Memory { first_touch, ..memory(dram) };
        let less = counts(&touches, &of(dram), LRU, prefetch::Named::None);
        for more in 0..50 {
            let saved = less.more_dram.saved_by(more.into());
            let expected = Saved { faults: less.faults - faults(&touches, &of(dram + more)), fetches: 0 };
            prop_assert_eq!(saved, expected, "{} more than {}", more, dram);
        }
    }

    /// What is fetched ahead and used, and faults, are all pages that came back: more DRAM than there are pages saves them all.
    #[test]
    fn all_that_came_back_is_saved_by_enough(
        accesses in prop::collection::vec(access(), 0..400),
        dram in 1u32..20,
        degree in 1u32..5,
        drop_behind in any::<bool>(),
        order in prop::sample::select(vec![Named::Lru, Named::Fifo, Named::Random, Named::Sieve]),
    ) {
        let touches = of(&accesses);
        let prefetch = prefetch::Named::NextN(NextNParameters { degree, offset: 0 });
        let memory = Memory { drop_behind, ..memory(dram) };
        let counts = counts(&touches, &memory, Order::Named(order), prefetch);
        let all = Saved { faults: counts.faults, fetches: counts.paging.prefetch_used };
        prop_assert_eq!(counts.more_dram.saved_by(64), all);
        prop_assert_eq!(counts.more_dram.saved_by(0), Saved::default());
    }
}

/// Pages of which few are touched often; larger than what is held of the order.
fn skewed(pages: u64, touches: u64) -> Touches {
    let mut rng = Rng::seeded(5);
    let mut page = move || {
        let share = rng.below(1 << 20) as f64 / (1u64 << 20) as f64;
        (share * share * share * pages as f64) as u64
    };
    let all = (0..pages).chain((0..touches).map(|_| page()));
    of(&all.map(|page| Access::new(0, Op::Store, page * FRAME, 8)).collect::<Vec<_>>())
}

#[test]
fn a_pager_that_keeps_some_frames_free_says_nearly_what_more_dram_saves() {
    let touches = skewed(20_000, 200_000);
    let of = |dram| {
        let Watermarks { low, high } = Watermarks::of(dram);
        let mut memory = memory(dram);
        (memory.tiers[0].low, memory.tiers[0].high) = (low, high);
        memory
    };
    let less = counts(&touches, &of(4000), LRU, prefetch::Named::None);
    for more in [400, 1000, 2000, 4000, 8000] {
        let expected = less.faults - faults(&touches, &of(4000 + more));
        let saved = less.more_dram.saved_by(more.into()).faults;
        assert!(saved.abs_diff(expected) * 100 < less.faults, "{more}: {saved} of {expected}");
    }
}

/// Who hears of faults alone sends away what came first, used or not. DRAM behind that, which keeps what left last, is worth more than the
/// same DRAM in front.
#[test]
fn where_references_are_not_told_it_says_somewhat_more_than_more_dram_saves() {
    let touches = skewed(20_000, 200_000);
    let of = |dram| Memory { references: References::Faults, ..memory(dram) };
    let less = counts(&touches, &of(4000), LRU, prefetch::Named::None);
    for more in [400, 1000, 2000, 4000, 8000] {
        let expected = less.faults - faults(&touches, &of(4000 + more));
        let saved = less.more_dram.saved_by(more.into()).faults;
        assert!((expected..expected + less.faults / 8).contains(&saved), "{more}: {saved} of {expected}");
    }
}

#[test]
fn more_has_left_than_is_held() {
    let touches = skewed(600_000, 600_000);
    let less = counts(&touches, &memory(50_000), LRU, prefetch::Named::None);
    for more in [50_000, 100_000, 300_000] {
        let expected = less.faults - faults(&touches, &memory(50_000 + more));
        let saved = less.more_dram.saved_by(more.into()).faults;
        assert!(saved.abs_diff(expected) * 40 < expected, "{more}: {saved} of {expected}");
    }
}

#[test]
fn a_loop_gains_nothing_until_it_fits() {
    let passes = (0..5).flat_map(|_| 0..2000);
    let touches = of(&passes.map(|page| Access::new(0, Op::Store, page * FRAME, 8)).collect::<Vec<_>>());
    let less = counts(&touches, &memory(1000), LRU, prefetch::Named::None);
    assert_eq!(less.faults, 4 * 2000);
    assert_eq!(less.more_dram.saved_by(996).faults, 0);
    // Distances of 1000 lie in a bin of 1000 to 1003.
    assert_eq!(less.more_dram.pages_to_save(less.faults), Some(1003));
}
