//! Power loss: the machine dies between any two steps, and of the
//! sectors written since the last sync each one is kept or lost.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod flash_world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flash_world::{World, config};
use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_store::flash::format::{Layout, NO_SEGMENT, Superblock};
use tiermem_store::flash::{Durability, FlashConfig, Moment};
use tiermem_tier::block::{
    BlockError, BlockIo, Completion, Faults, Faulty, Immediate, MemoryDisk, Op, Request, Waker,
};

const SEGMENT_BYTES: u32 = 64 << 10;
const DB: u8 = 3;

fn durable(region_bytes: u64) -> FlashConfig {
    FlashConfig { durability: Durability::Power, ..config(region_bytes, SEGMENT_BYTES) }
}

/// Acknowledged changes, and changes not acknowledged yet.
#[derive(Default)]
struct Told {
    /// The version that each key has, by all that was acknowledged; 0: none.
    acknowledged: BTreeMap<u32, u64>,
    /// What was done since, in order, each with the moment at which it may be acknowledged.
    pending: Vec<(Moment, u32, u64)>,
}

impl Told {
    fn note(&mut self, world: &mut World, key: u32, version: u64) {
        let moment = world.flash.commit();
        self.pending.push((moment, key, version));
        self.acknowledge(world);
    }

    fn acknowledge(&mut self, world: &World) {
        while let Some(&(moment, key, version)) =
            self.pending.first().filter(|it| world.flash.is_durable(it.0))
        {
            assert!(world.flash.is_durable(moment));
            self.acknowledged.insert(key, version);
            self.pending.remove(0);
        }
    }

    /// Versions with which nothing has happened since they were acknowledged.
    fn at_rest(&self) -> impl Iterator<Item = u64> {
        let pending: BTreeSet<u32> = self.pending.iter().map(|it| it.1).collect();
        let at_rest = self.acknowledged.iter().filter(move |(key, _)| !pending.contains(key));
        at_rest.map(|(_, version)| *version)
    }

    /// Whether a key may have this version after power loss. A value that never reached flash may be missing.
    fn allows(&self, key: u32, version: u64) -> bool {
        let pending = self.pending.iter().filter(|it| it.1 == key).map(|it| it.2);
        version == 0
            || self.acknowledged.get(&key) == Some(&version)
            || pending.clone().any(|it| it == version)
    }
}

fn value(version: u64, len: usize) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.resize(len.max(8), version as u8);
    value
}

fn version(world: &mut World, key: u32) -> u64 {
    world.get(DB, key).map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()))
}

/// The machine dies, and another boot opens what is left.
fn lose_power(world: World, disk: &MemoryDisk, rng: &mut Rng) -> World {
    let hash_seed = world.config.hash_seed + (9 << 33);
    let boot_id = rng.next_u64().to_le_bytes().repeat(2).try_into().unwrap();
    let config = FlashConfig { hash_seed, boot_id, ..world.config };
    // Nothing is written any more, not even what dropping it might write.
    disk.lose_some_unsynced(rng);
    drop(world.flash);
    World::open(Box::new(disk.open()), config).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Through many lives, with the region full and checkpoints on the way: nothing that was overwritten, deleted or
    /// flushed and acknowledged comes back.
    #[test]
    fn what_was_acknowledged_as_gone_stays_gone(seed in any::<u64>(), keys in 50u32..1500, lives in 2u32..12, len_max in 20u64..3000) {
        let region_bytes = 4 << 20;
        let disk = MemoryDisk::new(region_bytes as usize);
        let mut world = World::open(Box::new(disk.open()), durable(region_bytes)).unwrap();
        let mut rng = Rng::seeded(seed);
        let mut number = 0;
        let mut told = Told::default();
        let mut lengths = BTreeMap::new();
        for _ in 0..lives {
            for _ in 0..rng.below(6000) {
                number += 1;
                let key = rng.below(u64::from(keys)) as u32;
                match rng.below(1000) {
                    0 => {
                        world.flush(DB);
                        (0..keys).for_each(|key| told.pending.push((world.flash.commit(), key, 0)));
                    }
                    1..200 => {
                        world.delete(DB, key);
                        told.note(&mut world, key, 0);
                    }
                    _ => {
                        let len = 8 + rng.below(len_max);
                        lengths.insert(number, len);
                        world.put(DB, key, &value(number, len as usize));
                        told.note(&mut world, key, number);
                    }
                }
                match rng.below(100) {
                    0..30 => world.advance(),
                    30 => world.tick(),
                    _ => {}
                }
                told.acknowledge(&world);
            }
            world = lose_power(world, &disk, &mut rng);
            let kept_bytes = told.at_rest().filter_map(|number| lengths.get(&number)).sum::<u64>();
            let mut next = Told::default();
            let mut found_any = false;
            for key in 0..keys {
                let found = version(&mut world, key);
                prop_assert!(told.allows(key, found), "key {} has version {}", key, found);
                found_any |= found != 0;
                next.acknowledged.insert(key, found);
            }
            // More than memory holds of what flash does not have yet.
            prop_assert!(kept_bytes < 8 * u64::from(SEGMENT_BYTES) || found_any, "{} bytes are gone", kept_bytes);
            told = next;
        }
    }
}

