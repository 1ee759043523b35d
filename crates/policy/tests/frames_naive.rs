//! Frames against their naive twin: after every call the same answer, the same acts, the same state, in whatever order the moves
//! complete; and every order of eviction over the machine's own count from scratch.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod frames_world;
#[path = "frames_world/naive.rs"]
mod naive;

use std::fmt::Debug;

use frames_world::{FRAMES, Op, World, config, hot_op, op, pool_config};
use naive::Naive;
use proptest::prelude::*;
use tiermem_policy::evict::any_policy::WithPolicy;
use tiermem_policy::evict::lru::{Bump, Lru};
use tiermem_policy::evict::{Evict, Named};
use tiermem_policy::frames::{Config, Fault, Frame, Outcome, domains};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn equal_their_twin(config in config(), ops in prop::collection::vec(op(), 1..250)) {
        compare(config, ops)?;
    }

    #[test]
    fn equal_their_twin_where_frames_are_hot(config in pool_config(), ops in prop::collection::vec(hot_op(), 1..600)) {
        compare(config, ops)?;
    }
}

fn compare(config: Config, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let policy = Lru::new(vec![1.0; domains(&config)], Bump::Always);
    let mut world = World::new(config.clone(), policy);
    let mut naive = Naive::new(config.clone());
    for op in ops {
        let tickets: Vec<usize> = world.tickets.iter().map(|(_, number)| *number).collect();
        let expected = naive.run(op, &tickets);
        prop_assert_eq!(world.run(op), expected, "{:?}", op);
        world.frames.audit();
        for number in 0..FRAMES {
            let (view, page) = (world.frames.view(Frame(number)), &naive.pages[number as usize]);
            prop_assert_eq!(
                (
                    view.tier,
                    view.copy,
                    view.owner,
                    view.pins,
                    view.is_dirty,
                    view.is_zero,
                    view.is_prefetched
                ),
                (page.tier, page.copy, page.owner, page.pins, page.dirty, page.zero, page.unused),
                "frame {} after {:?}",
                number,
                op
            );
            prop_assert_eq!(
                (view.is_moving, view.is_writing),
                (naive.is_moving(number), naive.is_writing(number))
            );
        }
        for tier in 0..config.tiers.len() as u8 {
            let space = world.frames.space();
            prop_assert_eq!(
                (space.used(tier), space.copies(tier), space.leaving(tier)),
                (naive.used(tier), naive.copies(tier), naive.leaving(tier))
            );
            for owner in 0..config.owners as u16 {
                prop_assert_eq!(world.frames.charged(owner, tier), naive.charged(owner, tier));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The contract of eviction policies holds over frames: every victim is there and may leave, and in the end all leave.
    #[test]
    fn every_order_conforms(config in config(), ops in prop::collection::vec(op(), 1..200)) {
        for named in Named::ALL {
            let first = named.build(domains(&config), 0, Conform { config: &config, ops: &ops });
            let again = named.build(domains(&config), 0, Conform { config: &config, ops: &ops });
            prop_assert_eq!(first, again, "{} decides alike from the same seed", named);
        }
    }
}

struct Conform<'a> {
    config: &'a Config,
    ops: &'a [Op],
}

impl WithPolicy for Conform<'_> {
    type Output = Vec<(String, Vec<String>)>;

    fn with<E: Evict + Send + Debug + 'static>(self, policy: E) -> Self::Output {
        let mut world = World::new(self.config.clone(), policy);
        let told = self.ops.iter().map(|op| {
            let told = world.run(*op);
            world.frames.audit();
            told
        });
        let told = told.collect();
        for frame in 0..FRAMES {
            while world.frames.unpin(Frame(frame)) {}
        }
        settle_all(&mut world);
        // With room below for all, a first tier without room empties, whatever the order.
        let tiers = self.config.tiers.len() as u8;
        for owner in 0..self.config.owners as u16 {
            for tier in 0..tiers {
                world.run(Op::Quota { owner, tier, frames: None });
            }
        }
        for tier in 0..tiers {
            world.frames.set_watermarks(tier, 0, 0);
            world.frames.set_capacity(tier, FRAMES, &mut Vec::new());
        }
        for tier in 0..tiers - 1 {
            world.frames.set_capacity(tier, 0, &mut Vec::new());
            for _ in 0..2 * FRAMES {
                world.run(Op::Step { budget: FRAMES });
                settle_all(&mut world);
                world.frames.audit();
            }
            assert_eq!(world.frames.space().used(tier), 0, "tier {tier} is empty");
        }
        told
    }
}

fn settle_all<E: Evict>(world: &mut World<E>) {
    while !world.tickets.is_empty() {
        world.run(Op::Done { nth: 0, outcome: Outcome::Done });
    }
}

/// A driver that does what the answers say gets its frame in the end, with every order, over tiers of one frame.
#[test]
fn a_fault_ends_over_tiers_of_one_frame() {
    for named in Named::ALL {
        for tiers in 2..=4 {
            named.build(tiers - 1, 0, Serve { tiers });
        }
    }
}

struct Serve {
    tiers: usize,
}

impl WithPolicy for Serve {
    type Output = ();

    fn with<E: Evict + Send + Debug + 'static>(self, policy: E) {
        use tiermem_policy::frames::TierConfig;
        let mut tiers = vec![TierConfig::memory(1); self.tiers];
        tiers[self.tiers - 1] = TierConfig::storage(FRAMES);
        let mut world = World::new(Config { moves_max: 1, ..Config::of(&tiers) }, policy);
        for number in 0..400u32 {
            let frame = Frame(number * number % FRAMES);
            for tries in 0.. {
                assert!(tries < 20, "{number}");
                let mut acts = Vec::new();
                let fault = world.frames.fault(frame, number % 3 == 0, world.now, &mut world.rng, &mut acts);
                world.now += 1;
                match fault {
                    Fault::Here => break,
                    Fault::After(ticket) | Fault::Room(ticket) => {
                        world.frames.done(ticket, Outcome::Done, world.now, &mut acts).unwrap();
                    }
                    Fault::Busy | Fault::Full => panic!("{fault:?}: nothing is under way, and there is room"),
                }
            }
            world.frames.audit();
        }
    }
}
