//! Flash tier against a map of each key's newest version. Items are written, overwritten,
//! deleted and moved; the process crashes and restarts. A key is never answered with an older
//! version, and while there is room no item is missing that was admitted and announced.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod flash_world;

use std::collections::BTreeMap;

use flash_world::{Holding, World};
use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_store::flash::{FlashConfig, FlashError};
use tiermem_tier::block::{BlockIo, Faults, Faulty, MemoryDisk};

/// A device that does what it was asked some time later.
fn lagging(disk: &MemoryDisk, seed: u64) -> Box<dyn BlockIo> {
    let mut rng = Rng::seeded(seed);
    Holding::over(disk, move |_| rng.below(3) > 0)
}

const SEGMENT_BYTES: u32 = 64 << 10;

/// The database of all keys here.
const DB: u8 = 3;

fn config(region_bytes: u64) -> FlashConfig {
    flash_world::config(region_bytes, SEGMENT_BYTES)
}

/// A value that says which version it is, `len` bytes beside that.
fn value(version: u64, len: usize) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.extend((0..len).map(|at| (at as u64 ^ version) as u8));
    value
}

#[derive(Clone, Debug)]
enum Step {
    Put(u32, usize),
    Delete(u32),
    Get(u32),
    Advance,
    Settle,
    Kill,
    Close,
}

fn steps(keys: u32) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        60 => (0..keys, prop_oneof![8 => 0usize..2000, 1 => 2000usize..60_000]).prop_map(|(key, len)| Step::Put(key, len)),
        10 => (0..keys).prop_map(Step::Delete),
        30 => (0..keys).prop_map(Step::Get),
        10 => Just(Step::Advance),
        2 => Just(Step::Settle),
        1 => Just(Step::Kill),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 1..1500)
}

/// Runs the steps; `roomy`: nothing may be missing that was settled.
fn run(steps: Vec<Step>, region_bytes: u64, roomy: bool) {
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(lagging(&disk, 0), config(region_bytes)).unwrap();
    // Per key its newest version, and whether that must be there.
    let mut model: BTreeMap<u32, (Vec<u8>, bool)> = BTreeMap::new();
    let settle = |world: &mut World, model: &mut BTreeMap<u32, (Vec<u8>, bool)>| {
        world.settle();
        model.values_mut().for_each(|(_, settled)| *settled = true);
    };
    for (version, step) in steps.into_iter().enumerate() {
        match step {
            Step::Put(key, len) => {
                let value = value(version as u64, len);
                let mut tries = 0;
                while !world.offer(DB, key, &value, None) {
                    world.advance();
                    tries += 1;
                    assert!(tries < 1000 || !roomy, "there is room");
                    if tries == 1000 {
                        break;
                    }
                }
                model.insert(key, (value, false));
            }
            Step::Delete(key) => {
                world.delete(DB, key);
                model.remove(&key);
            }
            Step::Get(key) => check(&mut world, &model, key, roomy, true),
            Step::Advance => world.advance(),
            Step::Settle => settle(&mut world, &mut model),
            Step::Kill | Step::Close => {
                world.flash.commit();
                if matches!(step, Step::Close) {
                    world.close().unwrap();
                    model.values_mut().for_each(|(_, settled)| *settled = true);
                }
                let config = world.config.clone();
                drop(world);
                world = World::open(lagging(&disk, version as u64), config).unwrap();
                for &key in &model.keys().copied().collect::<Vec<_>>() {
                    check(&mut world, &model, key, roomy, false);
                }
                // What was not announced is lost, and stays lost.
                let found: Vec<u32> =
                    model.keys().copied().filter(|&key| world.place(world.hash(DB, key)).is_some()).collect();
                model.retain(|key, _| found.contains(key));
                let items: u64 = world.flash.items().iter().sum();
                assert_eq!(items, world.indexed());
            }
        }
    }
    if roomy {
        assert_eq!(world.stats().log.evictions, 0, "nothing is evicted while there is room");
    }
}