#[test]
fn what_left_memory_before_the_last_sync_is_back() {
    let region_bytes = 16 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), durable(region_bytes)).unwrap();
    let mut rng = Rng::seeded(3);
    for key in 0..2000 {
        world.put(DB, key, &value(u64::from(key) + 1, 1000));
        world.advance();
    }
    world.settle();
    world.settle();
    let mut world = lose_power(world, &disk, &mut rng);
    assert_eq!(world.items(), 2000);
    for key in 0..2000 {
        assert_eq!(version(&mut world, key), u64::from(key) + 1);
    }
}

#[test]
fn survivors_of_an_emptied_segment_are_back_after_power_loss() {
    die_again_and_again(durable(4 << 20), lose_power);
}

#[test]
fn survivors_of_an_emptied_segment_are_back_after_a_kill() {
    die_again_and_again(config(4 << 20, SEGMENT_BYTES), |world, disk, _| world.restart(disk));
}

/// Survivors move between segments when death comes, again and again: they are where they were or where they went. And the
/// segments that each life had begun do not pile up.
fn die_again_and_again(config: FlashConfig, die: impl Fn(World, &MemoryDisk, &mut Rng) -> World) {
    let disk = MemoryDisk::new(config.region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), config).unwrap();
    let mut rng = Rng::seeded(1);
    // The keys that stay lie between keys that come and go, so that no segment dies as a whole.
    for key in 0..1000 {
        world.put(DB, key, &value(u64::from(key) + 1, 1000));
        world.put(DB, 5000 + key, &value(1, 1000));
        world.advance();
    }
    world.settle();
    world.settle();
    let mut kept = 0;
    for life in 0..150 {
        // Long ones too, in which segments are used again before anything asks for a sync.
        let steps = if life % 3 == 0 { 4000 } else { 60 };
        for number in 0..rng.below(steps) {
            // Small ones fill the journal, so that checkpoints are under way too.
            let len = if life % 2 == 0 { 1000 } else { 20 };
            world.put(DB, 5000 + rng.below(1000) as u32, &value(number, len));
            (0..rng.below(3)).for_each(|_| world.advance());
            if rng.below(steps) < 2 {
                // So that most of a life's work outlives it.
                world.tick();
            }
        }
        let log = world.stats().log;
        assert_eq!(log.evictions, 0);
        kept += log.kept;
        world = die(world, &disk, &mut rng);
        for key in 0..1000 {
            assert_eq!(version(&mut world, key), u64::from(key) + 1, "life {life}");
        }
    }
    assert!(kept > 1000, "{kept} survivors moved");
}

/// A device that sees to the order of what is written: a superblock names a checkpoint that is durable, and the one that the
/// durable superblock names is not written over.
struct Watched {
    inner: Immediate,
    layout: Layout,
    /// The first segment of the last checkpoint that was named, and of the last one of which that is durable.
    named: u32,
    durable: u32,
    checkpoints: Arc<AtomicU32>,
}

impl BlockIo for Watched {
    fn submit(&mut self, request: Request) {
        match request.op {
            Op::Write => {
                let segment =
                    (request.offset - self.layout.segment(0)) / u64::from(self.layout.segment_bytes);
                assert_ne!(segment, u64::from(self.durable), "a restart may need this");
            }
            Op::Sync => self.durable = self.named,
            Op::Read => {}
        }
        self.inner.submit(request);
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let superblock =
            (offset < self.layout.journal(0)).then(|| Superblock::read(bytes.try_into().unwrap()));
        if let Some(Ok(Some(superblock))) = superblock
            && superblock.checkpoint != self.named
        {
            self.named = superblock.checkpoint;
            self.checkpoints.fetch_add(1, Ordering::Relaxed);
            let (at, len) = (self.layout.segment(self.named), self.layout.segment_bytes);
            assert!(self.inner.disk().is_synced(at, u64::from(len)), "the checkpoint may be lost");
        }
        self.inner.write_at(offset, bytes)
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        self.durable = self.named;
        self.inner.sync()
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.inner.completed(out);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        self.inner.wait(out);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn notify(&mut self, waker: Waker) {
        self.inner.notify(waker);
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        self.inner.read_at(offset, bytes)
    }

    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }
}

