//! Plans, simulated: what is held stays, what is swept is fetched ahead and leaves, and a plan that does not fit costs little.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::convert::Infallible;

use tiermem_base::{Access, Op, Rng};
use tiermem_policy::evict::Named;
use tiermem_policy::frames::TierConfig;
use tiermem_policy::paging::{PageRange, Role};
use tiermem_policy::prefetch::{self, readahead::ReadaheadParameters};
use tiermem_sim::frames::{Counts, Cut, Memory, Order, References, Setup, Touches, run};

const FRAME: u64 = 4096;
const DRAM: u64 = 10_000;
const PLAN: prefetch::Named = prefetch::Named::Plan(ReadaheadParameters::DEFAULT);
const NONE: prefetch::Named = prefetch::Named::None;
const SWEPT: Role = Role::Swept { sweep: 0, is_down: false };

type Planned = Vec<(PageRange, Role)>;

fn of(pages: impl IntoIterator<Item = u64>) -> Touches {
    let accesses =
        pages.into_iter().map(|page| Ok::<_, Infallible>(Access::new(0, Op::Store, page * FRAME, 8)));
    Touches::of(accesses, Cut::in_order(FRAME as u32)).unwrap()
}

fn counts(touches: &Touches, plan: &Planned, prefetch: prefetch::Named, references: References) -> Counts {
    let tiers = vec![TierConfig::memory(DRAM as u32), TierConfig::storage(1 << 20)];
    let memory = Memory {
        tiers,
        plan: plan.clone(),
        drop_behind: prefetch != NONE,
        references,
        seed: 3,
        ..Memory::default()
    };
    let setup = Setup { order: Order::Named(Named::Lru), prefetch };
    run(touches, &memory, &[setup], 1).pop().unwrap().unwrap()
}

fn passes(first: u64, pages: u64, times: u64) -> impl Iterator<Item = u64> {
    (0..times).flat_map(move |_| first..first + pages)
}

fn range(first: u64, end: u64) -> PageRange {
    PageRange { first, end }
}

/// A sweep over two times DRAM, of which every second MiB is held, as far as that goes.
fn half_held() -> Planned {
    let held = (0..2 * DRAM / 512).map(|at| (range(512 * at, 512 * at + 256), Role::Held));
    held.chain([(range(0, 2 * DRAM), SWEPT)]).collect()
}

#[test]
fn a_known_sweep_reads_what_has_no_room_and_faults_seldom() {
    for references in [References::Told, References::Faults] {
        let touches = of(passes(0, 2 * DRAM, 12));
        let without = counts(&touches, &Vec::new(), NONE, references);
        let with = counts(&touches, &half_held(), PLAN, references);
        let read = |counts: &Counts| counts.read_bytes / FRAME;
        // Eleven passes read; half of each, and what is left free for what passes.
        assert!(read(&with) < 11 * DRAM * 13 / 10, "{references:?}: {} of {}", read(&with), read(&without));
        assert!(with.faults < 2 * DRAM / 10, "{references:?}: {} faults", with.faults);
    }
}

#[test]
fn a_sweep_downwards_is_followed_as_well() {
    let touches = of((0..12).flat_map(|_| (0..2 * DRAM).rev()));
    let down = Role::Swept { sweep: 7, is_down: true };
    let plan: Planned = half_held()
        .into_iter()
        .map(|(pages, role)| (pages, if role == SWEPT { down } else { role }))
        .collect();
    let with = counts(&touches, &plan, PLAN, References::Faults);
    assert!(with.read_bytes / FRAME < 11 * DRAM * 13 / 10 && with.faults < DRAM / 10, "{with:?}");
    // Told to go up it is read ahead and dropped as any other sequence is.
    assert_never_worse("the other way", &half_held(), (0..12).flat_map(|_| (0..2 * DRAM).rev()));
}