/// `running`: it was not restarted since the put, so even what is not announced must be there.
fn check(world: &mut World, model: &BTreeMap<u32, (Vec<u8>, bool)>, key: u32, roomy: bool, running: bool) {
    let found = world.get(DB, key);
    match (model.get(&key), found) {
        (Some((newest, _)), Some(found)) => assert!(*newest == found, "key {key}: an older version"),
        (Some((_, settled)), None) => assert!(!roomy || !(*settled || running), "key {key} is missing"),
        (None, Some(_)) => panic!("key {key} is back from the dead"),
        (None, None) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Thirty keys of at most 60 KB in 3 MB: garbage has to be collected, nothing has to be evicted.
    #[test]
    fn with_room_nothing_is_lost(steps in steps(30)) {
        run(steps, 3 << 20, true);
    }

    /// Eight hundred keys in 2 MB: most are evicted, none is answered wrongly.
    #[test]
    fn without_room_nothing_is_answered_wrongly(steps in steps(800)) {
        run(steps, 2 << 20, false);
    }
}

#[test]
fn more_data_than_the_journal_holds_go_through_checkpoints() {
    let region_bytes = 8 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), config(region_bytes)).unwrap();
    let mut newest = BTreeMap::new();
    for version in 0..60_000u64 {
        let key = (version * 7919 % 5000) as u32;
        let value = value(version, 100);
        while !world.offer(DB, key, &value, None) {
            world.advance();
        }
        newest.insert(key, value);
        if version % 16 == 0 {
            world.advance();
            world.flash.commit();
        }
        if version % 20_011 == 0 {
            world.settle();
            let config = world.config.clone();
            drop(world);
            world = World::open(Box::new(disk.open()), config).unwrap();
            assert_eq!(world.indexed(), newest.len() as u64);
        }
    }
    let stats = world.stats();
    assert!(stats.checkpoints > 2 && stats.journal_overruns == 0, "{stats:?}");
    assert_eq!(stats.log.evictions, 0);
    for (key, value) in newest {
        assert_eq!(world.get(DB, key), Some(value));
    }
}

/// Where a write failed, what lay there before is still there: an older version of the same key at the same place.
#[test]
fn leftovers_of_an_earlier_filling_are_not_taken_for_the_item() {
    let region_bytes = 1 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut written = 0;
    for seed in 0..4 {
        let faults = Faults { write_error: 0.3, ..Faults::default() };
        let io = Faulty::new(disk.open(), faults, Rng::seeded(seed));
        let Ok(mut world) = World::open(Box::new(io), config(region_bytes)) else { continue };
        for version in 0..20_000u64 {
            let newest = value(seed << 32 | version, 984);
            if world.offer(DB, 0, &newest, None) {
                written += 1;
            }
            world.advance();
            if version % 97 == 0 {
                // Its segment leaves memory, so that the device is asked.
                (1..80).for_each(|key| {
                    world.offer(DB, key, &[0; 992], None);
                    world.advance();
                });
                let found = world.get(DB, 0);
                assert!(found.is_none_or(|found| found == newest), "version {version}");
            }
        }
    }
    assert!(written > 10_000);
}

#[test]
fn expired_items_go_when_their_segment_is_emptied() {
    let region_bytes = 3 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), config(region_bytes)).unwrap();
    for key in 0..8000 {
        let expires_at_ms = (key % 2 == 0).then_some(500);
        while !world.offer(DB, key, &[7; 400], expires_at_ms) {
            world.advance();
        }
        world.advance();
    }
    assert!(world.gone > 2000);
    assert!(world.stats().log.evictions > 0);
}

