//! Dropping behind sweeps, simulated: it pays where a loop is larger than DRAM, and never costs more than doing nothing does.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::convert::Infallible;

use tiermem_base::{Access, Op, Rng};
use tiermem_policy::evict::Named;
use tiermem_policy::frames::TierConfig;
use tiermem_policy::prefetch::{self, readahead::ReadaheadParameters};
use tiermem_sim::frames::{Counts, Cut, Memory, Order, References, Setup, Touches, run};

const FRAME: u64 = 4096;
const DRAM: u64 = 10_000;
const READAHEAD: prefetch::Named = prefetch::Named::Readahead(ReadaheadParameters::DEFAULT);

fn of(pages: impl Iterator<Item = u64>) -> Touches {
    let accesses = pages.map(|page| Ok::<_, Infallible>(Access::new(0, Op::Store, page * FRAME, 8)));
    Touches::of(accesses, Cut::in_order(FRAME as u32)).unwrap()
}

fn counts(touches: &Touches, drop_behind: bool, prefetch: prefetch::Named, references: References) -> Counts {
    let tiers = vec![TierConfig::memory(DRAM as u32), TierConfig::storage(1 << 20)];
    let memory = Memory { tiers, drop_behind, references, seed: 3, ..Memory::default() };
    let setup = Setup { order: Order::Named(Named::Lru), prefetch };
    run(touches, &memory, &[setup], 1).pop().unwrap().unwrap()
}

/// Faults without and with it; what is read ahead counts as if it were a fault.
fn faults(pages: impl Iterator<Item = u64>) -> (u64, u64) {
    let touches = of(pages);
    let both = [false, true].map(|drop_behind| {
        let counts = counts(&touches, drop_behind, prefetch::Named::None, References::Told);
        counts.faults
    });
    (both[0], both[1])
}

fn passes(first: u64, pages: u64, times: u64) -> impl Iterator<Item = u64> {
    (0..times).flat_map(move |_| first..first + pages)
}

#[test]
fn a_loop_twice_as_large_as_dram_reads_half_of_it() {
    let (without, with) = faults(passes(0, 2 * DRAM, 12));
    assert_eq!(without, 11 * 2 * DRAM);
    // The first pass that reads, at least a part of the second, then half of each, and a little more: what lies between the sweep and what
    // it drops, and the pages of duels.
    let best = 2 * DRAM + 10 * DRAM;
    assert!(with < best * 115 / 100, "{with} of {best}");
}

#[test]
fn loops_up_and_down_and_several_at_once_gain() {
    let down = (0..10).flat_map(|_| (0..2 * DRAM).rev());
    let (without, with) = faults(down);
    assert!(with < without * 7 / 10, "{with} of {without}");
    // Two threads, each with its own half.
    let two = (0..10).flat_map(|_| (0..DRAM).flat_map(|page| [page, DRAM + page]));
    let (without, with) = faults(two);
    assert!(with < without * 7 / 10, "{with} of {without}");
}

#[test]
fn a_scan_does_not_push_out_what_is_used_all_the_time() {
    let mut rng = Rng::seeded(1);
    let hot = 7000;
    let mixed =
        (0..12).flat_map(|_| DRAM..3 * DRAM).flat_map(|page| [page, rng.below(hot)]).collect::<Vec<u64>>();
    let (without, with) = faults(mixed.into_iter());
    assert!(with < without * 85 / 100, "{with} of {without}");
}

/// What is worse than doing nothing by more than two parts in a hundred.
fn assert_never_worse(name: &str, pages: impl Iterator<Item = u64>) {
    let (without, with) = faults(pages);
    assert!(with <= without + without / 50 + 64, "{name}: {with} against {without}");
}

#[test]
fn programs_that_pass_over_what_fits_keep_it() {
    let fits = DRAM * 8 / 10;
    let phases = (0..6).flat_map(|phase| passes(phase % 2 * DRAM, fits, 10));
    assert_never_worse("two that fit, in turns", phases);
    let hot = 1000;
    let mut rng = Rng::seeded(1);
    let beside = (0..6)
        .flat_map(|phase| passes(DRAM + phase % 2 * DRAM, fits, 10))
        .flat_map(|page| [page, rng.below(hot)]);
    assert_never_worse("two that fit, and something hot", beside.collect::<Vec<u64>>().into_iter());
    let many = (0..40).flat_map(|phase| passes(phase % 8 * DRAM, fits / 2, 3));
    assert_never_worse("eight that fit, three times each", many);
    let twice = (0..60).flat_map(|phase| passes(phase % 3 * DRAM, fits, 2));
    assert_never_worse("three that fit, twice each", twice);
    assert_never_worse("a loop that just fits", passes(0, DRAM - 1, 20));
}

#[test]
fn programs_that_change_are_followed() {
    // A loop that does not fit teaches dropping; then others fit.
    let shift =
        passes(0, 2 * DRAM, 10).chain(passes(50_000, DRAM * 8 / 10, 40)).chain(passes(90_000, DRAM / 2, 40));
    assert_never_worse("a large loop, then small ones", shift);
    let grows = (1..20).flat_map(|size| passes(0, size * DRAM / 8, 4));
    assert_never_worse("a loop that grows", grows);
    let shrinks = (1..20).rev().flat_map(|size| passes(0, size * DRAM / 8, 4));
    assert_never_worse("a loop that shrinks", shrinks);
    let (without, with) = faults(passes(0, 2 * DRAM, 10).chain(passes(50_000, 2 * DRAM, 10)));
    assert!(with < without * 7 / 10, "another large loop: {with} of {without}");
}

#[test]
fn touches_without_an_order_are_left_alone() {
    let mut rng = Rng::seeded(2);
    let random: Vec<u64> = (0..200_000).map(|_| rng.below(2 * DRAM)).collect();
    let (without, with) = faults(random.into_iter());
    assert_eq!(without, with);
    // Far fewer pages than make a gap.
    let mut small = (0..200_000)
        .map(|_| if rng.below(10) < 8 { rng.below(6000) } else { rng.below(20_000) })
        .collect::<Vec<_>>();
    small.truncate(150_000);
    let (without, with) = faults(small.into_iter());
    assert_eq!(without, with);
}

#[test]
fn looking_back_a_little_costs_nothing() {
    // Each page is used again when the sweep is two hundred pages farther.
    let back = (0..10).flat_map(|_| (0..2 * DRAM).flat_map(|page| [page, page.saturating_sub(200)]));
    let (without, with) = faults(back);
    assert!(with < without * 7 / 10, "{with} of {without}");
}

#[test]
fn readahead_reads_no_more_than_what_does_not_stay() {
    for references in [References::Told, References::Faults] {
        let touches = of(passes(0, 2 * DRAM, 12));
        let of = |drop_behind| counts(&touches, drop_behind, READAHEAD, references);
        let (without, with) = (of(false), of(true));
        let read = |counts: &Counts| counts.read_bytes / FRAME;
        assert!(
            read(&with) * 10 < read(&without) * 7,
            "{references:?}: {} of {}",
            read(&with),
            read(&without)
        );
        assert!(with.faults < read(&with) / 20, "{references:?}: {} faults", with.faults);
        assert!(with.paging.dropped_behind > 0 && with.paging.probed > 0 && without.paging.probed == 0);
    }
}