#[test]
fn what_is_held_is_no_victim_and_is_counted_out_of_what_is_free() {
    // Passes over twice what DRAM has, and now and then a page that an order by recency would have sent away.
    let mut rng = Rng::seeded(1);
    let mixed: Vec<u64> = (0..4)
        .flat_map(|_| 5000..5000 + 2 * DRAM)
        .flat_map(|page| if page % 8 == 0 { vec![page, rng.below(4000)] } else { vec![page] })
        .collect();
    let touches = of(mixed);
    let held = vec![(range(0, 4000), Role::Held)];
    for references in [References::Told, References::Faults] {
        let [without, with] =
            [Vec::new(), held.clone()].map(|plan| counts(&touches, &plan, NONE, references).faults);
        // Nothing of the sweep stays by recency; of the others nothing faults but at their first touch.
        assert_eq!(with, 60_000, "{references:?}: {without} without");
        assert!(without > 63_000, "{references:?}: {without}");
    }
}

/// In transfers of pages: a fault waits as long as some twenty of them.
fn cost(counts: &Counts) -> u64 {
    20 * counts.faults + counts.read_bytes / FRAME
}

/// What is worse than without a plan by more than a tenth, in faults and pages read together.
fn assert_never_worse(name: &str, plan: &Planned, pages: impl Iterator<Item = u64>) {
    let touches = of(pages);
    let readahead = prefetch::Named::Readahead(ReadaheadParameters::DEFAULT);
    let without = counts(&touches, &Vec::new(), readahead, References::Faults);
    let with = counts(&touches, plan, PLAN, References::Faults);
    let (with, without) = (cost(&with), cost(&without));
    assert!(with <= without + without / 10 + 64, "{name}: {with} against {without}");
}

#[test]
fn a_sweep_that_does_not_come_costs_little() {
    let swept = vec![(range(0, 2 * DRAM), SWEPT)];
    let mut rng = Rng::seeded(2);
    let random: Vec<u64> = (0..200_000).map(|_| rng.below(2 * DRAM)).collect();
    assert_never_worse("random touches", &swept, random.into_iter());
    let strided = (0..20).flat_map(|at| (0..2 * DRAM / 32).map(move |step| step * 32 + at % 32));
    assert_never_worse("strides", &swept, strided);
    assert_never_worse("a small part of it again and again", &swept, passes(3000, DRAM / 2, 20));
    // What has left for nothing leaves once.
    let parts = of((0..4).flat_map(|at| passes(at * 5000, 5000, 6)));
    let with = counts(&parts, &swept, PLAN, References::Faults);
    assert!(with.read_bytes / FRAME < DRAM / 4, "{with:?}");
}

/// Programs that do not do what a plan says of them, long enough that what is lost once matters little.
fn programs() -> Vec<(&'static str, Vec<u64>)> {
    let mut rng = Rng::seeded(5);
    let random = (0..400_000).map(|_| rng.below(2 * DRAM)).collect();
    let hot =
        (0..400_000).map(|_| if rng.below(10) < 8 { rng.below(6000) } else { rng.below(2 * DRAM) }).collect();
    let hot_elsewhere = (0..400_000)
        .map(|_| if rng.below(10) < 8 { DRAM + rng.below(6000) } else { rng.below(2 * DRAM) })
        .collect();
    let moving = (0..400_000).map(|at| (at / 20_000 * 1500 + rng.below(8000)) % (2 * DRAM)).collect();
    let strides = (0..640).flat_map(|at| (0..2 * DRAM / 32).map(move |step| step * 32 + at % 32)).collect();
    let small_parts = (0..40).flat_map(|at| passes(at % 4 * 5000, 5000, 4)).collect();
    let back_and_forth = (0..10).flat_map(|_| (0..2 * DRAM).chain((0..2 * DRAM).rev())).collect();
    vec![
        ("random", random),
        ("a hot part that the plan passes", hot),
        ("a hot part that the plan does not hold", hot_elsewhere),
        ("a hot part that moves", moving),
        ("strides", strides),
        ("parts that fit, in turns", small_parts),
        ("back and forth", back_and_forth),
        ("a part that fits", passes(3000, DRAM / 2, 40).collect()),
        ("a loop", passes(0, 2 * DRAM, 12).collect()),
    ]
}

