//! Attacks on the flash tier: restarts from damaged images, deaths in the middle
//! of a checkpoint, delayed reads, and requests for more than may be read at once.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod flash_world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flash_world::{Holding, World, config};
use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_policy::shard::Staged;
use tiermem_store::flash::format::{BLOCK_BYTES, Layout, Superblock};
use tiermem_tier::block::{BlockIo, Faults, Faulty, MemoryDisk, Op};

const SEGMENT_BYTES: u32 = 64 << 10;

fn value(version: u64, len: usize) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.resize(len.max(8), version as u8);
    value
}

/// A victim is filled anew only when its survivors are on the device: what lay there must outlive a death in between.
#[test]
fn survivors_are_safe_before_their_old_segment_is_filled_anew() {
    let region_bytes = 4 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let shut = Arc::new(AtomicBool::new(false));
    let gate = shut.clone();
    let device = Holding::over(&disk, move |request| request.op == Op::Write && gate.load(Ordering::Relaxed));
    let mut world = World::open(device, config(region_bytes, SEGMENT_BYTES)).unwrap();
    let mut rng = Rng::seeded(4);
    let mut newest = BTreeMap::new();
    for version in 0..12_000u64 {
        let key = if version < 1500 { version as u32 } else { rng.below(1500) as u32 };
        let value = value(version, 1000);
        world.put(3, key, &value);
        newest.insert(key, value);
        world.advance();
        world.flash.commit();
    }
    world.settle();
    assert_eq!((world.stats().log.evictions, world.items()), (0, 1500));
    let emptied = world.stats().log.kept;
    shut.store(true, Ordering::Relaxed);
    // New keys, so that segments are wanted and survivors move.
    for key in 10_000..12_000 {
        if !world.offer(3, key, &value(1, 1000), None) {
            break;
        }
        (0..20).for_each(|_| world.advance());
        world.flash.commit();
    }
    assert!(world.stats().log.kept > emptied, "survivors were on their way");
    let mut world = world.restart(&disk);
    for (&key, value) in &newest {
        assert_eq!(world.get(3, key).as_ref(), Some(value), "key {key}");
    }
}

/// Power loss may spoil a sector and leave the rest of its page: emptying a segment keeps all that reading finds.
#[test]
fn what_stands_behind_a_damaged_item_survives() {
    const KEYS: u32 = 10_000;
    let region_bytes = 4 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), config(region_bytes, SEGMENT_BYTES)).unwrap();
    (0..KEYS).for_each(|key| world.put(3, key, &value(1, 200)));
    world.settle();
    // So that none is read from memory.
    let mut world = world.restart(&disk);
    let layout = Layout::divide(0, region_bytes, SEGMENT_BYTES).unwrap();
    disk.with_bytes(|bytes| {
        let segments = &mut bytes[layout.segment(0) as usize..];
        segments.chunks_mut(BLOCK_BYTES).for_each(|block| block[1000] ^= 1);
    });
    let kept: Vec<u32> = (0..KEYS).filter(|&key| world.get(3, key).is_some()).collect();
    assert!((8000..9900).contains(&kept.len()), "{} are whole", kept.len());
    // All but every tenth are overwritten at random, until no segment is left that was there.
    let mut rng = Rng::seeded(4);
    for version in 2..60_000 {
        let key = rng.below(u64::from(KEYS)) as u32;
        if !key.is_multiple_of(10) {
            world.put(3, key, &value(version, 200));
            world.advance();
        }
    }
    world.settle();
    let stats = world.stats();
    assert!(stats.log.kept > 0 && stats.log.evictions == 0, "{stats:?}");
    for key in kept.into_iter().filter(|key| key % 10 == 0) {
        assert_eq!(world.get(3, key), Some(value(1, 200)), "key {key}");
    }
}

/// Overwrites until this number of checkpoints have begun and one is under way.
fn churn_into_checkpoint(world: &mut World, version: &mut u64) {
    let before = world.stats().checkpoint_bytes;
    while world.stats().checkpoint_bytes == before {
        *version += 1;
        world.put(3, (*version % 2000) as u32, &value(*version, 60));
        if version.is_multiple_of(7) {
            world.advance();
        }
        world.flash.commit();
    }
}

