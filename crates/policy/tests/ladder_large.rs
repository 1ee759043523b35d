//! Room for large items is made in pieces, between which everything else goes on.

mod newcomers;

use newcomers::{Admission, World};
use tiermem_policy::ladder::{Eviction, LevelCounters, PAGE_BYTES, Watermarks};

/// Tiers full of small items.
fn filled(pages: &[u64], eviction: Eviction, watermarks: Option<Watermarks>) -> World {
    let mut world = World::new(pages, eviction, watermarks);
    for _ in 0..pages.iter().sum::<u64>() * 1100 {
        admit(&mut world, 64);
    }
    world
}

/// Whether it came in, how often it had to ask again, and the most that was decided at once.
fn admit(world: &mut World, bytes: u64) -> (bool, usize, usize) {
    let Admission { came, again, acts_max, .. } = world.admit(bytes);
    if world.ladder.is_due(world.now) {
        world.step();
    }
    (came, again, acts_max)
}

const LARGE: u64 = 256 * PAGE_BYTES - 100;
/// Items that a piece may move or drop, and those of a page that metadata needs, each perhaps in place of a colder one.
const PIECE_MAX: usize = 384;

#[test]
fn the_room_is_made_in_pieces_while_small_items_come_and_go() {
    for watermarks in [None, Some(Watermarks::default())] {
        let mut world = filled(&[40, 600], Eviction::AllItems, watermarks);
        let before = world.ladder.residents().items();
        let mut pieces = 0;
        loop {
            let (done, decided) = world.prepare(LARGE);
            assert!(decided <= PIECE_MAX, "{decided} at once");
            if done {
                break;
            }
            pieces += 1;
            assert!(pieces < 20_000, "it comes to an end");
            // They would take every page that they are given.
            for _ in 0..20 {
                let (came, _, acts) = admit(&mut world, 64);
                assert!(came && acts <= PIECE_MAX);
            }
        }
        // Less than there were items for: some of them had to go for others meanwhile.
        assert!(pieces > 256 * 1000 / PIECE_MAX / 2, "{pieces} pieces");
        assert_eq!(admit(&mut world, LARGE), (true, 0, 0), "the room is there, and was given to nobody else");
        // No more had to go than lay there.
        assert!(
            before - world.ladder.residents().items() < 256 * 1100,
            "{before} and then {}",
            world.ladder.residents().items()
        );
    }
}

#[test]
fn who_does_not_ask_beforehand_makes_the_same_pieces() {
    let mut world = filled(&[1000], Eviction::AllItems, None);
    let (came, again, acts_max) = admit(&mut world, LARGE);
    assert!(came && again > 500 && acts_max <= PIECE_MAX, "{again} times, {acts_max} at once");
    assert!(!world.prepare(LARGE).0, "small ones are colder, and make room for the next");
    // When all were used about as long ago, the next one of its size takes its place, and no other goes.
    world.now.requests += 1 << 24;
    let held = world.ladder.residents().items();
    assert!(world.prepare(LARGE).0);
    assert_eq!(admit(&mut world, LARGE), (true, 0, 1));
    assert_eq!(world.ladder.residents().items(), held);
}

#[test]
fn where_nothing_may_go_it_is_refused_after_a_few_tries() {
    let mut world = filled(&[40, 600], Eviction::Forbidden, None);
    let held = world.ladder.residents().items();
    let (came, again, _) = admit(&mut world, LARGE);
    assert!(!came && again < 200, "{again}");
    assert_eq!(world.ladder.residents().items(), held);
    let pieces = (0..).take_while(|_| !world.prepare(LARGE).0).count();
    assert!(pieces < 200, "{pieces}");
    // The pages that were held for it can be given out again.
    let LevelCounters { evictions, .. } = world.ladder.residents().level(1).counters();
    assert_eq!(evictions, 0);
}

#[test]
fn a_window_that_nobody_waits_for_is_given_up() {
    let mut world = filled(&[600], Eviction::AllItems, None);
    while world.ladder.residents().items() > 500 * 1000 {
        assert!(!world.prepare(LARGE).0);
    }
    world.now.requests += 1 << 17;
    for _ in 0..150 * 1024 {
        assert!(admit(&mut world, 64).0);
    }
    assert!(
        world.ladder.residents().items() > 590 * 1000,
        "all pages are used again: {}",
        world.ladder.residents().items()
    );
}
