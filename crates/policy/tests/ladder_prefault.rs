//! Prefaulting changes no decision.

mod keyed;

use keyed::{World, config};
use proptest::prelude::*;
use tiermem_policy::ladder::{LadderConfig, Loc, Order, PAGE_BYTES, Priority};

const AHEAD_BYTES: u64 = 4 << 20;
const KEYS: usize = 6000;

fn worlds(charge_metadata: bool, order: Order) -> [World; 2] {
    let base = LadderConfig { growth: 2, charge_metadata, ..config(&[600, 1100], order) };
    [AHEAD_BYTES, 0].map(|ahead_bytes| World::new(LadderConfig { ahead_bytes, ..base.clone() }))
}

/// Everything that a driver could see of what was decided.
fn seen(world: &World) -> impl PartialEq + std::fmt::Debug + use<> {
    let places: Vec<Option<Loc>> =
        world.ids.iter().map(|id| id.map(|id| world.ladder.residents().nodes().loc(id))).collect();
    let tiers = [0, 1].map(|tier| {
        (
            world.ladder.residents().level(tier).counters(),
            world.ladder.charged_bytes(tier),
            world.ladder.config().levels[tier].capacity_bytes,
        )
    });
    (places, tiers, world.ladder.transit().counters())
}

fn idle(world: &mut World) {
    let mut acts = Vec::new();
    world.ladder.idle(world.now, &mut acts);
    world.execute(acts);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Two ladders see the same requests, one with memory taken ahead: the same items lie in the same places.
    #[test]
    fn decisions_are_the_same(
        charge_metadata: bool,
        lists: bool,
        ops in prop::collection::vec((0u32..40, 0..KEYS, 1000u64..90_000, 100u64..1200), 500..4000),
    ) {
        let order = if lists { Order::Lists } else { Order::Sample { k: 5, by: Priority::Recency } };
        let mut worlds = worlds(charge_metadata, order);
        // So that memory is taken ahead in each case, however few its requests.
        worlds.iter_mut().for_each(idle);
        for (at, (what, key, bytes, pages)) in ops.into_iter().enumerate() {
            for world in &mut worlds {
                match what {
                    0 => world.ladder.set_capacity(key % 2, pages * PAGE_BYTES),
                    1 => idle(world),
                    2..6 => {
                        if let Some(id) = world.ids.get_mut(key).and_then(Option::take) {
                            world.ladder.transit_mut().remove(id);
                        }
                    }
                    6 if key < 20 => {
                        world.ladder.clear();
                        world.ids.fill(None);
                    }
                    _ => world.access(key, bytes, None),
                }
            }
            if at % 500 == 0 {
                prop_assert_eq!(seen(&worlds[0]), seen(&worlds[1]));
            }
        }
        prop_assert_eq!(seen(&worlds[0]), seen(&worlds[1]));
        prop_assert!(worlds[0].populated > 0 && worlds[1].populated == 0);
    }
}

#[test]
fn memory_comes_before_the_first_item_and_stays_below_the_capacity() {
    let [mut ahead, _] = worlds(true, Order::Lists);
    idle(&mut ahead);
    // A huge page of each tier.
    assert_eq!(ahead.populated, 64);
    for key in 0..KEYS {
        ahead.access(key, 60_000, None);
    }
    assert!(ahead.ladder.residents().level(1).counters().items > 900, "both tiers are full");
    assert!((1500..=1700).contains(&ahead.populated), "{} pages", ahead.populated);
    for tier in 0..2 {
        assert!(ahead.ladder.residents().level(tier).is_within_capacity());
        ahead.ladder.set_capacity(tier, 100 * PAGE_BYTES);
    }
    // Nothing is taken for what may not be used, and what was taken goes as anything else.
    let before = ahead.populated;
    (0..1500).for_each(|_| ahead.step());
    assert_eq!(ahead.populated, before);
    assert!(
        ahead.ladder.residents().level(0).is_within_capacity()
            && ahead.ladder.residents().level(1).is_within_capacity()
    );
}
