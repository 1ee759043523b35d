//! `sim frames` against a naive twin: a list of pages in the order of their use, searched from end to end.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use proptest::prelude::*;
use tiermem_base::{Access, Op};
use tiermem_policy::evict::Named;
use tiermem_policy::flat::{self, Capacity, Request};
use tiermem_policy::frames::TierConfig;
use tiermem_policy::prefetch;
use tiermem_sim::frames::{
    Counts, Cut, FirstTouch, Memory, Order, ReplayError, Setup, TierCounts, Touches, run,
};

const FRAME: u64 = 4096;
const NONE: prefetch::Named = prefetch::Named::None;

fn touches(accesses: &[Access]) -> Touches {
    Touches::of(accesses.iter().map(|access| Ok::<_, Infallible>(*access)), Cut::in_order(FRAME as u32))
        .unwrap()
}

fn memory(dram: u32, flash: u32, first_touch: FirstTouch) -> Memory {
    Memory {
        tiers: vec![TierConfig::memory(dram), TierConfig::storage(flash)],
        first_touch,
        ..Memory::default()
    }
}

fn one(
    touches: &Touches,
    memory: &Memory,
    order: Order,
    prefetch: prefetch::Named,
) -> Result<Counts, ReplayError> {
    run(touches, memory, &[Setup { order, prefetch }], 1).remove(0)
}

/// What is done to a page, one page at a time.
fn pages(accesses: &[Access]) -> Vec<(u64, Op)> {
    let cut = |access: &Access| {
        let last = access.key.saturating_add(u64::from(access.size.max(1)) - 1);
        (access.key / FRAME..=last / FRAME).map(|page| (page, access.op)).collect::<Vec<_>>()
    };
    accesses.iter().flat_map(cut).collect()
}

/// What the twin counts too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Figures {
    touches: u64,
    faults: u64,
    read_bytes: u64,
    written_bytes: u64,
}

fn figures(counts: Counts) -> Figures {
    let Counts { touches, faults, faults_low, faults_high, read_bytes, written_bytes, .. } = counts;
    assert_eq!((faults_low, faults_high), (faults, faults), "the order is known");
    Figures { touches, faults, read_bytes, written_bytes }
}

/// DRAM as a list, coldest page first, and everything else as sets. Flash has room for all.
#[derive(Default)]
struct Naive {
    dram: Vec<u64>,
    below: BTreeSet<u64>,
    /// In DRAM, with what flash still holds of it.
    copies: BTreeSet<u64>,
    /// In DRAM, never written.
    zero: BTreeSet<u64>,
    counts: Figures,
}

impl Naive {
    fn make_room(&mut self, dram: usize, victim: impl Fn(&[u64]) -> usize) {
        while self.dram.len() >= dram {
            let page = self.dram.remove(victim(&self.dram));
            if self.zero.remove(&page) {
                continue;
            }
            if !self.copies.remove(&page) {
                self.counts.written_bytes += FRAME;
            }
            self.below.insert(page);
        }
    }

    fn fetch(&mut self, page: u64) {
        self.counts.read_bytes += FRAME;
        self.below.remove(&page);
        self.copies.insert(page);
    }

    /// `victim` picks one of the pages in DRAM; `next_n` pages beyond an offset are fetched after a fault or a first use.
    fn run(
        accesses: &[Access],
        dram: usize,
        fetch_first: bool,
        victim: impl Fn(&[u64], usize) -> usize,
        next: Option<(u64, u64)>,
    ) -> Figures {
        let mut it = Naive::default();
        let pages = pages(accesses);
        if fetch_first {
            it.below = pages.iter().map(|(page, _)| *page).collect();
        }
        let mut touched = BTreeSet::new();
        let mut unused = BTreeSet::new();
        for (at, &(page, op)) in pages.iter().enumerate() {
            if op == Op::Del {
                if !touched.contains(&page) {
                    continue;
                }
                it.dram.retain(|other| *other != page);
                // A page that is gone is not fetched when it comes back.
                for set in [&mut it.below, &mut it.copies, &mut it.zero, &mut unused] {
                    set.remove(&page);
                }
                continue;
            }
            touched.insert(page);
            it.counts.touches += 1;
            let mut is_first = unused.remove(&page);
            if let Some(place) = it.dram.iter().position(|other| *other == page) {
                it.dram.remove(place);
            } else {
                is_first = true;
                it.make_room(dram, |pages| victim(pages, at));
                if it.below.contains(&page) {
                    it.counts.faults += 1;
                    it.fetch(page);
                } else {
                    it.zero.insert(page);
                }
            }
            it.dram.push(page);
            if op.is_write() {
                it.copies.remove(&page);
                it.zero.remove(&page);
            }
            let Some((degree, offset)) = next.filter(|_| is_first) else { continue };
            for wish in page + offset + 1..=page + offset + degree {
                if it.below.contains(&wish) {
                    let before = it.dram.clone();
                    it.make_room(dram, |pages| victim(pages, at));
                    unused.retain(|page| !before.contains(page) || it.dram.contains(page));
                    it.fetch(wish);
                    it.dram.push(wish);
                    unused.insert(wish);
                }
            }
        }
        it.counts
    }
}