/// A process dies while a checkpoint is under way; the next one fills the journal once more and dies as well. What the
/// first one deleted must not be back.
#[test]
fn a_second_death_before_the_first_checkpoint_brings_nothing_back() {
    let region_bytes = 16 << 20;
    for stop in 0..12 {
        let disk = MemoryDisk::new(region_bytes as usize);
        let mut world = World::open(Box::new(disk.open()), config(region_bytes, SEGMENT_BYTES)).unwrap();
        let mut newest = BTreeMap::new();
        let mut version = 0u64;
        // Enough records between two deaths for journal halves to end everywhere between them.
        for life in 0..8 {
            for _ in 0..3000 + 1700 * stop {
                version += 1;
                let key = (version * 7919 % 3000) as u32;
                if version.is_multiple_of(5) {
                    world.delete(3, key);
                    newest.remove(&key);
                } else {
                    let value = value(version, 60);
                    world.put(3, key, &value);
                    newest.insert(key, value);
                }
                if version.is_multiple_of(16) {
                    world.advance();
                }
                world.flash.commit();
            }
            world = world.restart(&disk);
            assert!(world.stats().journal_overruns == 0);
            for key in 0..3000 {
                let found = world.get(3, key);
                let expected = newest.get(&key);
                assert!(found.is_none() || found.as_ref() == expected, "stop {stop} life {life} key {key}");
                if found.is_none() {
                    newest.remove(&key);
                }
            }
            assert_eq!(world.items(), newest.len() as u64, "stop {stop} life {life}");
        }
    }
}

/// Counts per database are right after a restart that follows any flush, move or checkpoint.
#[test]
fn a_restart_counts_as_the_process_before_it_did() {
    let region_bytes = 8 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), config(region_bytes, SEGMENT_BYTES)).unwrap();
    let mut rng = Rng::seeded(9);
    let mut model: BTreeMap<(u8, u32), Vec<u8>> = BTreeMap::new();
    for version in 0..120_000u64 {
        let (db, key) = (rng.below(3) as u8, rng.below(1500) as u32);
        match rng.below(4000) {
            0 => {
                world.flush(db);
                model.retain(|&(of, _), _| of != db);
            }
            1..400 => {
                world.delete(db, key);
                model.remove(&(db, key));
            }
            _ => {
                let value = value(version, 100);
                world.put(db, key, &value);
                model.insert((db, key), value);
            }
        }
        if version % 16 == 0 {
            world.advance();
            world.flash.commit();
        }
        if version % 9973 == 0 {
            world.settle();
            let before = *world.flash.items();
            for (db, items) in before.iter().enumerate() {
                let expected = model.keys().filter(|&&(of, _)| usize::from(of) == db).count();
                assert_eq!(*items, expected as u64, "database {db} before");
            }
            world = world.restart(&disk);
            assert_eq!(*world.flash.items(), before);
        }
    }
    assert!(world.stats().log.evictions == 0);
    for (&(db, key), value) in &model {
        assert_eq!(world.get(db, key).as_ref(), Some(value));
    }
}

/// An answer that waits while its key is written anew, to the same block of the same segment, must not be taken.
#[test]
fn an_answer_that_waited_is_not_older_than_the_key() {
    let region_bytes = 4 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), config(region_bytes, SEGMENT_BYTES)).unwrap();
    world.put(3, 0, b"old");
    let hash = world.hash(3, 0);
    let (away, id) = world.ask(hash);
    world.put(3, 0, b"new");
    assert!(world.place(hash).unwrap().is_same(away.place));
    assert_eq!(world.shard.stage(&away), Staged::Here);
    assert_eq!(world.flash.take(id).unwrap().value(), b"new");
    // Again over a whole turn of the log: the segment is filled anew with the key at the same block.
    world.settle();
    let (away, _) = world.ask(hash);
    for version in 0..20_000 {
        world.put(3, 1 + version % 50, &[7; 1000]);
        world.put(3, 0, &value(u64::from(version), 1000));
        world.advance();
        assert_eq!(world.shard.stage(&away), Staged::Elsewhere);
    }
}

