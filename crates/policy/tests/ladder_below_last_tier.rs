//! Drops from the last tier while the outlet below takes items, cannot take them now, or is not there.

mod newcomers;

use newcomers::{Admission, World};
use proptest::prelude::*;
use tiermem_policy::ladder::{Eviction, Outlet, Watermarks};

/// Whether an item came in, and the bytes of the place of each item that left for it.
fn admit(world: &mut World, bytes: u64) -> (bool, Vec<u64>) {
    let Admission { came, dropped, .. } = world.admit(bytes);
    (came, dropped)
}

const OPEN: Outlet = Outlet::Open { room_bytes: u64::MAX };

fn choked(spare_bytes: u64) -> Outlet {
    Outlet::Choked { room_bytes: u64::MAX, spare_bytes }
}

fn filled(eviction: Eviction) -> World {
    let mut world = World::new(&[4, 8], eviction, Some(Watermarks::default()));
    world.ladder.set_outlet(OPEN);
    for key in 0..3000 {
        assert!(admit(&mut world, 1000).0, "an open outlet always makes room");
        if key % 16 == 0 {
            world.step();
        }
    }
    world
}

#[test]
fn an_open_outlet_takes_whoever_goes_though_nothing_may_be_lost() {
    let world = filled(Eviction::Forbidden);
    assert!(world.bytes.len() < 12 * 62 && world.ladder.residents().level(1).counters().evictions > 2000);
}

#[test]
fn a_choked_outlet_has_writers_wait_and_eviction_rest() {
    for eviction in [Eviction::AllItems, Eviction::Forbidden] {
        let mut world = filled(eviction);
        // Fill what the watermarks keep free.
        world.ladder.set_outlet(choked(0));
        assert!(
            world.ladder.transit().outlet().must_wait() && !world.ladder.wants(Some(1), 100),
            "{eviction:?}"
        );
        let held = world.bytes.len();
        while admit(&mut world, 1000).1.is_empty() && world.bytes.len() < 12 * 62 {}
        assert!(world.bytes.len() > held, "{eviction:?}");
        for _ in 0..20 {
            assert_eq!(world.step(), [], "{eviction:?}");
        }
        // As soon as it is open again the tier comes back to its watermark.
        world.ladder.set_outlet(OPEN);
        assert!(!world.ladder.transit().outlet().must_wait() && !world.step().is_empty(), "{eviction:?}");
    }
}

#[test]
fn what_is_spared_is_used_by_admissions_and_then_it_depends_on_what_may_be_lost() {
    for eviction in [Eviction::AllItems, Eviction::Forbidden] {
        let mut world = World::new(&[2], eviction, None);
        while admit(&mut world, 1000).1.is_empty() && world.bytes.len() < 2 * 62 {}
        let place = world.ladder.residents().classes().place_bytes(1000);
        world.ladder.set_outlet(choked(3 * place));
        for _ in 0..3 {
            assert_eq!(admit(&mut world, 1000), (true, vec![place]), "{eviction:?}");
        }
        assert_eq!(world.ladder.transit().outlet(), choked(0));
        let lossy = eviction == Eviction::AllItems;
        let expected = if lossy { (true, vec![place]) } else { (false, vec![]) };
        assert_eq!(admit(&mut world, 1000), expected, "{eviction:?}");
        let counters = world.ladder.transit().counters();
        assert_eq!((counters.overflowed, counters.refused), (u64::from(lossy), u64::from(!lossy)));
    }
}

#[test]
fn nobody_is_lost_while_another_tier_has_a_place() {
    // The fast tier is full, the slow one is not: without a free slot of its own class it still has pages.
    let mut world = World::new(&[2, 4], Eviction::AllItems, None);
    while world.bytes.len() < 2 * 62 {
        admit(&mut world, 1000);
    }
    world.ladder.set_outlet(choked(0));
    for _ in 0..4 * 62 {
        assert_eq!(admit(&mut world, 1000), (true, vec![]));
    }
    assert_eq!(world.ladder.transit().counters().overflowed, 0);
    assert_eq!(admit(&mut world, 1000).1.len(), 1);
    assert_eq!(world.ladder.transit().counters().overflowed, 1);
}

#[test]
fn where_nothing_may_be_lost_an_item_comes_in_only_if_there_is_room_for_it_below() {
    for (eviction, comes) in [(Eviction::Forbidden, false), (Eviction::AllItems, true)] {
        for outlet in
            [Outlet::Open { room_bytes: 999 }, Outlet::Choked { room_bytes: 999, spare_bytes: 1 << 20 }]
        {
            let mut world = World::new(&[4], eviction, None);
            world.ladder.set_outlet(outlet);
            assert!(admit(&mut world, 999).0);
            assert_eq!(admit(&mut world, 1000).0, comes, "{eviction:?}, {outlet:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever comes in which order, drops keep to what the outlet allows, and those beyond it are counted.
    #[test]
    fn drops_keep_to_the_outlet(
        pages in prop::collection::vec(2u64..8, 1..4),
        forbidden in any::<bool>(),
        marks in any::<bool>(),
        ops in prop::collection::vec((0u8..24, prop_oneof![8 => 1u64..3000, 1 => 3000u64..300_000], 0u64..200_000), 1..500),
    ) {
        let eviction = if forbidden { Eviction::Forbidden } else { Eviction::AllItems };
        let mut world = World::new(&pages, eviction, marks.then(Watermarks::default));
        let mut overflowed = 0;
        for (what, bytes, spare_bytes) in ops {
            match what {
                0 => world.ladder.set_outlet(Outlet::Nowhere),
                1 => world.ladder.set_outlet(OPEN),
                2 => world.ladder.set_outlet(choked(spare_bytes)),
                3..=5 => {
                    let dropped = world.step();
                    let may = match world.ladder.transit().outlet() {
                        Outlet::Nowhere => !forbidden,
                        Outlet::Open { .. } => true,
                        Outlet::Choked { .. } => false,
                    };
                    prop_assert!(may || dropped.is_empty(), "{:?}", world.ladder.transit().outlet());
                }
                _ => {
                    let before = world.ladder.transit().outlet();
                    let (_, dropped) = admit(&mut world, bytes);
                    match before {
                        Outlet::Nowhere => prop_assert!(!forbidden || dropped.is_empty()),
                        Outlet::Open { .. } => {}
                        Outlet::Choked { mut spare_bytes, .. } => {
                            for bytes in dropped {
                                match spare_bytes.checked_sub(bytes) {
                                    Some(left) => spare_bytes = left,
                                    None => overflowed += 1,
                                }
                            }
                            prop_assert_eq!(world.ladder.transit().outlet(), choked(spare_bytes));
                        }
                    }
                }
            }
            prop_assert_eq!(world.ladder.transit().counters().overflowed, overflowed);
            prop_assert!(!forbidden || overflowed == 0);
        }
    }
}