/// By the kernel's reclaim, which does not know of the plan.
fn kernel_counts(touches: &Touches, plan: &Planned, prefetch: prefetch::Named) -> Counts {
    let tiers = vec![TierConfig::memory(DRAM as u32), TierConfig::storage(1 << 20)];
    let memory =
        Memory { tiers, plan: plan.clone(), drop_behind: prefetch != NONE, seed: 3, ..Memory::default() };
    let setup = Setup { order: Order::Kernel, prefetch };
    run(touches, &memory, &[setup], 1).pop().unwrap().unwrap()
}

/// Two sets of 8000 pages each, that lie in stretches of 4 pages side by side with those of the other.
fn two_phases() -> Planned {
    let phase = |at: u64| Role::Phase { phase: (at % 2) as u16 };
    (0..4000).map(|at| (range(4 * at, 4 * at + 4), phase(at))).collect()
}

#[test]
fn the_phase_that_a_program_is_in_is_fetched() {
    let mut rng = Rng::seeded(7);
    // Each phase uses its pages four times in another order, and comes ten times.
    let of_phase = |phase: u64, rng: &mut Rng| {
        let mut pages: Vec<u64> =
            (0..2000).flat_map(|at| (0..4).map(move |page| 8 * at + 4 * phase + page)).collect();
        let mut all = Vec::new();
        for _ in 0..4 {
            for at in (1..pages.len()).rev() {
                pages.swap(at, rng.below(at as u64 + 1) as usize);
            }
            all.extend_from_slice(&pages);
        }
        all
    };
    let used: Vec<u64> = (0..20).flat_map(|turn| of_phase(turn % 2, &mut rng)).collect();
    let touches = of(used);
    let readahead = prefetch::Named::Readahead(ReadaheadParameters::DEFAULT);
    let without = kernel_counts(&touches, &Vec::new(), readahead);
    let with = kernel_counts(&touches, &two_phases(), PLAN);
    assert!(with.faults < without.faults / 2, "{} faults of {}", with.faults, without.faults);
    assert!(
        with.read_bytes < without.read_bytes * 11 / 10,
        "{} read of {}",
        with.read_bytes,
        without.read_bytes
    );
}

#[test]
fn a_plan_makes_no_more_faults_than_doing_nothing() {
    let plans: [(&str, Planned); 7] = [
        ("two phases", two_phases()),
        (
            "two phases, one after the other",
            vec![
                (range(0, DRAM), Role::Phase { phase: 0 }),
                (range(DRAM, 2 * DRAM), Role::Phase { phase: 1 }),
            ],
        ),
        ("nothing", vec![]),
        ("a sweep", vec![(range(0, 2 * DRAM), SWEPT)]),
        ("a sweep, half held", half_held()),
        ("the first half held", vec![(range(0, DRAM), Role::Held)]),
        ("all held", vec![(range(0, 2 * DRAM), Role::Held)]),
    ];
    for (name, pages) in programs() {
        let touches = of(pages);
        let nothing = kernel_counts(&touches, &Vec::new(), NONE);
        for (plan_name, plan) in &plans {
            let with = kernel_counts(&touches, plan, PLAN);
            // Where nothing is known, as much is lost as credits allow.
            assert!(
                with.faults <= nothing.faults * 102 / 100 + 64,
                "{name}, {plan_name}: {} faults against {}, {} read",
                with.faults,
                nothing.faults,
                with.read_bytes
            );
            assert!(
                cost(&with) <= cost(&nothing) * 102 / 100 + 2500,
                "{name}, {plan_name}: {} faults against {}, {} read",
                with.faults,
                nothing.faults,
                with.read_bytes
            );
        }
    }
}