/// More bytes than may be read at once, wanted by one request and by several at the same time.
#[test]
fn requests_for_more_than_the_bound_are_answered() {
    let (region_bytes, segment_bytes) = (256 << 20, 2 << 20);
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), config(region_bytes, segment_bytes)).unwrap();
    for key in 0..90 {
        world.put(0, key, &value(u64::from(key), 1 << 20));
        world.settle();
    }
    let asked: Vec<_> = (0..80)
        .map(|key| {
            let hash = world.hash(0, key);
            (key, world.ask(hash).1)
        })
        .collect();
    // No answer is taken before the request has all of them.
    for _ in 0..200 {
        world.advance();
    }
    for (key, id) in asked {
        assert!(world.flash.is_ready(id, None), "key {key} is waited for in vain");
        assert_eq!(world.flash.take(id).unwrap().value(), value(u64::from(key), 1 << 20));
    }
    assert_eq!(world.stats().buffer_bytes % u64::from(segment_bytes), 0, "all buffers are given back");
}

/// Items of more than half a segment, one to each: what the accounts take for room is none.
#[test]
fn items_of_half_a_segment_do_not_stop_writers() {
    let region_bytes = 4 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), config(region_bytes, SEGMENT_BYTES)).unwrap();
    for key in 0..400 {
        world.put(0, key, &value(1, 36_000));
        world.advance();
    }
}

/// Small items with checkpoints that take more of the log than its reserve.
#[test]
fn checkpoints_of_small_items_do_not_stop_writers() {
    let region_bytes = 8 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), config(region_bytes, SEGMENT_BYTES)).unwrap();
    for version in 0..600_000u64 {
        world.put(0, (version * 7919 % 100_000) as u32, &[0; 60]);
        if version % 16 == 0 {
            world.advance();
            world.flash.commit();
        }
    }
    let stats = world.stats();
    assert!(stats.checkpoints > 3 && stats.journal_overruns == 0, "{stats:?}");
}

/// After a flush, and after a checkpoint that cannot be read, new items are not taken for flushed ones.
#[test]
fn what_comes_after_a_flush_and_a_damaged_checkpoint_is_there() {
    let region_bytes = 8 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), config(region_bytes, SEGMENT_BYTES)).unwrap();
    let mut version = 0;
    churn_into_checkpoint(&mut world, &mut version);
    world.flush(3);
    churn_into_checkpoint(&mut world, &mut version);
    world.settle();
    world.close().unwrap();
    let layout = Layout::divide(0, region_bytes, SEGMENT_BYTES).unwrap();
    disk.with_bytes(|bytes| {
        let block = |which: usize| bytes[which * BLOCK_BYTES..][..BLOCK_BYTES].try_into().unwrap();
        let newest = (0..2).filter_map(|which| Superblock::read(&block(which)).unwrap());
        let checkpoint = newest.max_by_key(|it| it.epoch).unwrap().checkpoint;
        bytes[layout.segment(checkpoint) as usize + 70] ^= 1;
    });
    let mut world = world.restart(&disk);
    assert_eq!((world.items(), world.indexed()), (0, 0));
    for key in 0..50 {
        world.put(3, key, b"after");
    }
    world.settle();
    for restart in [false, true] {
        if restart {
            world = world.restart(&disk);
        }
        assert_eq!(world.items(), 50);
        (0..50).for_each(|key| assert_eq!(world.get(3, key).as_deref(), Some(b"after".as_slice())));
    }
}

