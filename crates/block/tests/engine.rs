//! Engine in virtual time, with devices and stores that take time, fail, and lose power.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

#[path = "engine/bad_places.rs"]
mod bad_places;
#[path = "engine/order.rs"]
mod order;
#[path = "engine/setup.rs"]
mod setup;
#[path = "engine/stamp.rs"]
mod stamp;
#[path = "engine/world.rs"]
mod world;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use setup::{KIB, ORDERS, Setup};
use tiermem_base::Rng;
use tiermem_block::engine::{Engine, EngineConfig, VolumeConfig};
use tiermem_policy::extents::cleaner::WriteBackOrder;
use tiermem_policy::extents::{Around, Fill, Mode, Sizing};
use tiermem_tier::backing::{Backing, MemoryStore, Request};
use tiermem_tier::block::{AlignedBuffer, MemoryDisk, for_each_seed};
use world::{Kind, World};

/// Each property is tried in 60 worlds, or in as many as `TIERMEM_WORLDS` says. What is left to find is rarer than one in a thousand.
fn worlds() -> ProptestConfig {
    let cases = std::env::var("TIERMEM_WORLDS")
        .map_or(60, |count| count.parse().expect("TIERMEM_WORLDS is a number"));
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() }
}

fn setups() -> impl Strategy<Value = Setup> {
    let sizes = prop_oneof![
        Just(vec![32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB]),
        Just(vec![4 * KIB, 16 * KIB]),
        Just(vec![64 * KIB]),
    ];
    let sizings = prop_oneof![
        Just(Sizing::Request),
        Just(Sizing::Around(Around { read: Some(0), write: Some(0) })),
        Just(Sizing::Observed(Default::default())),
    ];
    let mode =
        prop_oneof![3 => Just(Mode::WriteBack), 1 => Just(Mode::WriteThrough), 1 => Just(Mode::WriteAround)];
    let table = prop_oneof![Just(None), (2u64..5).prop_map(|pages| Some(pages * 4 * KIB))];
    let memory = (0u64..3, table, 0usize..3);
    (sizes, sizings, prop::bool::ANY, prop::collection::vec(mode, 1..3), 6u64..40, 0u64..3, memory).prop_map(
        |(sizes_bytes, sizing, whole, modes, groups, tail, (memory, table_bytes, order))| Setup {
            order: ORDERS[order],
            cache_bytes: groups * 256 * KIB,
            sizes_bytes,
            volume_bytes: (4 << 20) + tail * 512,
            fill: if whole { Fill::Whole } else { Fill::Units },
            sizing,
            modes,
            durable: false,
            memory_bytes: memory * 256 * KIB,
            table_bytes,
            failures_per_mille: 0,
            bad_places: false,
        },
    )
}

proptest! {
    #![proptest_config(worlds())]

    #[test]
    fn clients_read_what_was_written(setup in setups(), seed in any::<u64>(), requests in 50usize..400, depth in 1usize..40) {
        let mut world = World::new(&setup, seed);
        for _ in 0..requests {
            world.send_random();
            while world.in_flight() >= depth {
                world.look();
            }
        }
        world.settle();
        for volume in 0..setup.modes.len() {
            world.send(volume, Kind::Read, 0..setup.volume_bytes, false);
            world.send(volume, Kind::Flush, 0..0, false);
        }
        world.settle();
        // Nothing outlives this cache, so a flush has brought all to the stores.
        world.check_stores();
        world.check_cache(false);
    }

    /// The process dies, or the machine, again and again: what was promised is there, and nothing is anything else than what was written.
    #[test]
    fn what_was_promised_survives(
        setup in setups(), seed in any::<u64>(), lives in prop::collection::vec((10usize..250, any::<bool>()), 1..5), depth in 1usize..40,
    ) {
        let setup = Setup { durable: true, cache_bytes: setup.cache_bytes + 2 * (1 << 20), ..setup };
        let mut world = World::new(&setup, seed);
        for (requests, power) in lives {
            for _ in 0..requests {
                world.send_random();
                while world.in_flight() >= depth {
                    world.look();
                }
                world.tick();
            }
            world.crash(power);
        }
        world.settle();
        world.engine.close();
        world.check_stores();
        world.check_cache(true);
    }

    /// If the cache's device is lost, the stores are what their order promises: at any moment between two flushes, or whenever no group is
    /// under way at one of them; and in any order they have everything once it was written back.
    #[test]
    fn the_stores_are_what_their_order_promises(
        setup in setups(), seed in any::<u64>(), requests in 50usize..300, depth in 1usize..40, durable in any::<bool>(),
        flush_every in 1usize..60, crashes in any::<bool>(), power in any::<bool>(),
    ) {
        let setup = Setup { durable, cache_bytes: setup.cache_bytes + 2 * (1 << 20), ..setup };
        let mut world = World::new(&setup, seed);
        for request in 0..requests {
            world.send_random();
            if request % flush_every == 0 {
                (0..setup.modes.len()).for_each(|volume| world.send(volume, Kind::Flush, 0..0, false));
            }
            while world.in_flight() >= depth {
                world.look();
            }
            world.tick();
            world.check_order();
            // After a crash only what goes in groups is in order at once: a store is not whole before it has all that was dirty.
            if request == requests / 2 && crashes && durable && setup.order == WriteBackOrder::Group {
                world.crash(power);
            }
        }
        world.settle();
        world.check_order();
        let has_crashed = crashes && durable;
        world.check_cache(has_crashed);
        for volume in 0..setup.modes.len() {
            world.write_back(volume);
        }
        world.check_stores();
        world.check_order();
    }
}