/// The page whose next touch is farthest, found by looking ahead for each.
fn farthest(all: &[(u64, Op)]) -> impl Fn(&[u64], usize) -> usize {
    move |pages, at| {
        let next = |page: &u64| {
            let ahead = all[at..].iter().position(|(other, _)| other == page);
            ahead.filter(|ahead| all[at + ahead].1 != Op::Del).unwrap_or(usize::MAX)
        };
        (0..pages.len()).max_by_key(|place| next(&pages[*place])).unwrap()
    }
}

fn access() -> impl Strategy<Value = Access> {
    let op = prop_oneof![8 => Just(Op::Load), 4 => Just(Op::Store), 1 => Just(Op::Del), 1 => Just(Op::Scan)];
    let size = prop_oneof![4 => 0u32..64, 2 => 1u32..12_000, 1 => Just(4096u32)];
    // Whole pages of 30, some far away.
    let key = prop_oneof![6 => 0u64..30 * 4096, 2 => 0u64..6 * 4096, 1 => u64::MAX - 9000..=u64::MAX];
    (op, key, size, 0u32..3)
        .prop_map(|(op, key, size, tenant)| Access { tenant, ..Access::new(0, op, key, size) })
}

fn check(accesses: &[Access], dram: u32, first_touch: FirstTouch) {
    let trace = touches(accesses);
    let memory = memory(dram, 1 << 20, first_touch);
    let fetch_first = first_touch == FirstTouch::Fetch;
    let coldest = |_: &[u64], _: usize| 0;
    let lru = figures(one(&trace, &memory, Order::Named(Named::Lru), NONE).unwrap());
    assert_eq!(lru, Naive::run(accesses, dram as usize, fetch_first, coldest, None), "lru in {dram}");
    let all = pages(accesses);
    let belady = one(&trace, &memory, Order::Belady, NONE).unwrap();
    let naive = Naive::run(accesses, dram as usize, fetch_first, farthest(&all), None);
    // Of pages that are never touched again it may take any, so that only faults and reads are alike.
    assert_eq!(
        (belady.touches, belady.faults, belady.read_bytes),
        (naive.touches, naive.faults, naive.read_bytes),
        "belady in {dram}"
    );
}

