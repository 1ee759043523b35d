//! A flash tier that grows: nothing that lies there is lost or moves, whenever the process dies, and two shards never write to the
//! same bytes.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod flash_world;

use std::collections::BTreeMap;

use flash_world::World;
use tiermem_base::Rng;
use tiermem_policy::log::CannotGrow;
use tiermem_store::flash::growth::{self, device_bytes};
use tiermem_store::flash::{Durability, FlashConfig, FlashError, SharedGrowths};
use tiermem_tier::block::{Immediate, MemoryDisk};

const SEGMENT_BYTES: u32 = 64 << 10;
const REGION_BYTES: u64 = 2 << 20;
const SHARDS: u32 = 2;
const DB: u8 = 3;

/// What each shard's keys should have.
type Known = [BTreeMap<u32, u64>; SHARDS as usize];

/// The shards over one disk, as one start opens them.
fn open(disk: &MemoryDisk, life: u64) -> Vec<World> {
    let growths = SharedGrowths::default();
    let config = |shard| FlashConfig {
        shard,
        shards: SHARDS,
        start: u64::from(shard) * REGION_BYTES,
        growths: growths.clone(),
        hash_seed: 5 + (life << 33) + u64::from(shard),
        ..flash_world::config(REGION_BYTES, SEGMENT_BYTES)
    };
    (0..SHARDS).map(|shard| World::open(Box::new(disk.open()), config(shard)).unwrap()).collect()
}

fn grow(world: &mut World, capacity_bytes: u64) -> Result<(), FlashError> {
    growth::grow(&mut world.flash, &mut world.shard, capacity_bytes)
}

fn grow_at_start(worlds: &mut [World], capacity_bytes: u64) {
    for world in worlds {
        growth::grow_at_start(&mut world.flash, &mut world.shard, capacity_bytes).unwrap();
    }
}

fn segments(world: &World) -> u32 {
    world.shard.log().unwrap().log().config().segments
}

fn put(world: &mut World, known: &mut BTreeMap<u32, u64>, key: u32, version: u64) {
    let value: Vec<u8> = version.to_le_bytes().repeat(120);
    world.put(DB, key, &value);
    known.insert(key, version);
}

/// Everything is there, and what it should be.
fn check(worlds: &mut [World], known: &Known, when: &str) {
    for (shard, (world, known)) in worlds.iter_mut().zip(known).enumerate() {
        for (&key, &version) in known {
            let value = world.get(DB, key);
            assert_eq!(value, Some(version.to_le_bytes().repeat(120)), "{when}: key {key} of shard {shard}");
        }
    }
}

/// Writes until live items take `share` of the room, then overwrites at random, so that each segment is used.
fn work(worlds: &mut [World], known: &mut Known, share: f64, rng: &mut Rng) {
    for (world, known) in worlds.iter_mut().zip(known) {
        let room = world.shard.log().unwrap().log().room_bytes() as f64 * share;
        let keys = (room / 1020.0) as u32;
        for step in 0..3 * keys {
            let key = if step < keys { step } else { rng.below(keys.into()) as u32 };
            put(world, known, key, rng.next_u64());
            world.advance();
        }
        world.settle();
        assert_eq!((world.gone, world.stats().log.evictions), (0, 0), "there is room");
    }
}

fn capacity(segments: u64) -> u64 {
    u64::from(SHARDS) * (REGION_BYTES + segments * u64::from(SEGMENT_BYTES))
}

#[test]
fn what_lies_there_stays_and_what_comes_is_found_after_a_kill() {
    let disk = MemoryDisk::new(capacity(0) as usize);
    let (mut known, mut rng) = (Known::default(), Rng::seeded(1));
    let mut worlds = open(&disk, 0);
    for life in 0..4u64 {
        work(&mut worlds, &mut known, 0.6, &mut rng);
        let before = segments(&worlds[0]);
        // Less than one more segment for each is no growth, and nothing changes.
        let [first, ..] = &mut worlds[..] else { unreachable!() };
        let (has, least) = (device_bytes(&first.flash), u64::from(SHARDS * SEGMENT_BYTES));
        assert!(matches!(grow(first, has - 1), Err(FlashError::CannotGrow(CannotGrow::Smaller(_)))));
        grow(first, has).unwrap();
        grow(first, has + least - 1).unwrap();
        assert_eq!(device_bytes(&first.flash), has);
        assert_eq!(disk.with_bytes(|bytes| bytes.len()) as u64, has);
        // Rounded down to whole segments, of each in turn while the other works on.
        for at in 0..worlds.len() {
            grow(&mut worlds[at], has + 9 * least + least / 2).unwrap();
            assert_eq!(device_bytes(&worlds[at].flash), has + 9 * least);
            let before: Vec<u64> = worlds.iter().map(|world| world.stats().capacity_bytes).collect();
            work(&mut worlds, &mut known, 0.6, &mut rng);
            assert_eq!(before, worlds.iter().map(|world| world.stats().capacity_bytes).collect::<Vec<_>>());
        }
        assert_eq!(worlds.iter().map(segments).collect::<Vec<_>>(), [before + 9; 2]);
        assert_eq!(worlds.iter().map(|it| it.stats().capacity_bytes).sum::<u64>(), has + 9 * least);
        check(&mut worlds, &known, "after growth");
        drop(worlds);
        worlds = open(&disk, life + 1);
        // The configuration says what it said at first: the tier keeps what it has.
        grow_at_start(&mut worlds, capacity(0));
        assert_eq!(device_bytes(&worlds[0].flash), has + 9 * least);
        check(&mut worlds, &known, "after a kill");
    }
}

