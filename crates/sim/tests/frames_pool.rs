//! A hybrid pool in `sim frames`: two tiers of memory over flash, against a naive twin that looks at every page.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::BTreeMap;
use std::convert::Infallible;

use proptest::prelude::*;
use tiermem_base::{Access, Op};
use tiermem_policy::evict::Named;
use tiermem_policy::frames::{Arrival, TierConfig};
use tiermem_policy::prefetch;
use tiermem_sim::frames::{
    Counts, Cut, FirstTouch, Memory, Order, References, Setup, TierCounts, Touches, run,
};

const FRAME: u64 = 4096;
const LRU: Setup = Setup { order: Order::Named(Named::Lru), prefetch: prefetch::Named::None };

fn touches(accesses: &[Access]) -> Touches {
    Touches::of(accesses.iter().map(|access| Ok::<_, Infallible>(*access)), Cut::in_order(FRAME as u32))
        .unwrap()
}

fn pool(local: u32, remote: u32) -> Memory {
    let tiers = vec![TierConfig::memory(local), TierConfig::memory(remote), TierConfig::storage(1 << 20)];
    Memory { tiers, arrival: Arrival::Spill, ..Memory::default() }
}

fn one(touches: &Touches, memory: &Memory, setup: Setup) -> Counts {
    run(touches, memory, &[setup], 1).remove(0).unwrap()
}

fn store(page: u64) -> Access {
    Access::new(0, Op::Store, page * FRAME, 8)
}

/// A page of the twin.
#[derive(Clone, Copy, Debug)]
struct Page {
    tier: usize,
    /// Uses, halved now and then, and when the last one was.
    heat: (u64, u64),
    /// When it last went to the warm end of the order of its tier.
    warm_at: u64,
    is_zero: bool,
    has_copy: bool,
}

/// Memory of two tiers, and flash with room for all, as one map.
struct Naive {
    capacity: [usize; 2],
    pages: BTreeMap<u64, Page>,
    tiers: [TierCounts; 3],
    faults: u64,
    now: u64,
    halved_at: u64,
    last: Option<u64>,
}

impl Naive {
    fn run(touched: &[(u64, Op)], capacity: [usize; 2]) -> (u64, [TierCounts; 3]) {
        let mut it = Naive {
            capacity,
            pages: BTreeMap::new(),
            tiers: Default::default(),
            faults: 0,
            now: 0,
            halved_at: 0,
            last: None,
        };
        for (page, op) in touched {
            if *op == Op::Del {
                it.pages.remove(page);
                continue;
            }
            it.touch(*page, op.is_write());
            if it.pages_of(0).count() < capacity[0] || it.pages_of(1).count() > 0 {
                it.exchange();
            }
            for tier in 0..3 {
                let peak = &mut it.tiers[tier].peak_frames;
                *peak = (*peak).max(it.pages.values().filter(|page| page.tier == tier).count() as u64);
            }
        }
        (it.faults, it.tiers)
    }