proptest! {
    #![proptest_config(worlds())]

    /// Modes and quotas change, and blocks are written back and dropped, while clients continue.
    #[test]
    fn clients_do_not_see_what_an_operator_does(
        setup in setups(), seed in any::<u64>(), requests in 50usize..300, depth in 1usize..40, durable in any::<bool>(),
    ) {
        let setup = Setup { durable, cache_bytes: setup.cache_bytes + 2 * (1 << 20), ..setup };
        let mut world = World::new(&setup, seed);
        for request in 0..requests {
            world.send_random();
            if request % 5 == 0 {
                world.steer_random();
            }
            while world.in_flight() >= depth {
                world.look();
            }
            world.tick();
        }
        world.settle();
        for volume in 0..setup.modes.len() {
            world.write_back(volume);
            world.send(volume, Kind::Read, 0..setup.volume_bytes, false);
        }
        world.settle();
        world.check_stores();
        world.check_cache(false);
        if durable {
            world.crash(false);
        }
    }
}

/// The same worlds each time, few as each takes long; others where their number is given.
fn worlds_with_bad_places() -> ProptestConfig {
    if std::env::var_os("TIERMEM_WORLDS").is_some() {
        return worlds();
    }
    ProptestConfig { cases: 30, rng_seed: RngSeed::Fixed(1), ..worlds() }
}

proptest! {
    #![proptest_config(worlds_with_bad_places())]

    /// Places of the cache's device and of stores go bad, for reads, writes or syncs, once or for good, in each mode: a client gets an
    /// error only where there is no copy of what it asks for, or nowhere to write to; and never other bytes than were written.
    #[test]
    fn bad_places_cost_no_client_anything_of_which_there_is_a_copy(
        setup in setups(), seed in any::<u64>(), requests in 50usize..400, depth in 1usize..40, durable in any::<bool>(),
        every in 4usize..80, lives in 1usize..4, dies in any::<bool>(), power in any::<bool>(),
    ) {
        let setup = Setup { durable, ..setup };
        BadPlacesCase { setup, seed, requests, depth, every, lives, dies, power }.run();
    }
}

/// A world with bad places.
struct BadPlacesCase {
    setup: Setup,
    seed: u64,
    requests: usize,
    depth: usize,
    every: usize,
    lives: usize,
    dies: bool,
    power: bool,
}