#[test]
fn checkpoints_are_durable_before_they_are_named_and_until_the_next_one_is() {
    let region_bytes = 2 << 20;
    let layout = Layout::divide(0, region_bytes, SEGMENT_BYTES).unwrap();
    let checkpoints = Arc::new(AtomicU32::new(0));
    let inner = Immediate::new(region_bytes as usize);
    let (named, durable_at) = (NO_SEGMENT, NO_SEGMENT);
    let device = Watched { inner, layout, named, durable: durable_at, checkpoints: checkpoints.clone() };
    let mut world = World::open(Box::new(device), durable(region_bytes)).unwrap();
    let mut rng = Rng::seeded(1);
    // There is no commit, so only checkpoints cause syncs.
    for number in 0..60_000 {
        world.put(DB, rng.below(600) as u32, &value(number, 8 + rng.below(600) as usize));
        world.advance();
    }
    assert!(checkpoints.load(Ordering::Relaxed) > 5);
}

/// A run without the promise after one with it: power loss leaves nothing rather than what the second one deleted.
#[test]
fn a_run_without_the_promise_revokes_it() {
    let region_bytes = 8 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), durable(region_bytes)).unwrap();
    world.put(DB, 1, &value(1, 100));
    world.settle();
    world.close().unwrap();
    let mut world = World::open(Box::new(disk.open()), config(region_bytes, SEGMENT_BYTES)).unwrap();
    assert_eq!(version(&mut world, 1), 1);
    world.delete(DB, 1);
    world.flash.commit();
    disk.lose_unsynced();
    drop(world.flash);
    let config = FlashConfig { boot_id: [8; 16], ..durable(region_bytes) };
    let mut world = World::open(Box::new(disk.open()), config).unwrap();
    assert_eq!(version(&mut world, 1), 0);
}

/// Damage to a record that was durable is not taken for the end of the journal.
#[test]
fn a_damaged_record_that_was_durable_empties_the_region() {
    let region_bytes = 8 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), durable(region_bytes)).unwrap();
    for key in 0..100 {
        world.put(DB, key, &value(1, 500));
    }
    world.settle();
    (0..50).for_each(|key| world.delete(DB, key));
    let gone = world.flash.commit();
    world.settle();
    world.settle();
    assert!(world.flash.is_durable(gone));
    let journal = Layout::divide(0, region_bytes, SEGMENT_BYTES).unwrap().journal(0) as usize;
    // One of the deletions: the hundred and some records before them are additions and the like.
    disk.with_bytes(|bytes| bytes[journal + 130 * 16] ^= 1);
    let mut world = lose_power(world, &disk, &mut Rng::seeded(1));
    assert_eq!((0..100).filter(|&key| version(&mut world, key) != 0).count(), 0);
}

#[test]
fn a_store_that_is_left_alone_comes_to_rest() {
    let region_bytes = 8 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), durable(region_bytes)).unwrap();
    world.put(DB, 1, &value(1, 100));
    (0..5).for_each(|_| world.settle());
    let before = world.stats();
    (0..50).for_each(|_| world.settle());
    let after = world.stats();
    assert!(before.syncs > 0);
    assert_eq!((after.syncs, after.journal_bytes), (before.syncs, before.journal_bytes));
}

/// A device that cannot sync: no client waits for ever, and a restart finds nothing rather than too much.
#[test]
fn a_sync_that_fails_gives_the_promise_up() {
    let region_bytes = 8 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let faults = Faults { sync_error: 0.5, ..Faults::default() };
    // An opening needs one that succeeds.
    let mut opened = (0..50).find_map(|seed| {
        World::open(
            Box::new(Faulty::new(disk.open(), faults.clone(), Rng::seeded(seed))),
            durable(region_bytes),
        )
        .ok()
    });
    let world = opened.as_mut().unwrap();
    let mut last = Moment::default();
    for number in 0..200u32 {
        world.put(DB, number % 20, &value(u64::from(number), 500));
        world.settle();
        world.delete(DB, number % 20);
        last = world.flash.commit();
        world.settle();
    }
    assert!(world.flash.is_durable(last));
    let stats = world.stats();
    assert!(stats.unrecoverable && stats.last_error.is_some() && stats.recoverable_items == 0, "{stats:?}");
    // Nothing is there that a stop could lose, and then something is.
    assert!(world.write_back().is_ok());
    world.put(DB, 1, &value(1, 500));
    world.settle();
    assert!(world.write_back().is_err());
}
