//! `sim frames` as it hears of a program: what a live pager hears, slices without order, bounds that know the trace, and figures
//! that were computed by others.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::BTreeSet;
use std::convert::Infallible;

use proptest::prelude::*;
use tiermem_base::{Access, Op, Rng};
use tiermem_policy::evict::Named;
use tiermem_policy::frames::TierConfig;
use tiermem_policy::paging::Watermarks;
use tiermem_policy::prefetch;
use tiermem_policy::prefetch::next_n::NextNParameters;
use tiermem_sim::frames::{
    Counts, Cut, FirstTouch, Look, Memory, Order, References, ReplayError, Setup, Touches, run,
};

const FRAME: u64 = 4096;
const NONE: prefetch::Named = prefetch::Named::None;
const LRU: Order = Order::Named(Named::Lru);

fn touches(accesses: &[Access], cut: Cut) -> Touches {
    Touches::of(accesses.iter().map(|access| Ok::<_, Infallible>(*access)), cut).unwrap()
}

fn in_order(accesses: &[Access]) -> Touches {
    touches(accesses, Cut::in_order(FRAME as u32))
}

fn memory(dram: u32) -> Memory {
    Memory { tiers: vec![TierConfig::memory(dram), TierConfig::storage(1 << 20)], ..Memory::default() }
}

fn one(touches: &Touches, memory: &Memory, order: Order, prefetch: prefetch::Named) -> Counts {
    let [outcome]: [Result<Counts, ReplayError>; 1] =
        run(touches, memory, &[Setup { order, prefetch }], 1).try_into().unwrap();
    outcome.unwrap()
}

fn store(page: u64) -> Access {
    Access::new(0, Op::Store, page * FRAME, 8)
}

const PAGES: u64 = 65_536;
const TOUCHES: usize = 262_144;

/// The pages in an order of which the first 30% are hot: they lie scattered.
fn hot_first() -> Vec<u64> {
    let mut rng = Rng::seeded(7);
    let mut pages: Vec<u64> = (0..PAGES).collect();
    for at in (1..PAGES).rev() {
        pages.swap(at as usize, rng.below(at + 1) as usize);
    }
    pages
}

/// Each page is written once. Then 80% of the touches go to 30% of the pages.
fn mostly_hot(times: usize) -> Vec<Access> {
    let (mut rng, pages, hot) = (Rng::seeded(8), hot_first(), PAGES * 3 / 10);
    let mut accesses: Vec<Access> = (0..PAGES).map(store).collect();
    accesses.extend((0..times * TOUCHES).map(|_| {
        let is_hot = rng.below(10) < 8;
        let number = if is_hot { rng.below(hot) } else { hot + rng.below(PAGES - hot) };
        Access::new(0, Op::Load, pages[number as usize] * FRAME, 8)
    }));
    accesses
}

/// Computed by others, for a program that has run for a while: LRU 44 thousand, a fixed set that knows which pages are hot 37
/// thousand, Belady 18 thousand. A set that knows how often each page is touched in the end has fewer than that.
#[test]
fn known_figures_come_out() {
    const DRAM: u32 = 32_768;
    let accesses = mostly_hot(2);
    let (before, both) = (in_order(&accesses[..accesses.len() - TOUCHES]), in_order(&accesses));
    let faults = |trace: &Touches, order| one(trace, &memory(DRAM), order, NONE).faults;
    let lru = faults(&both, LRU) - faults(&before, LRU);
    assert!((43_500..44_500).contains(&lru), "{lru}");
    // The hot pages, and as many of the others as fit: which of them is all the same.
    let pages: Vec<u64> = hot_first();
    let kept: BTreeSet<u64> = pages[..DRAM as usize].iter().copied().collect();
    let last = &accesses[accesses.len() - TOUCHES..];
    let outside = last.iter().filter(|access| !kept.contains(&(access.key / FRAME))).count();
    assert!((36_500..38_000).contains(&outside), "{outside}");
    let [fixed, belady] = [Order::Fixed, Order::Belady].map(|order| faults(&before, order));
    assert!((19_000..20_000).contains(&fixed), "{fixed}");
    assert!((17_500..18_500).contains(&belady), "{belady}");
}

type Pages = BTreeSet<u64>;