/// A device on which checkpoints fail now and then, and a process that dies often: no deleted key comes back.
#[test]
fn failed_checkpoints_bring_nothing_back() {
    let region_bytes = 8 << 20;
    for seed in 0..6 {
        let disk = MemoryDisk::new(region_bytes as usize);
        let faulty = |life: u64| -> Box<dyn BlockIo> {
            let faults = Faults { write_error: 0.02, ..Faults::default() };
            Box::new(Faulty::new(disk.open(), faults, Rng::seeded(seed << 8 | life)))
        };
        let mut newest = BTreeMap::new();
        let mut version = 0u64;
        for life in 0..12 {
            let opened = World::open(faulty(life), config(region_bytes, SEGMENT_BYTES));
            let Ok(mut world) = opened else { continue };
            for key in 0..1000 {
                let found = world.get(3, key);
                assert!(
                    found.is_none() || found.as_ref() == newest.get(&key),
                    "seed {seed} life {life} key {key}"
                );
            }
            for _ in 0..7000 {
                version += 1;
                let key = (version * 7919 % 1000) as u32;
                if version.is_multiple_of(3) {
                    world.delete(3, key);
                    newest.remove(&key);
                } else {
                    let value = value(version, 60);
                    let taken = (0..50).any(|_| {
                        world.advance();
                        world.offer(3, key, &value, None)
                    });
                    if taken {
                        newest.insert(key, value);
                    } else {
                        newest.remove(&key);
                    }
                }
                world.flash.commit();
            }
        }
    }
}

/// Damage to an image.
#[derive(Clone, Debug)]
enum Harm {
    Flip(prop::sample::Index, u8),
    Zero(prop::sample::Index, usize),
    Noise(prop::sample::Index, usize, u8),
    /// Two stretches of blocks change places.
    Swap(prop::sample::Index, prop::sample::Index, usize),
}

fn harms() -> impl Strategy<Value = Vec<Harm>> {
    let at = any::<prop::sample::Index>;
    let harm = prop_oneof![
        3 => (at(), 0u8..8).prop_map(|(at, bit)| Harm::Flip(at, bit)),
        1 => (at(), 1usize..20_000).prop_map(|(at, len)| Harm::Zero(at, len)),
        1 => (at(), 1usize..5000, any::<u8>()).prop_map(|(at, len, seed)| Harm::Noise(at, len, seed)),
        1 => (at(), at(), 1usize..20).prop_map(|(a, b, blocks)| Harm::Swap(a, b, blocks)),
    ];
    prop::collection::vec(harm, 1..30)
}

