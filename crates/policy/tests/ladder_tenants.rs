//! Tenants in the ladder: what each has is counted right, and none loses what is its own to another.

mod keyed;

use keyed::{World, config};
use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_policy::ladder::{LadderConfig, Order, PAGE_BYTES, Setting};

/// Keys of a tenant.
const KEYS: usize = 100_000;

fn tenants(pages: &[u64]) -> LadderConfig {
    LadderConfig { tenants: true, ..config(pages, Order::Lists) }
}

fn key(tenant: u16, key: usize) -> usize {
    usize::from(tenant) * KEYS + key
}

/// Bytes and items of each tenant in a tier, counted item by item.
fn counted(world: &World, tenant: u16, tier: u8) -> (u64, u64) {
    let ids = world.ids.iter().flatten().filter(|&&id| {
        world.ladder.residents().tenants().is_some_and(|tenants| tenants.owner(id) == tenant)
            && world.ladder.residents().nodes().loc(id).tier == tier
    });
    ids.fold((0, 0), |(items, bytes), &id| (items + 1, bytes + world.ladder.residents().place_bytes(id)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn what_tenants_have_is_what_their_items_take(
        seed in any::<u64>(),
        shares in prop::collection::vec(0u64..40, 3),
        pages in prop::sample::select(vec![vec![12u64], vec![6, 14]]),
    ) {
        let mut world = World::new(tenants(&pages));
        let mut rng = Rng::seeded(seed);
        for (tenant, share) in (0u16..).zip(&shares) {
            (0..pages.len()).for_each(|tier| world.ladder.residents_mut().apply(Setting::Share { tenant, tier, share_bytes: share * PAGE_BYTES, k: 0 }));
        }
        for round in 0..3000u64 {
            let tenant = rng.below(3) as u16;
            let number = rng.below(600) as usize;
            let bytes = 40 + (number as u64 * 7919) % 900;
            world.access_of(tenant, key(tenant, number), bytes, None);
            if round == 1500 {
                world.ladder.residents_mut().apply(Setting::Share { tenant: 1, tier: 0, share_bytes: 5 * PAGE_BYTES, k: 3 });
            }
        }
        world.step();
        for tenant in 0..3 {
            for tier in 0..pages.len() {
                let level = world.ladder.residents().tenant_level(tenant, tier);
                prop_assert_eq!((level.items, level.bytes), counted(&world, tenant, tier as u8));
            }
        }
        prop_assert!(world.ladder.clear());
        prop_assert_eq!(world.ladder.residents().tenant_level(0, 0).items, 0);
    }
}

/// Fills what two tenants have with as many keys each, then lets the second one flood. Returns how many of the first one's are
/// left.
fn after_a_flood(bytes_of: impl Fn(usize) -> u64, pages: u64) -> (usize, World) {
    let mut world = World::new(tenants(&[pages]));
    let share = pages / 3 * PAGE_BYTES;
    world.ladder.residents_mut().apply(Setting::Share { tenant: 0, tier: 0, share_bytes: share, k: 0 });
    world.ladder.residents_mut().apply(Setting::Share {
        tenant: 1,
        tier: 0,
        share_bytes: pages * PAGE_BYTES - share,
        k: 0,
    });
    let mut held = 0;
    let mut number = 0;
    // The first has a little less than its share.
    while held < share * 8 / 10 {
        world.access_of(0, key(0, number), bytes_of(number), None);
        held = world.ladder.residents().tenant_level(0, 0).bytes;
        number += 1;
    }
    for flood in 0..40_000 {
        world.access_of(1, key(1, flood), bytes_of(flood), None);
    }
    let left = world.held(key(0, 0)..key(0, number));
    (number - left, world)
}

#[test]
fn who_is_below_its_share_loses_nothing_to_a_flood() {
    let (lost, world) = after_a_flood(|_| 500, 64);
    assert_eq!(lost, 0);
    let flooder = world.ladder.residents().tenant_level(1, 0);
    assert!(flooder.bytes > 40 * PAGE_BYTES, "what is unused is used by others: {flooder:?}");
    assert_eq!(flooder.counters.trespasses, 0);
}

#[test]
fn the_same_with_sizes_of_all_kinds() {
    let (lost, world) = after_a_flood(|number| 40 + (number as u64 * 7919) % 3000, 256);
    let trespasses = world.ladder.residents().tenant_level(0, 0).counters.trespasses;
    assert_eq!((lost, trespasses), (0, 0));
    assert!(
        world.ladder.residents().tenant_level(1, 0).bytes > 100 * PAGE_BYTES,
        "nor is the flooder turned away"
    );
}

#[test]
fn a_new_size_of_the_flooder_takes_the_flooders_pages() {
    let mut world = World::new(tenants(&[64]));
    for tenant in 0..2 {
        world.ladder.residents_mut().apply(Setting::Share {
            tenant,
            tier: 0,
            share_bytes: 32 * PAGE_BYTES,
            k: 0,
        });
    }
    for number in 0..4000 {
        world.access_of(0, key(0, number), 300, None);
    }
    let before = world.held(key(0, 0)..key(0, 4000));
    for number in 0..20_000 {
        world.access_of(1, key(1, number), 300, None);
    }
    for number in 20_000..40_000 {
        world.access_of(1, key(1, number), 2000, None);
    }
    assert_eq!(world.held(key(0, 0)..key(0, 4000)), before);
    assert!(world.held(key(1, 20_000)..key(1, 40_000)) > 500, "its pages went to the new size");
}

#[test]
fn shares_divide_a_full_tier() {
    let mut world = World::new(tenants(&[64]));
    for (tenant, share) in [(0, 8), (1, 16), (2, 40)] {
        world.ladder.residents_mut().apply(Setting::Share {
            tenant,
            tier: 0,
            share_bytes: share * PAGE_BYTES,
            k: 0,
        });
    }
    let mut rng = Rng::seeded(9);
    for _ in 0..120_000 {
        let tenant = rng.below(3) as u16;
        world.access_of(tenant, key(tenant, rng.below(50_000) as usize), 200, None);
    }
    let bytes: Vec<f64> =
        (0..3).map(|tenant| world.ladder.residents().tenant_level(tenant, 0).bytes as f64).collect();
    let all: f64 = bytes.iter().sum();
    for (bytes, share) in bytes.iter().zip([8.0, 16.0, 40.0]) {
        assert!((bytes / all - share / 64.0).abs() < 0.01, "{bytes} of {all}, share {share}");
    }
    // Half of it changes hands, by evictions of the tenant that has too much.
    world.ladder.residents_mut().apply(Setting::Share {
        tenant: 0,
        tier: 0,
        share_bytes: 40 * PAGE_BYTES,
        k: 0,
    });
    world.ladder.residents_mut().apply(Setting::Share {
        tenant: 2,
        tier: 0,
        share_bytes: 8 * PAGE_BYTES,
        k: 0,
    });
    for _ in 0..120_000 {
        let tenant = rng.below(3) as u16;
        world.access_of(tenant, key(tenant, rng.below(50_000) as usize), 200, None);
    }
    let first = world.ladder.residents().tenant_level(0, 0).bytes as f64;
    assert!((first / all - 40.0 / 64.0).abs() < 0.02, "{first} of {all}");
}

#[test]
fn each_tenant_has_its_own_k() {
    // Both go round in a loop of twice their share: drawing one keeps a part of it, drawing many nearly nothing.
    let mut world = World::new(tenants(&[64]));
    world.ladder.residents_mut().apply(Setting::Share {
        tenant: 0,
        tier: 0,
        share_bytes: 32 * PAGE_BYTES,
        k: 1,
    });
    world.ladder.residents_mut().apply(Setting::Share {
        tenant: 1,
        tier: 0,
        share_bytes: 32 * PAGE_BYTES,
        k: 16,
    });
    let mut hits = [0u32; 2];
    for round in 0..6 {
        for number in 0..8000 {
            for tenant in 0..2 {
                let found = world.held(key(tenant, number)..key(tenant, number) + 1);
                hits[usize::from(tenant)] += if round > 1 { found as u32 } else { 0 };
                world.access_of(tenant, key(tenant, number), 480, None);
            }
        }
    }
    assert!(hits[0] > 4 * hits[1] + 1000, "{hits:?}");
}

/// Moves up of a tenant that goes round in a loop over both tiers, beside one whose keys are hot above.
#[test]
fn items_that_are_all_alike_do_not_change_places() {
    let mut world = World::new(tenants(&[32, 160]));
    for (tenant, share) in [(0, 24), (1, 8)] {
        world.ladder.residents_mut().apply(Setting::Share {
            tenant,
            tier: 0,
            share_bytes: share * PAGE_BYTES,
            k: 16,
        });
        world.ladder.residents_mut().apply(Setting::Share {
            tenant,
            tier: 1,
            share_bytes: 80 * PAGE_BYTES,
            k: 16,
        });
    }
    let mut promotions = 0;
    for round in 0..30 {
        for number in 0..6000 {
            world.access_of(0, key(0, number % 200), 480, None);
            world.access_of(1, key(1, number), 480, None);
        }
        if round == 15 {
            promotions = world.ladder.residents().level(1).counters().promotions;
        }
    }
    let later = world.ladder.residents().level(1).counters().promotions - promotions;
    assert!(later < 14 * 6000 / 20, "{later} of {} look-ups", 14 * 6000);
}

/// Room that becomes a tenant's own is filled with what it uses most, however much sooner another one's items are used again.
#[test]
fn a_part_that_grows_is_filled() {
    let mut world = World::new(tenants(&[32, 160]));
    for tier in 0..2 {
        world.ladder.residents_mut().apply(Setting::Share {
            tenant: 0,
            tier,
            share_bytes: 28 * PAGE_BYTES,
            k: 16,
        });
        world.ladder.residents_mut().apply(Setting::Share {
            tenant: 1,
            tier,
            share_bytes: 4 * PAGE_BYTES,
            k: 16,
        });
    }
    let mut rng = Rng::seeded(3);
    let mut ask = |world: &mut World, rounds: usize| {
        for _ in 0..rounds {
            // Asked ten times as often, and hardly anything of it is not above.
            for _ in 0..10 {
                world.access_of(0, key(0, rng.below(3000) as usize), 480, None);
            }
            world.access_of(1, key(1, (rng.unit_f64().powi(3) * 6000.0) as usize), 480, None);
        }
    };
    ask(&mut world, 60_000);
    let before = world.ladder.residents().tenant_level(1, 0).bytes;
    world.ladder.residents_mut().apply(Setting::Share {
        tenant: 0,
        tier: 0,
        share_bytes: 8 * PAGE_BYTES,
        k: 16,
    });
    world.ladder.residents_mut().apply(Setting::Share {
        tenant: 1,
        tier: 0,
        share_bytes: 24 * PAGE_BYTES,
        k: 16,
    });
    ask(&mut world, 60_000);
    let after = world.ladder.residents().tenant_level(1, 0).bytes;
    // It has some more than its four pages before, which the other one leaves unused.
    assert!(before < 12 * PAGE_BYTES && after > 18 * PAGE_BYTES, "{before} to {after}");
}

#[test]
fn who_is_alone_trespasses_on_nobody() {
    let mut world = World::new(tenants(&[16, 32]));
    for number in 0..20_000 {
        world.access_of(7, key(7, number % KEYS), 700, None);
    }
    let level = world.ladder.residents().tenant_level(7, 1);
    assert!(level.counters.evictions > 10_000, "{level:?}");
    assert_eq!(level.counters.trespasses, 0);
}

/// Two tenants with little and two with much, all of all sizes: a part of some pages holds something of every class, and nothing
/// that is above its part lies alone on a page.
#[test]
fn small_parts_are_not_refused_what_their_pages_cannot_hold() {
    let mut world = World::new(tenants(&[120]));
    let shares = [4, 4, 56, 56];
    for (tenant, share) in (0u16..).zip(shares) {
        world.ladder.residents_mut().apply(Setting::Share {
            tenant,
            tier: 0,
            share_bytes: share * PAGE_BYTES,
            k: 0,
        });
    }
    let mut rng = Rng::seeded(11);
    for _ in 0..150_000 {
        let tenant = rng.below(4) as u16;
        let number = rng.below(20_000) as usize;
        let bytes = 60 + (number as u64 * 7919) % 30_000;
        world.access_of(tenant, key(tenant, number), bytes, None);
    }
    // Of the large ones' wishes beyond their parts a few are.
    assert!(world.ladder.transit().counters().refused < 20, "{}", world.ladder.transit().counters().refused);
    let seen: Vec<_> = (0..4).map(|tenant| world.ladder.residents().tenant_level(tenant, 0)).collect();
    let (evicted, trespassed) = seen.iter().fold((0, 0), |(all, some), level| {
        (all + level.counters.evictions, some + level.counters.trespasses)
    });
    assert!(trespassed * 10 < evicted, "{trespassed} of {evicted}");
    assert!(seen[2].bytes > 40 * PAGE_BYTES && seen[3].bytes > 40 * PAGE_BYTES, "{seen:?}");
}