/// What a live pager over LRU does, as a list: the coldest page first.
fn live(accesses: &[Access], dram: usize, granule: Option<u64>, look: usize) -> (u64, u64, u64) {
    let Watermarks { low, high } = Watermarks::of(dram as u32);
    let (low, high) = (low as usize, high as usize);
    let (mut order, mut below, mut dirty) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let (mut touched, mut bits) = (BTreeSet::new(), BTreeSet::new());
    let (mut faults, mut written, mut refills) = (0, 0, false);
    let mut page_out = |order: &mut Vec<u64>, below: &mut Pages, bits: &mut Pages, dirty: &mut Pages| {
        // Who was referenced is spared once, but no more than 63 are spared for one that goes.
        for _ in 0..63 {
            if bits.remove(&order[0]) {
                order.rotate_left(1);
            } else {
                break;
            }
        }
        let page = order.remove(0);
        bits.remove(&page);
        if dirty.remove(&page) {
            written += FRAME;
            below.insert(page);
        }
    };
    for (at, access) in accesses.iter().enumerate() {
        if at > 0 && at % look == 0 {
            let seen = std::mem::take(&mut touched);
            bits.extend(
                order.iter().filter(|page| granule.is_some_and(|pages| seen.contains(&(**page / pages)))),
            );
        }
        let page = access.key / FRAME;
        touched.extend(granule.map(|pages| page / pages));
        if !order.contains(&page) {
            if order.len() >= dram {
                page_out(&mut order, &mut below, &mut bits, &mut dirty);
            }
            faults += u64::from(below.contains(&page));
            order.push(page);
        }
        if access.op.is_write() {
            dirty.insert(page);
        }
        for _ in 0..16 {
            refills = order.len() + if refills { high } else { low } > dram;
            if !refills {
                break;
            }
            page_out(&mut order, &mut below, &mut bits, &mut dirty);
        }
    }
    (faults, faults * FRAME, written)
}

fn access() -> impl Strategy<Value = Access> {
    (prop_oneof![3 => 0u64..12, 2 => 0u64..64], any::<bool>())
        .prop_map(|(page, write)| Access::new(0, if write { Op::Store } else { Op::Load }, page * FRAME, 8))
}

proptest! {
    #[test]
    fn what_a_live_pager_hears_equals_its_twin(
        accesses in prop::collection::vec(access(), 1..400),
        dram in 1u32..40,
        frames_log2 in prop::option::of(0u32..4),
        look in 1u32..30,
    ) {
        let trace = touches(&accesses, Cut { look: Look::Touches(look), ..Cut::in_order(FRAME as u32) });
        let references = frames_log2.map_or(References::Faults, |frames_log2| References::ByGranule { frames_log2 });
        let counts = one(&trace, &Memory { references, ..memory(dram) }, LRU, NONE);
        let naive = live(&accesses, dram as usize, frames_log2.map(|log2| 1 << log2), look as usize);
        prop_assert_eq!((counts.faults, counts.read_bytes, counts.written_bytes), naive);
    }

    /// Among all sets of pages that fit beside one frame for the others.
    #[test]
    fn no_fixed_set_is_better(
        accesses in prop::collection::vec((0u64..6, 0u8..6), 1..60),
        dram in 1u32..8,
        fetch in any::<bool>(),
    ) {
        let accesses: Vec<Access> = accesses.iter().map(|(page, what)| {
            let op = match what { 0 => Op::Del, 1 | 2 => Op::Load, _ => Op::Store };
            Access::new(0, op, page * FRAME, 8)
        }).collect();
        let first_touch = if fetch { FirstTouch::Fetch } else { FirstTouch::Zero };
        let ours = one(&in_order(&accesses), &Memory { first_touch, ..memory(dram) }, Order::Fixed, NONE);
        let touched: BTreeSet<u64> =
            accesses.iter().filter(|one| one.op != Op::Del).map(|one| one.key / FRAME).collect();
        let kept = if touched.len() <= dram as usize { touched.len() } else { dram as usize - 1 };
        let best = (0u32..1 << 6).filter(|set| set.count_ones() as usize <= kept).map(|set| {
            let (mut holds, mut seen) = (BTreeSet::new(), BTreeSet::new());
            let (mut before, mut faults) = (None, 0);
            for one in &accesses {
                let page = one.key / FRAME;
                if one.op == Op::Del {
                    if seen.contains(&page) {
                        holds.remove(&page);
                        before = None;
                    }
                    continue;
                }
                if seen.insert(page) && fetch {
                    holds.insert(page);
                    faults += u64::from(set >> page & 1 == 1);
                }
                let is_run = before.replace(page) != Some(page);
                faults += u64::from(is_run && set >> page & 1 == 0 && holds.contains(&page));
                if one.op == Op::Store {
                    holds.insert(page);
                }
            }
            faults
        }).min().unwrap();
        prop_assert_eq!(ours.faults, best);
        prop_assert_eq!((ours.faults_low, ours.faults_high), (best, best));
    }

    /// Of all orders of the touches of two slices.
    #[test]
    fn the_bounds_of_slices_are_orders_that_can_be(
        first in prop::collection::btree_set(0u64..7, 1..5),
        second in prop::collection::vec(0u64..7, 1..5),
        dram in 1u32..5,
    ) {
        let first: Vec<u64> = first.into_iter().collect();
        let at = |time_ns, pages: &[u64]| {
            pages.iter().map(|page| Access { time_ns, ..store(*page) }).collect::<Vec<_>>()
        };
        let both = [at(0, &first), at(1, &second)].concat();
        let slices = Cut { in_slices: true, ..Cut::in_order(FRAME as u32) };
        let memory = Memory { first_touch: FirstTouch::Fetch, ..memory(dram) };
        for order in [LRU, Order::Belady] {
            let ours = one(&touches(&both, slices), &memory, order, NONE);
            let faults = |first: &[u64], second: &[u64]| {
                one(&in_order(&[at(0, first), at(0, second)].concat()), &memory, order, NONE).faults
            };
            prop_assert_eq!(ours.faults, faults(&first, &second));
            let mut all = Vec::new();
            for_each_order(&mut first.clone(), 0, &mut |first| {
                for_each_order(&mut second.clone(), 0, &mut |second| all.push(faults(first, second)));
            });
            let (best, worst) = (*all.iter().min().unwrap(), *all.iter().max().unwrap());
            if order == LRU {
                prop_assert!(best <= ours.faults_low && ours.faults_high <= worst);
            }
            prop_assert!(ours.faults_low <= ours.faults && ours.faults <= ours.faults_high);
        }
    }
}