    fn pages_of(&self, tier: usize) -> impl Iterator<Item = (u64, Page)> {
        self.pages.iter().map(|(number, page)| (*number, *page)).filter(move |(_, page)| page.tier == tier)
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn touch(&mut self, number: u64, write: bool) {
        let before = self.pages.get(&number).copied();
        let tier =
            before.map(|page| page.tier).filter(|tier| *tier < 2).unwrap_or_else(|| self.arrive(number));
        self.tiers[before.map_or(tier, |page| page.tier)].touches += 1;
        let was_below = before.is_some_and(|page| page.tier == 2);
        if was_below {
            self.faults += 1;
            self.tiers[2].moved_up += 1;
            self.copied(2, tier);
        }
        let mut page = match before.filter(|page| page.tier < 2) {
            Some(page) => page,
            None => {
                self.last = None;
                let heat = (0, self.tick());
                Page { tier, heat, warm_at: 0, is_zero: !was_below, has_copy: was_below }
            }
        };
        if write {
            (page.is_zero, page.has_copy) = (false, false);
        }
        if self.last.replace(number) != Some(number) {
            page.heat = (page.heat.0 + 1, self.tick());
        }
        page.warm_at = self.now * 4 + 3;
        self.pages.insert(number, page);
        if self.now - self.halved_at >= 16 * (self.capacity[0] + self.capacity[1]) as u64 {
            self.halved_at = self.now;
            self.pages.values_mut().for_each(|page| page.heat.0 /= 2);
        }
    }

    /// Where a page comes that is not in memory; if need be another leaves for it.
    fn arrive(&mut self, number: u64) -> usize {
        if self.pages_of(0).count() < self.capacity[0] {
            return 0;
        }
        let others = || self.pages_of(1).filter(|(other, _)| *other != number);
        if others().count() < self.capacity[1] {
            return 1;
        }
        let (victim, page) = others().min_by_key(|(_, page)| page.warm_at).unwrap();
        self.tiers[1].moved_down += 1;
        if page.is_zero {
            self.pages.remove(&victim);
        } else {
            if !page.has_copy {
                self.copied(1, 2);
            }
            self.pages.get_mut(&victim).unwrap().tier = 2;
        }
        1
    }

    fn copied(&mut self, from: usize, to: usize) {
        self.tiers[from].read_bytes += FRAME;
        self.tiers[to].written_bytes += FRAME;
    }

    /// While a page of the second tier is used much more than one of the first, they change places.
    fn exchange(&mut self) {
        while let Some((hot, page)) = self.pages_of(1).max_by_key(|(_, page)| page.heat) {
            if self.pages_of(0).count() < self.capacity[0] {
                if page.heat.0 < 4 {
                    return;
                }
            } else {
                let (cold, other) = self.pages_of(0).min_by_key(|(_, page)| page.heat).unwrap();
                if page.heat.0 < 2 * other.heat.0 + 4 {
                    return;
                }
                self.tiers[0].moved_down += 1;
                if other.is_zero {
                    self.pages.remove(&cold);
                } else {
                    self.copied(0, 1);
                    let cold = self.pages.get_mut(&cold).unwrap();
                    (cold.tier, cold.warm_at) = (1, self.now * 4);
                }
            }
            self.tiers[1].moved_up += 1;
            self.copied(1, 0);
            self.pages.get_mut(&hot).unwrap().tier = 0;
        }
    }
}

fn check(accesses: &[Access], local: u32, remote: u32) -> Counts {
    let counts = one(&touches(accesses), &pool(local, remote), LRU);
    let touched: Vec<_> = accesses.iter().map(|access| (access.key / FRAME, access.op)).collect();
    let (faults, tiers) = Naive::run(&touched, [local as usize, remote as usize]);
    assert_eq!((counts.faults, counts.tiers.as_slice()), (faults, tiers.as_slice()), "{local} and {remote}");
    assert_eq!(counts.read_bytes, tiers[2].read_bytes, "bytes of flash alone");
    assert_eq!(counts.written_bytes, tiers[2].written_bytes, "bytes of flash alone");
    counts
}

/// Touches of few pages, some of them used much more often than others.
fn access() -> impl Strategy<Value = Access> {
    let page = prop_oneof![3 => 0u64..6, 2 => 0u64..20, 1 => 0u64..40];
    let op = prop_oneof![4 => Just(Op::Store), 3 => Just(Op::Load), 1 => Just(Op::Del)];
    (page, op).prop_map(|(page, op)| Access::new(0, op, page * FRAME, 8))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn equals_its_twin(accesses in prop::collection::vec(access(), 0..600), local in 1u32..12, remote in 1u32..12) {
        check(&accesses, local, remote);
    }

    /// Nothing is held beyond a tier's capacity, and every touch and every copy is counted in one place.
    #[test]
    fn each_tier_keeps_its_limit(
        accesses in prop::collection::vec(access(), 0..400),
        (local, remote) in (1u32..12, 1u32..12),
        first_touch in prop_oneof![Just(FirstTouch::Zero), Just(FirstTouch::Fetch)],
        references in prop_oneof![Just(References::Told), Just(References::Faults)],
        next in any::<bool>(),
    ) {
        let trace = touches(&accesses);
        // What a live pager hears keeps some of a tier free, for which one of one frame is too small.
        let remote = if references == References::Told { remote } else { remote.max(4) };
        let memory = Memory { first_touch, references, ..pool(local, remote) };
        let next = if next { prefetch::Named::NextN(prefetch::next_n::NextNParameters { degree: 2, offset: 0 }) } else { prefetch::Named::None };
        for named in Named::ALL {
            let counts = one(&trace, &memory, Setup { order: Order::Named(named), prefetch: next });
            let of = |what: fn(&TierCounts) -> u64| counts.tiers.iter().map(what).collect::<Vec<_>>();
            let peaks = of(|tier| tier.peak_frames);
            prop_assert!(peaks[0] <= local.into() && peaks[1] <= remote.into(), "{named}: {peaks:?}");
            prop_assert_eq!(of(|tier| tier.touches).iter().sum::<u64>(), counts.touches);
            prop_assert_eq!(of(|tier| tier.read_bytes).iter().sum::<u64>(), of(|tier| tier.written_bytes).iter().sum::<u64>());
            prop_assert_eq!((counts.tiers[2].read_bytes, counts.tiers[2].written_bytes), (counts.read_bytes, counts.written_bytes));
            prop_assert_eq!(counts.tiers[2].moved_down, 0, "flash is the last");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With one tier of memory a pool is what it was without one, whatever else is on.
    #[test]
    fn a_pool_of_one_node_is_none(
        accesses in prop::collection::vec(access(), 1..300),
        dram in 4u32..20,
        (drop_behind, faults) in any::<(bool, bool)>(),
        first_touch in prop_oneof![Just(FirstTouch::Zero), Just(FirstTouch::Fetch)],
    ) {
        let trace = touches(&accesses);
        let references = if faults { References::Faults } else { References::Told };
        let tiers = vec![TierConfig::memory(dram), TierConfig::storage(1 << 20)];
        let first = Memory { tiers, drop_behind, first_touch, references, tells_evictions: true, ..Memory::default() };
        let spill = Memory { arrival: Arrival::Spill, ..first.clone() };
        let orders = Named::ALL.map(Order::Named).into_iter().chain([Order::Kernel, Order::Belady, Order::Fixed]);
        let setups: Vec<Setup> =
            orders.flat_map(|order| prefetch::Named::ALL.map(|prefetch| Setup { order, prefetch })).collect();
        prop_assert_eq!(run(&trace, &first, &setups, 2), run(&trace, &spill, &setups, 2));
    }
}

#[test]
fn local_memory_keeps_its_part_of_a_sweep() {
    // Ten passes over 1000 pages; 500 fit in memory, all of them local or half of them remote.
    let accesses: Vec<Access> = (0..10).flat_map(|_| (0..1000).map(store)).collect();
    let trace = touches(&accesses);
    let tiers = vec![TierConfig::memory(500), TierConfig::storage(1 << 20)];
    let whole = one(&trace, &Memory { tiers, ..Memory::default() }, LRU);
    assert_eq!(whole.faults, 9 * 1000, "LRU keeps nothing of a sweep that does not fit");
    let pool = check(&accesses, 250, 250);
    assert_eq!(pool.faults, 9 * 750, "what lies in local memory never leaves for flash");
    // The first 250 pages came to local memory, and stay: all pages are used alike.
    let expected = TierCounts { peak_frames: 250, touches: 10 * 250, ..TierCounts::default() };
    assert_eq!(pool.tiers[0], expected);
    assert_eq!((pool.tiers[1].touches, pool.tiers[2].touches), (750, 9 * 750), "first touches, and faults");
}

#[test]
fn what_is_used_most_comes_to_local_memory_and_stays() {
    // A hundred pages come first and are not used again. Of the next hundred, each is used all the time.
    let used: Vec<u64> = (0..40).flat_map(|_| 100..200).collect();
    let accesses: Vec<Access> = (0..100).chain(used).map(store).collect();
    let counts = check(&accesses, 100, 150);
    // With its sixth use a page has four uses more than twice those of a page that has been used once.
    assert_eq!(counts.tiers[1].touches, 100 * 6);
    assert_eq!(counts.tiers[0].touches, 100 + 100 * 34);
    assert_eq!((counts.tiers[0].moved_down, counts.tiers[1].moved_up, counts.faults), (100, 100, 0));
}

#[test]
fn a_loop_over_the_words_of_a_page_is_one_use() {
    let words = |page: u64| (0..64).map(move |word| Access::new(0, Op::Load, page * FRAME + word * 8, 8));
    let accesses: Vec<Access> = (0..4).flat_map(|_| (0..20).flat_map(words)).collect();
    let counts = check(&accesses, 10, 20);
    assert_eq!((counts.tiers[1].moved_up, counts.tiers[0].touches), (0, 4 * 64 * 10));
}

#[test]
fn a_page_that_was_never_written_is_written_nowhere() {
    // Read alone, pages become local, make room for others, leave memory and come back.
    let hot = (0..8).flat_map(|part| (0..100).flat_map(move |_| part * 8..part * 8 + 8));
    let accesses: Vec<Access> =
        (0..100).chain(hot).chain(0..100).map(|page| Access::new(0, Op::Load, page * FRAME, 8)).collect();
    let counts = check(&accesses, 8, 12);
    assert!(counts.tiers[1].moved_up >= 40 && counts.tiers[0].moved_down >= 40, "{:?}", counts.tiers);
    assert_eq!((counts.faults, counts.written_bytes, counts.tiers[0].read_bytes), (0, 0, 0));
}

#[test]
fn frames_do_not_change_places_again_and_again() {
    // Two pages take turns, in memory of one page each: neither is used much more than the other.
    let accesses: Vec<Access> = (0..10_000).map(|n| store(n % 2)).collect();
    let counts = check(&accesses, 1, 1);
    assert_eq!((counts.tiers[0].moved_down, counts.tiers[1].moved_up, counts.faults), (0, 0, 0));
}

#[test]
fn what_was_hot_long_ago_makes_room() {
    // A page is used a thousand times, and then another one, which has come to remote memory.
    let uses = |page: u64| (0..1000).flat_map(move |_| [store(page), store(9)]);
    let accesses: Vec<Access> = uses(0).chain(uses(1)).collect();
    let counts = check(&accesses, 1, 4);
    assert!(
        counts.tiers[0].moved_down > 0,
        "its count was halved until the other page had more than twice as many"
    );
}