proptest! {
    #[test]
    fn equals_its_twin(accesses in prop::collection::vec(access(), 0..300), dram in 1u32..40, fetch in any::<bool>()) {
        check(&accesses, dram, if fetch { FirstTouch::Fetch } else { FirstTouch::Zero });
    }

    #[test]
    fn equals_its_twin_with_a_prefetcher(
        accesses in prop::collection::vec(access(), 0..300),
        dram in 1u32..40,
        degree in 1u32..4,
        offset in 0u32..3,
    ) {
        // Without deletions and far pages: the twin knows pages, and not where a device ends.
        let accesses: Vec<Access> =
            accesses.into_iter().filter(|access| access.op != Op::Del && access.key < 1 << 20).collect();
        let next = prefetch::Named::NextN(prefetch::next_n::NextNParameters { degree, offset });
        let memory = memory(dram, 1 << 20, FirstTouch::Zero);
        let ours = one(&touches(&accesses), &memory, Order::Named(Named::Lru), next).unwrap();
        let next = Some((u64::from(degree), u64::from(offset)));
        prop_assert_eq!(figures(ours), Naive::run(&accesses, dram as usize, false, |_, _| 0, next));
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the order, prefetcher and tiers: nothing is lost, and the sums make sense.
    #[test]
    fn sums_hold_for_every_order(accesses in prop::collection::vec(access(), 1..200), sizes in prop::collection::vec(1u32..9, 1..4)) {
        let trace = touches(&accesses);
        let mut tiers: Vec<TierConfig> = sizes.iter().map(|frames| TierConfig::memory(*frames)).collect();
        tiers.push(TierConfig::storage(1 << 20));
        let memory = Memory { tiers, first_touch: FirstTouch::Fetch, seed: 1, ..Memory::default() };
        let orders = Named::ALL.map(Order::Named).into_iter().chain([Order::Belady]);
        let setups: Vec<Setup> =
            orders.flat_map(|order| prefetch::Named::ALL.map(|prefetch| Setup { order, prefetch })).collect();
        let outcomes = run(&trace, &memory, &setups, 2);
        prop_assert_eq!(&outcomes, &run(&trace, &memory, &setups, 1), "threads change nothing");
        for (setup, outcome) in setups.iter().zip(outcomes) {
            let counts = outcome.unwrap();
            prop_assert!(counts.faults <= counts.touches && counts.read_bytes >= counts.faults * FRAME, "{:?}", setup);
            prop_assert!(setup.prefetch != NONE || counts.read_bytes == counts.faults * FRAME, "{:?}", setup);
        }
    }
}

fn testdata(name: &str) -> Vec<Access> {
    let path = format!("{}/../trace/testdata/{name}", env!("CARGO_MANIFEST_DIR"));
    tiermem_trace::open(&path).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn equals_its_twin_on_real_traces() {
    for name in [
        "address_gcc-500.trace.gz",
        "msr-slice-rw20-300.trace.zst",
        "arc_P3-300.lis.zst",
        "tencent_block-300.bz2",
    ] {
        let accesses = testdata(name);
        for dram in [1, 5, 50, 5000] {
            check(&accesses, dram, FirstTouch::Zero);
            check(&accesses, dram, FirstTouch::Fetch);
        }
    }
}

#[test]
fn every_order_faults_as_it_misses_in_a_flat_cache() {
    let accesses = testdata("msr-slice-rw20-10k.trace.zst");
    let trace = touches(&accesses);
    let mut numbers = BTreeMap::new();
    let requests: Vec<Request> = pages(&accesses)
        .into_iter()
        .map(|(page, op)| {
            let next = numbers.len() as u32;
            let op = if op.is_write() { Op::Set } else { Op::Get };
            Request { key: *numbers.entry(page).or_insert(next), size: 1, op }
        })
        .collect();
    for named in Named::ALL {
        for dram in [64, 1000] {
            let mut cache = flat::cache(named, Capacity::Objects(u64::from(dram)), 0);
            cache.run(&requests, numbers.len() as u32);
            let ours =
                one(&trace, &memory(dram, 1 << 20, FirstTouch::Fetch), Order::Named(named), NONE).unwrap();
            assert_eq!(
                (ours.touches, ours.faults),
                (cache.counts().requests, cache.counts().misses),
                "{named} in {dram}"
            );
        }
    }
}

#[test]
fn nobody_faults_less_than_belady_and_nobody_with_room_for_all() {
    let trace = touches(&testdata("msr-slice-rw20-10k.trace.zst"));
    for dram in [16, 200, 2000] {
        let faults =
            |order| one(&trace, &memory(dram, 1 << 20, FirstTouch::Zero), order, NONE).unwrap().faults;
        let least = faults(Order::Belady);
        for named in Named::ALL {
            assert!(faults(Order::Named(named)) >= least, "{named} in {dram}");
        }
    }
    let all =
        one(&trace, &memory(trace.frames(), 1, FirstTouch::Zero), Order::Named(Named::Lru), NONE).unwrap();
    assert_eq!((all.faults, all.read_bytes, all.written_bytes), (0, 0, 0));
}

#[test]
fn a_middle_tier_of_memory_is_used_without_faults() {
    let accesses: Vec<Access> =
        (0..2000u64).map(|n| Access::new(0, Op::Store, n * n % 61 * FRAME, 8)).collect();
    let trace = touches(&accesses);
    let with = |middle: TierConfig| {
        let tiers = vec![TierConfig::memory(8), middle, TierConfig::storage(100)];
        one(&trace, &Memory { tiers, ..Memory::default() }, Order::Named(Named::Lru), NONE).unwrap()
    };
    assert_eq!(with(TierConfig::memory(100)).faults, 0);
    assert!(with(TierConfig::memory(8)).faults > 0);
    // A tier that must be fetched from holds all: the last one is never reached, and each fault is one of it.
    let compressed = with(TierConfig { keeps_copies: false, ..TierConfig::storage(100) });
    let flash = one(&trace, &memory(8, 100, FirstTouch::Zero), Order::Named(Named::Lru), NONE).unwrap();
    assert_eq!(compressed.faults, flash.faults);
}

#[test]
fn tiers_that_cannot_hold_the_trace_are_told() {
    let accesses: Vec<Access> = (0..20u64).map(|n| Access::new(0, Op::Store, n % 10 * FRAME, 8)).collect();
    let trace = touches(&accesses);
    let lru = Order::Named(Named::Lru);
    let outcome = one(&trace, &memory(4, 5, FirstTouch::Zero), lru, NONE);
    assert_eq!(outcome, Err(ReplayError::Full { touch: 10, capacity: 9, held: 9 }));
    // All have a place, but none is free for two to change places.
    assert_eq!(
        one(&trace, &memory(4, 6, FirstTouch::Zero), lru, NONE),
        Err(ReplayError::Full { touch: 11, capacity: 10, held: 10 })
    );
    assert!(one(&trace, &memory(4, 7, FirstTouch::Zero), lru, NONE).is_ok());
    assert!(matches!(
        one(&trace, &memory(4, 7, FirstTouch::Fetch), lru, NONE),
        Err(ReplayError::Full { touch: 0, .. })
    ));
    assert!(matches!(one(&trace, &memory(0, 7, FirstTouch::Zero), lru, NONE), Err(ReplayError::Config(_))));
    let nothing = one(&touches(&[]), &memory(1, 1, FirstTouch::Fetch), Order::Belady, NONE);
    assert_eq!(nothing, Ok(Counts { tiers: vec![TierCounts::default(); 2], ..Counts::default() }));
}