fn for_each_order(pages: &mut [u64], from: usize, each: &mut impl FnMut(&[u64])) {
    if from == pages.len() {
        return each(pages);
    }
    for at in from..pages.len() {
        pages.swap(from, at);
        for_each_order(pages, from + 1, each);
        pages.swap(from, at);
    }
}

#[test]
fn a_slice_may_be_a_sweep_forwards_or_backwards() {
    // Ten pages swept by slices, nine fit. Forwards LRU keeps nothing, and in the best order all but one.
    let accesses: Vec<Access> = (0..20u64)
        .flat_map(|slice| (0..10).map(move |page| Access { time_ns: slice, ..store(page) }))
        .collect();
    let slices = Cut { in_slices: true, ..Cut::in_order(FRAME as u32) };
    let counts = one(&touches(&accesses, slices), &memory(9), LRU, NONE);
    assert_eq!((counts.faults_low, counts.faults, counts.faults_high), (19, 190, 190));
    // The best fixed set has eight of them, in any order.
    let fixed = one(&touches(&accesses, slices), &memory(9), Order::Fixed, NONE);
    assert_eq!((fixed.faults_low, fixed.faults, fixed.faults_high), (38, 38, 38));
}

#[test]
fn the_kernel_sees_what_it_is_not_told() {
    // A page is used all the time, while two hundred others pass.
    let accesses: Vec<Access> = (0..600u64).flat_map(|other| [store(0), store(1 + other % 200)]).collect();
    let faults = |references, order| {
        one(&in_order(&accesses), &Memory { references, ..memory(100) }, order, NONE).faults
    };
    assert_eq!(faults(References::Told, LRU), 400);
    assert_eq!(faults(References::Faults, Order::Kernel), 400);
    assert!(faults(References::Faults, LRU) > 400, "the page is as cold as the others");
}

#[test]
fn in_the_worst_order_what_faults_evicts_what_faults_next() {
    // 9 evicts 0, which then evicts 1. As the file has them, 9 evicts 2, which is not touched again.
    let slices: [&[u64]; 3] = [&[9], &[0, 1, 2], &[1, 0, 9]];
    let accesses: Vec<Access> = slices
        .iter()
        .zip(0..)
        .flat_map(|(pages, time_ns)| pages.iter().map(move |page| Access { time_ns, ..store(*page) }))
        .collect();
    let cut = Cut { in_slices: true, ..Cut::in_order(FRAME as u32) };
    let counts = one(&touches(&accesses, cut), &memory(3), LRU, NONE);
    assert_eq!((counts.faults_low, counts.faults, counts.faults_high), (1, 1, 3));
}

#[test]
fn pages_that_are_fetched_ahead_may_come_too_late() {
    // Two sweeps over two thousand pages, of which a thousand fit.
    let accesses: Vec<Access> = (0..4000u64).map(|touch| store(touch % 2000)).collect();
    let next = prefetch::Named::NextN(NextNParameters { degree: 1, offset: 0 });
    for references in [References::Told, References::Faults] {
        let with = |fetch_delay| {
            let memory = Memory { references, fetch_delay, ..memory(1000) };
            one(&in_order(&accesses), &memory, LRU, next).paging
        };
        let (at_once, late) = (with(0), with(3));
        assert_eq!((at_once.faults, at_once.prefetch_used, at_once.prefetch_late), (1, 1999, 0));
        assert_eq!((late.faults, late.prefetch_used, late.prefetch_late), (1, 1999, 1999));
        assert_eq!((at_once.accuracy(), late.lateness()), (1.0, 1.0));
        assert_eq!(at_once.coverage(), 1999.0 / 2000.0);
    }
}
