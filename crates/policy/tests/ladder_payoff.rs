//! Moves are made while they pay: what is used a few times and never again stays where it came, what is used for long comes up,
//! and a change between the two is noticed.

mod keyed;

use keyed::{World, config};
use tiermem_base::Rng;
use tiermem_policy::ladder::{LadderConfig, Order};

const BYTES: u64 = 1000;

fn world(weighs_moves: bool, pages: [u64; 2]) -> World {
    // What was before a change is forgotten soon.
    World::new(LadderConfig { weighs_moves, reuse_window_requests: 1 << 14, ..config(&pages, Order::Lists) })
}

/// New keys, each used so often soon after it comes, and never again.
fn passing(world: &mut World, keys: std::ops::Range<usize>, uses: usize) {
    for key in keys {
        for before in 0..=uses {
            if let Some(key) = key.checked_sub(before * 7) {
                world.access(key, BYTES, None);
            }
        }
    }
}

/// Items that came up or went down.
fn moves(world: &World) -> u64 {
    let level = |tier| world.ladder.residents().level(tier).counters();
    level(1).promotions + level(0).demotions
}

#[test]
fn what_passes_through_is_not_moved_and_what_stays_hot_comes_up() {
    let mut counts = Vec::new();
    for weighs_moves in [true, false] {
        let mut world = world(weighs_moves, [32, 2000]);
        passing(&mut world, 0..20_000, 2);
        let before = moves(&world);
        passing(&mut world, 20_000..40_000, 2);
        counts.push(moves(&world) - before);

        // Something that lies below is hot from now on, and nothing new comes.
        let hot = 30_000..31_000;
        let was_above = world.in_tier(0, hot.clone());
        for _ in 0..100 {
            hot.clone().for_each(|key| world.access(key, BYTES, None));
        }
        let above = world.in_tier(0, hot);
        assert!(above > 900, "{above} of 1000, {was_above} before");

        // It passes again.
        passing(&mut world, 40_000..50_000, 2);
        let before = moves(&world);
        passing(&mut world, 50_000..60_000, 2);
        counts.push(moves(&world) - before);
    }
    let [weighed, weighed_again, always, always_again] = counts[..] else { unreachable!() };
    assert!(always > 15_000 && always_again > 7_500, "{counts:?}");
    assert!(weighed * 5 < always && weighed_again * 5 < always_again, "{counts:?}");
}

/// Uses a block of keys this many times, one key after the other.
fn block(world: &mut World, first: usize, uses: usize) {
    for _ in 0..uses {
        (first..first + 1000).for_each(|key| world.access(key, BYTES, None));
    }
}

#[test]
fn what_comes_up_and_is_left_again_is_let_lie_until_something_stays() {
    let promotions = |world: &World| world.ladder.residents().level(1).counters().promotions;
    let mut world = world(true, [32, 2000]);
    (0..40_000).for_each(|key| world.access(key, BYTES, None));
    // Each is hot for as long as it takes to notice it, and for one use more.
    (0..10).for_each(|at| block(&mut world, at * 1000, 5));
    let before = promotions(&world);
    (10..20).for_each(|at| block(&mut world, at * 1000, 5));
    let left = promotions(&world) - before;
    assert!(left < 2_000, "{left} of 10,000 came up for nothing");
    // The next one looks the same, and stays: a sample of it comes up, and is counted when it has saved its price many times.
    block(&mut world, 25_000, 500);
    let above = world.in_tier(0, 25_000..26_000);
    assert!(above > 900, "{above} of 1000");
}

#[test]
fn while_items_are_evicted_they_move_as_ever() {
    // Half of the memory is the fast tier. If nothing came up, what is there would stay, used or not.
    let hits = [true, false].map(|weighs_moves| {
        let mut world = world(weighs_moves, [64, 64]);
        let mut rng = Rng::seeded(3);
        let mut hits = 0;
        for now in 0..60_000_u64 {
            for reach in [1, 2000, 9000] {
                let key = now.saturating_sub(rng.below(reach)) as usize;
                // Until nothing was evicted, moves were weighed, and what came then leaves first.
                hits += u32::from(now >= 20_000 && world.ids.get(key).is_some_and(Option::is_some));
                world.access(key, BYTES, None);
            }
        }
        hits
    });
    assert!(hits[0] * 100 >= hits[1] * 99, "{hits:?}");
}
