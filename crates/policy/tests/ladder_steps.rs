//! The work of one step: bounded, whatever waits, and larger in proportion when the step is late.

mod keyed;

use keyed::{World, config};
use tiermem_policy::ladder::{Act, LadderConfig, MoveKind, Order, PAGE_BYTES};

/// Acts of one step by what they do: promotions, demotions, drops.
fn step(world: &mut World) -> [usize; 3] {
    let mut acts = Vec::new();
    world.ladder.step(world.now, &mut world.rng, &mut acts);
    let mut counts = [0; 3];
    for act in &acts {
        match act {
            Act::Move { kind: MoveKind::Promote, .. } => counts[0] += 1,
            Act::Move { kind: MoveKind::Demote, .. } => counts[1] += 1,
            Act::Drop { .. } => counts[2] += 1,
            _ => {}
        }
    }
    world.execute(acts);
    counts
}

/// Two tiers whose items of one size fill both, and steps only when a test makes them.
fn full() -> World {
    let mut world = World::new(LadderConfig { step_requests: 1 << 40, ..config(&[16, 32], Order::Lists) });
    for key in 0..4000 {
        world.access(key, 1000, None);
    }
    world
}

#[test]
fn a_step_moves_no_more_than_its_budgets() {
    let mut world = full();
    let batches = (world.ladder.config().promote_batch, world.ladder.config().demote_batch);
    let mut demoted = 0;
    for round in 0..200 {
        // Many of the slow tier are hot at once.
        for key in 0..20 {
            world.access(key * 50 + round % 50, 1000, None);
        }
        let [promotions, demotions, _] = step(&mut world);
        // A promotion makes its own room at most.
        assert!(promotions <= batches.0 as usize, "{promotions}");
        assert!(demotions <= (batches.0 + batches.1) as usize, "{demotions}");
        demoted += demotions;
    }
    assert!(demoted > 0, "there was something to do");
}

#[test]
fn while_work_is_left_the_next_step_is_due_at_the_next_request() {
    let mut world = World::new(LadderConfig { step_requests: 1000, ..config(&[16, 32], Order::Lists) });
    (0..3000).for_each(|key| world.access(key, 1000, None));
    // Many thousands of bytes have to go down.
    world.ladder.set_capacity(0, 4 * PAGE_BYTES);
    world.now.requests += 1000;
    step(&mut world);
    world.now.requests += 1;
    let mut steps = 0;
    while world.ladder.is_due(world.now) && steps < 10_000 {
        step(&mut world);
        world.now.requests += 1;
        steps += 1;
    }
    assert!(world.ladder.residents().level(0).is_within_capacity(), "all is done at last");
    assert!(!world.ladder.is_due(world.now), "and then the steps are rare again");
}

#[test]
fn a_late_step_does_the_work_of_those_that_were_not_made() {
    let done = |late_requests: u64| {
        let mut world = World::new(LadderConfig { step_requests: 16, ..config(&[16, 32], Order::Lists) });
        // Everything expires at the same moment.
        (0..2000).for_each(|key| world.access(key, 1000, Some(50)));
        world.now.requests += 16 + late_requests;
        world.now.unix_ms = 1_000_000;
        step(&mut world)[2]
    };
    let (in_time, late, very_late) = (done(0), done(16 * 4), done(1 << 30));
    assert!(in_time > 0 && late >= 3 * in_time, "{in_time} and {late}");
    assert!(very_late <= 33 * in_time, "bounded all the same: {very_late}");
}

#[test]
fn second_chances_are_given_a_few_in_each_step() {
    let mut world = full();
    // Every item of the fast tier was used: before a victim is found all have to be passed over.
    let fast: Vec<usize> = (0..4000)
        .filter(|&key| world.ids[key].is_some_and(|id| world.ladder.residents().nodes().loc(id).tier == 0))
        .collect();
    for &key in &fast {
        world.access(key, 1000, None);
    }
    let before = world.ladder.residents().level(0).counters().demotions;
    let mut steps = 0;
    // New items press on; the tier gives in the end though all in it are used.
    for key in 4000..4400 {
        world.access(key, 1000, None);
        step(&mut world);
        steps += 1;
    }
    let demoted = world.ladder.residents().level(0).counters().demotions - before;
    assert!(demoted > 0 && demoted < 3 * steps, "{demoted} in {steps} steps");
}

#[test]
fn from_flash_comes_up_what_is_used_sooner_than_what_leaves() {
    let mut world = World::new(config(&[16], Order::Lists));
    assert!(world.ladder.wants(None, 1000), "there is room that nobody needs");
    // A few keys are used again soon, thousands never.
    for key in 0..3000 {
        world.access(5000 + key % 50, 1000, None);
        world.access(key, 1000, None);
    }
    let tail = world.ladder.tail_age_requests(0);
    assert!(tail > 100, "items leave after {tail} requests");
    assert!(world.ladder.wants(Some(tail / 2), 1000));
    assert!(!world.ladder.wants(Some(tail * 2), 1000));
    assert!(!world.ladder.wants(None, 1000), "nor what was never seen");
}