/// The process dies before, amid and behind each step of a growth: the file is extended, the first shard has noted it, the other
/// has. Whatever the next start asks for, nothing is lost, and no two shards come to the same bytes.
#[test]
fn a_kill_amid_a_growth_loses_nothing() {
    for steps in 0..=3usize {
        for asks in [0, 5, 8, 11] {
            let when = format!("{steps} steps of growth, then {asks} segments");
            let disk = MemoryDisk::new(capacity(0) as usize);
            let (mut known, mut rng) = (Known::default(), Rng::seeded(7));
            let mut worlds = open(&disk, 0);
            grow(&mut worlds[0], capacity(2)).unwrap();
            grow(&mut worlds[1], capacity(2)).unwrap();
            work(&mut worlds, &mut known, 0.7, &mut rng);
            if steps > 0 {
                disk.with_bytes(|bytes| assert_eq!(bytes.len() as u64, capacity(2)));
                tiermem_tier::block::BlockIo::grow(&mut disk.open(), capacity(8)).unwrap();
            }
            for world in worlds.iter_mut().take(steps.saturating_sub(1)) {
                grow(world, capacity(8)).unwrap();
            }
            work(&mut worlds, &mut known, 0.7, &mut rng);
            drop(worlds);
            let mut worlds = open(&disk, 1);
            grow_at_start(&mut worlds, capacity(asks));
            let has = if steps < 2 { asks.max(2) } else { asks.max(8) };
            assert_eq!(device_bytes(&worlds[0].flash), capacity(has), "{when}");
            assert_eq!(device_bytes(&worlds[1].flash), capacity(has), "{when}");
            check(&mut worlds, &known, &when);
            work(&mut worlds, &mut known, 0.7, &mut rng);
            check(&mut worlds, &known, &when);
            drop(worlds);
            let mut worlds = open(&disk, 2);
            grow_at_start(&mut worlds, capacity(0));
            check(&mut worlds, &known, &when);
        }
    }
}

/// Everything acknowledged and synced before power is lost, and what came to the new segments since.
#[test]
fn power_loss_behind_a_growth_loses_nothing() {
    for seed in 0..20 {
        let disk = MemoryDisk::new(REGION_BYTES as usize);
        let config =
            FlashConfig { durability: Durability::Power, ..flash_world::config(REGION_BYTES, SEGMENT_BYTES) };
        let mut rng = Rng::seeded(seed);
        let mut known = BTreeMap::new();
        let mut world = World::open(Box::new(disk.open()), config.clone()).unwrap();
        (0..200).for_each(|key| put(&mut world, &mut known, key, rng.next_u64()));
        world.settle();
        grow(&mut world, 2 * REGION_BYTES).unwrap();
        (200..1900).for_each(|key| {
            put(&mut world, &mut known, key, rng.next_u64());
            world.advance();
        });
        world.settle();
        world.settle();
        drop(world);
        disk.lose_some_unsynced(&mut rng);
        let config =
            FlashConfig { boot_id: [2; 16], growths: SharedGrowths::default(), hash_seed: 99, ..config };
        let mut world = World::open(Box::new(disk.open()), config).unwrap();
        assert_eq!(device_bytes(&world.flash), 2 * REGION_BYTES / 4096 * 4096, "seed {seed}");
        let lost = known.iter().filter(|(key, version)| {
            world.get(DB, **key).is_none_or(|value| value[..8] != version.to_le_bytes())
        });
        assert_eq!(lost.count(), 0, "seed {seed}");
    }
}

/// A file that has become shorter than it had grown to, and regions of a build from before growth.
#[test]
fn a_shortened_file_is_refused_and_one_that_never_grew_is_of_the_first_version() {
    let disk = MemoryDisk::new(REGION_BYTES as usize);
    let config = flash_world::config(REGION_BYTES, SEGMENT_BYTES);
    let version = || disk.with_bytes(|bytes| [bytes[8], bytes[4096 + 8]]);
    let mut world = World::open(Box::new(disk.open()), config.clone()).unwrap();
    assert_eq!(version(), [1, 1]);
    grow(&mut world, REGION_BYTES + 3 * u64::from(SEGMENT_BYTES)).unwrap();
    assert!(version().contains(&2));
    drop(world);
    let whole = REGION_BYTES + 3 * u64::from(SEGMENT_BYTES);
    let open = |found_bytes| {
        let config = FlashConfig { found_bytes: Some(found_bytes), ..config.clone() };
        let io: Box<Immediate> = Box::new(disk.open());
        World::open(io, config)
    };
    let Err(FlashError::Truncated { region_bytes, .. }) = open(whole - 1) else {
        panic!("a part is missing")
    };
    assert_eq!(region_bytes, whole);
    assert_eq!(segments(&open(whole).unwrap()), segments(&open(whole + 1).unwrap()));
}