impl BadPlacesCase {
    fn run(self) {
        let BadPlacesCase { setup, seed, requests, depth, every, lives, dies, power } = self;
        let setup = Setup { bad_places: true, cache_bytes: setup.cache_bytes + 2 * (1 << 20), ..setup };
        let mut world = World::new(&setup, seed);
        for life in 1..=lives {
            for request in 0..requests {
                world.send_random();
                if request % every == 0 {
                    world.spoil_random();
                }
                while world.in_flight() >= depth {
                    world.look();
                }
                world.tick();
            }
            // The process dies in the midst of its work, or when all is done.
            let is_last = !setup.durable || life == lives;
            if is_last || !dies {
                world.settle();
                for volume in 0..setup.modes.len() {
                    world.send(volume, Kind::Read, 0..setup.volume_bytes, false);
                    world.send(volume, Kind::Flush, 0..0, false);
                }
                world.settle();
            }
            if !is_last {
                world.crash(power);
            }
        }
    }
}

/// Worlds that were found once, in which something went wrong.
#[test]
fn bad_places_that_were_found_agree() {
    let setup = Setup {
        sizes_bytes: vec![4 * KIB, 16 * KIB],
        cache_bytes: 6815744,
        volume_bytes: 4194816,
        fill: Fill::Units,
        sizing: Sizing::Request,
        modes: vec![Mode::WriteBack; 2],
        order: WriteBackOrder::Group,
        durable: true,
        memory_bytes: 256 * KIB,
        table_bytes: Some(8 * KIB),
        failures_per_mille: 0,
        bad_places: true,
    };
    let case = |setup, seed, (requests, depth, every), lives, dies| BadPlacesCase {
        setup,
        seed,
        requests,
        depth,
        every,
        lives,
        dies,
        power: false,
    };
    case(setup.clone(), 4159108665840329279, (271, 4, 6), 2, false).run();
    let other = Setup {
        cache_bytes: 4456448,
        volume_bytes: 4195328,
        order: WriteBackOrder::Flush,
        table_bytes: Some(16 * KIB),
        ..setup.clone()
    };
    case(other, 6481207214545425386, (252, 9, 15), 3, true).run();
    let third = Setup {
        cache_bytes: 3932160,
        volume_bytes: 4194816,
        fill: Fill::Whole,
        sizing: Sizing::Observed(Default::default()),
        order: WriteBackOrder::None,
        durable: false,
        memory_bytes: 0,
        table_bytes: None,
        ..setup
    };
    case(third, 4577494822182190112, (300, 28, 73), 2, false).run();
}

/// The machine dies in any submission to a device or store, also while it starts; requests fail; what was acknowledged is there again.
#[test]
fn what_was_acknowledged_survives_a_death_in_any_submission() {
    for_each_seed(|seed| {
        let mut rng = Rng::seeded(seed);
        let setup = Setup::draw(&mut rng);
        let mut world = World::new(&setup, rng.next_u64());
        let depth = 1 + rng.below(40) as usize;
        for _ in 0..1 + rng.below(4) {
            // Deaths that come soon and late are as likely; some lives end between two submissions.
            if rng.below(4) > 0 {
                let submissions_max = 2 << rng.below(12);
                world.simulation.die_after(rng.below(submissions_max));
            }
            for _ in 0..10 + rng.below(200) {
                world.send_random();
                while world.in_flight() >= depth && !world.simulation.is_dead() {
                    world.look();
                }
                world.tick();
                if world.simulation.is_dead() {
                    break;
                }
            }
            world.crash(rng.below(3) > 0);
        }
        world.settle();
        if setup.failures_per_mille == 0 {
            world.engine.close();
            world.check_stores();
            world.check_cache(true);
        }
    });
}

/// Unflushed writes of a process to a store are read by the next process,
/// which so promises them: it flushes the store before it serves.
#[test]
fn a_store_is_flushed_before_it_is_served() {
    let store = MemoryStore::new(1 << 20);
    let mut backing = store.open();
    let mut bytes = AlignedBuffer::zeroed(4096);
    bytes.fill(7);
    backing.submit(Request::write(1, 0, 4096, bytes));
    backing.completed(&mut Vec::new());
    let cache = MemoryDisk::new(4 << 20).open();
    let (mut engine, _) = Engine::open(Box::new(cache), EngineConfig::default(), true).unwrap();
    engine.add(VolumeConfig::new("disk"), Box::new(backing)).unwrap();
    engine.begin_service().unwrap();
    drop(engine);
    store.crash();
    assert!(
        store.with_bytes(|bytes| bytes[..4096].iter().all(|byte| *byte == 7)),
        "it survives a loss of power"
    );
}