fn harm(bytes: &mut [u8], harm: &Harm) {
    let blocks = bytes.len() / BLOCK_BYTES;
    match *harm {
        Harm::Flip(at, bit) => {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        Harm::Zero(at, len) => {
            let at = at.index(bytes.len());
            bytes[at..].iter_mut().take(len).for_each(|it| *it = 0);
        }
        Harm::Noise(at, len, seed) => {
            let mut rng = Rng::seeded(seed.into());
            let at = at.index(bytes.len());
            bytes[at..].iter_mut().take(len).for_each(|it| *it = rng.below(256) as u8);
        }
        Harm::Swap(a, b, count) => {
            let (a, b) = (a.index(blocks), b.index(blocks));
            for block in 0..count.min(blocks - a.max(b)) * BLOCK_BYTES {
                bytes.swap(a * BLOCK_BYTES + block, b * BLOCK_BYTES + block);
            }
        }
    }
}

/// The newest value of each key, by database and number.
type Newest = BTreeMap<(u8, u32), Vec<u8>>;

/// A region with several checkpoints, deletions and a flushed database behind it, and what is true of its keys.
fn lived_in(region_bytes: u64) -> (Vec<u8>, Newest) {
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), config(region_bytes, SEGMENT_BYTES)).unwrap();
    let mut model = BTreeMap::new();
    for version in 0..25_000u64 {
        let (db, key) = ((version % 3) as u8, (version * 7919 % 1500) as u32);
        if version.is_multiple_of(5) {
            world.delete(db, key);
            model.remove(&(db, key));
        } else {
            let value = value(version, 80 + 900 * usize::from(version.is_multiple_of(50)));
            world.put(db, key, &value);
            model.insert((db, key), value);
        }
        if version == 20_000 {
            world.flush(1);
            model.retain(|&(db, _), _| db != 1);
        }
        if version.is_multiple_of(16) {
            world.advance();
            world.flash.commit();
        }
    }
    world.settle();
    assert!(world.stats().checkpoints > 1);
    drop(world);
    (disk.with_bytes(|bytes| bytes.to_vec()), model)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Bytes flipped, lost, overwritten and exchanged: an error, or fewer items; never a panic, never a value that no one
    /// ever wrote to its key. The part of the image that is harmed is drawn so that each kind of structure gets its share.
    #[test]
    fn a_spoiled_image_costs_items_and_nothing_else(harms in harms(), part in 0usize..4) {
        thread_local!(static LIVED_IN: (Vec<u8>, Newest) = lived_in(4 << 20));
        let region_bytes = 4u64 << 20;
        let (image, _) = LIVED_IN.with(Clone::clone);
        let disk = MemoryDisk::new(region_bytes as usize);
        let layout = Layout::divide(0, region_bytes, SEGMENT_BYTES).unwrap();
        disk.with_bytes(|bytes| {
            bytes.copy_from_slice(&image);
            let front = layout.segment(0) as usize;
            let harmed = match part {
                0 => &mut bytes[..2 * BLOCK_BYTES],
                1 => &mut bytes[2 * BLOCK_BYTES..front],
                2 => &mut bytes[front..],
                _ => &mut bytes[..],
            };
            harms.iter().for_each(|it| harm(harmed, it));
        });
        let Ok(mut world) = World::open(Box::new(disk.open()), config(region_bytes, SEGMENT_BYTES)) else {
            return Ok(());
        };
        for db in 0..3 {
            for key in 0..1500 {
                if let Some(found) = world.get(db, key) {
                    // The key's version cannot be known where the journal itself was cut off.
                    let version = u64::from_le_bytes(found[..8].try_into().unwrap());
                    prop_assert_eq!(version * 7919 % 1500, u64::from(key));
                    prop_assert_eq!(version % 3, u64::from(db));
                    prop_assert!(!version.is_multiple_of(5) && version < 25_000);
                }
            }
        }
        // It serves on, and every segment can be emptied.
        for version in 0..6000u32 {
            world.put(2, version % 2500, &value(u64::from(version), 300));
            world.advance();
        }
        let mut world = world.restart(&disk);
        for version in 3500..6000u32 {
            if let Some(found) = world.get(2, version % 2500) {
                prop_assert_eq!(found, value(u64::from(version), 300));
            }
        }
    }
}

/// Harm to segments alone, where the journal is whole: what is found is the newest version.
#[test]
fn spoiled_segments_never_give_an_older_version() {
    let region_bytes = 4u64 << 20;
    let (image, model) = lived_in(region_bytes);
    let layout = Layout::divide(0, region_bytes, SEGMENT_BYTES).unwrap();
    let mut rng = Rng::seeded(4);
    for _ in 0..20 {
        let disk = MemoryDisk::new(region_bytes as usize);
        disk.with_bytes(|bytes| {
            bytes.copy_from_slice(&image);
            let segments = &mut bytes[layout.segment(0) as usize..];
            for _ in 0..200 {
                let at = rng.below(segments.len() as u64) as usize;
                segments[at] ^= 1 << rng.below(8);
            }
            // Blocks of one segment in the place of another's: leftovers that look like items.
            let (a, b) = (rng.below(900) as usize * BLOCK_BYTES, rng.below(900) as usize * BLOCK_BYTES);
            segments.copy_within(a..a + 16 * BLOCK_BYTES, b);
        });
        let mut world = World::open(Box::new(disk.open()), config(region_bytes, SEGMENT_BYTES)).unwrap();
        for db in 0..3 {
            for key in 0..1500 {
                let found = world.get(db, key);
                assert!(found.is_none() || found.as_ref() == model.get(&(db, key)), "{db}:{key}");
            }
        }
    }
}
