//! Capacity changes: tiers are made smaller and larger while they are at work.

mod keyed;

use keyed::{World, config};
use proptest::prelude::*;
use tiermem_policy::ladder::{LadderConfig, Order, PAGE_BYTES, Priority};

const ITEM_BYTES: u64 = 1000;

fn world(growth: u32, order: Order) -> World {
    World::new(LadderConfig { growth, ..config(&[8, 16], order) })
}

fn within(world: &World) -> bool {
    (0..2).all(|tier| world.ladder.residents().level(tier).is_within_capacity())
}

#[test]
fn what_is_above_a_smaller_capacity_leaves_and_a_larger_one_is_used() {
    for order in [Order::Lists, Order::Sample { k: 5, by: Priority::Recency }] {
        let mut world = world(2, order);
        for key in 0..10_000 {
            world.access(key % 100, ITEM_BYTES, None);
            world.access(key, ITEM_BYTES, None);
        }
        let before = world.ladder.residents().items();
        // As memory goes from shard to shard: a region at a time, amid requests.
        for pages in (4..8).rev() {
            world.ladder.set_capacity(0, pages * PAGE_BYTES);
            world.ladder.set_capacity(1, 2 * pages * PAGE_BYTES);
            assert!(!within(&world));
            (0..2000).for_each(|key| world.access(key % 100, ITEM_BYTES, None));
            assert!(within(&world));
        }
        assert!(world.ladder.charged_bytes(0) <= 4 * PAGE_BYTES);
        assert!(world.ladder.charged_bytes(1) <= 8 * PAGE_BYTES);
        let after = world.ladder.residents().items();
        // Space that is kept free is a page in twenty, and one may be under way.
        assert!(after > before * 3 / 8 && after <= before / 2 + 8, "{before} became {after}");
        assert!(world.held(0..100) >= 95, "{} of those that are in use stayed", world.held(0..100));

        world.ladder.set_capacity(0, 100 * PAGE_BYTES);
        assert_eq!(
            world.ladder.config().levels[0].capacity_bytes,
            16 * PAGE_BYTES,
            "no more than it was made for"
        );
        world.ladder.set_capacity(1, 32 * PAGE_BYTES);
        (20_000..40_000).for_each(|key| world.access(key, ITEM_BYTES, None));
        assert!(
            world.ladder.residents().items() > before * 9 / 5,
            "{} items, {before} before",
            world.ladder.residents().items()
        );
    }
}

proptest! {
    /// Whatever comes and whatever the capacities become, a tier comes to hold no more than its capacity, and no item is lost
    /// that was not dropped.
    #[test]
    fn capacities_are_kept(steps in prop::collection::vec((0usize..3000, 50u64..20_000, 0usize..40, 1u64..24), 1..2000)) {
        let mut world = world(3, Order::Lists);
        for (key, bytes, resize, pages) in steps {
            if resize < 2 {
                world.ladder.set_capacity(resize, pages * PAGE_BYTES);
            }
            world.access(key, bytes, None);
            prop_assert_eq!(world.held(0..3000) as u64, world.ladder.residents().items());
        }
        for _ in 0..400 {
            world.step();
        }
        prop_assert!(within(&world));
    }
}