#[test]
fn another_boot_another_size_another_owner() {
    let region_bytes = 4 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let open = |config: FlashConfig| World::open(Box::new(disk.open()), config);
    let fill = |world: &mut World| {
        (0..50).for_each(|key| assert!(world.offer(DB, key, &[1; 100], None)));
        world.settle();
    };
    let mut world = open(config(region_bytes)).unwrap();
    fill(&mut world);
    drop(world);
    // The machine itself died: what is on the device may be older than what was acknowledged.
    let mut world = open(FlashConfig { boot_id: [9; 16], ..config(region_bytes) }).unwrap();
    assert_eq!(world.indexed(), 0);
    fill(&mut world);
    world.close().unwrap();
    // Closed in order, it survives the machine.
    let world = open(config(region_bytes)).unwrap();
    assert_eq!(world.indexed(), 50);
    drop(world);
    let other = FlashConfig { shards: 2, ..config(region_bytes) };
    assert!(matches!(open(other), Err(FlashError::Mismatch { .. })));
    let cut = FlashConfig { found_bytes: Some(region_bytes - 1), ..config(region_bytes) };
    assert!(matches!(open(cut), Err(FlashError::Truncated { .. })));
    disk.with_bytes(|bytes| bytes[8] ^= 2);
    disk.with_bytes(|bytes| bytes[4096 + 8] ^= 2);
    assert!(matches!(open(config(region_bytes)), Err(FlashError::Version { .. })));
    disk.with_bytes(|bytes| bytes[..8192].fill(b'x'));
    assert!(matches!(open(config(region_bytes)), Err(FlashError::Foreign)));
    let world = open(FlashConfig { reset: true, ..config(region_bytes) }).unwrap();
    assert_eq!(world.indexed(), 0);
}

#[test]
fn a_database_can_be_flushed_and_stays_so() {
    let region_bytes = 4 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), config(region_bytes)).unwrap();
    for key in 0..50 {
        world.offer(DB, key, &[1; 100], None);
    }
    world.settle();
    world.flush(3);
    world.offer(DB, 7, &[2; 100], None);
    world.settle();
    for restart in [false, true] {
        if restart {
            let config = world.config.clone();
            drop(world);
            world = World::open(Box::new(disk.open()), config).unwrap();
        }
        assert_eq!(world.flash.items()[3], 1);
        let hash = world.hash(DB, 8);
        let (_, id) = world.ask(hash);
        (0..10).for_each(|_| world.advance());
        let item = world.flash.take(id).unwrap();
        assert!(world.flash.is_flushed(&item.header));
        assert_eq!(world.get(DB, 7), Some(vec![2; 100]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// A device that fails, tears, reorders and flips bits costs misses, never a wrong answer and never a panic.
    #[test]
    fn a_faulty_device_costs_misses(seed in any::<u64>(), steps in steps(300)) {
        let region_bytes = 4 << 20;
        let disk = MemoryDisk::new(region_bytes as usize);
        let faults = Faults {
            read_error: 0.05,
            write_error: 0.05,
            torn_write: 0.1,
            torn_write_reported_done: seed % 2 == 0,
            flipped_read: 0.1,
            delayed: 0.3,
            ..Faults::default()
        };
        let io = Faulty::new(disk.open(), faults, Rng::seeded(seed));
        let Ok(mut world) = World::open(Box::new(io), config(region_bytes)) else { return Ok(()) };
        let mut model: BTreeMap<u32, (Vec<u8>, bool)> = BTreeMap::new();
        for (version, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put(key, len) => {
                    let value = value(version as u64, len);
                    for _ in 0..50 {
                        if world.offer(DB, key, &value, None) {
                            break;
                        }
                        world.advance();
                    }
                    model.insert(key, (value, false));
                }
                Step::Delete(key) => {
                    world.delete(DB, key);
                    model.remove(&key);
                }
                Step::Get(key) => check(&mut world, &model, key, false, true),
                Step::Advance | Step::Close => world.advance(),
                Step::Settle | Step::Kill => world.settle(),
            }
        }
    }
}
