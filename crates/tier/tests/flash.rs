//! The flash tier against a map of what each key's newest version is. Whatever is written, overwritten, deleted, moved,
//! crashed and restarted: no key is ever answered with anything but its newest version, and while there is room nothing
//! that was taken in and announced is missing.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_base::hash::trace_key;
use tiermem_policy::index::Index;
use tiermem_policy::log::Admission;
use tiermem_tier::block::{
    BlockError, BlockIo, Completion, Faults, Faulty, Immediate, MemoryDisk, Request, Waker,
};
use tiermem_tier::flash::{Flash, FlashConfig, FlashError, FlashItem, Offer, Offered};

/// A device that does what it was asked some time later and in any order; what it has not done when the process dies is
/// never done.
struct Lagging {
    inner: Immediate,
    asked: Vec<Request>,
    rng: Rng,
}

impl Lagging {
    fn boxed(disk: &MemoryDisk, seed: u64) -> Box<dyn BlockIo> {
        Box::new(Lagging { inner: disk.open(), asked: Vec::new(), rng: Rng::seeded(seed) })
    }
}

impl BlockIo for Lagging {
    fn submit(&mut self, request: Request) {
        self.asked.push(request);
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        let mut at = 0;
        while at < self.asked.len() {
            if self.rng.below(3) == 0 {
                let request = self.asked.swap_remove(at);
                self.inner.submit(request);
            } else {
                at += 1;
            }
        }
        self.inner.completed(out);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        while out.is_empty() && self.in_flight() > 0 {
            self.completed(out);
        }
    }

    fn in_flight(&self) -> usize {
        self.asked.len() + self.inner.in_flight()
    }

    fn notify(&mut self, _waker: Waker) {}

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.inner.write_at(offset, bytes)
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        self.inner.read_at(offset, bytes)
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        self.inner.sync()
    }

    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }
}

const SEGMENT_BYTES: u32 = 64 << 10;

fn hash(seed: u64, key: &[u8]) -> u64 {
    trace_key(key) ^ seed.wrapping_mul(3)
}

fn config(region_bytes: u64) -> FlashConfig {
    FlashConfig {
        start: 0,
        region_bytes,
        segment_bytes: SEGMENT_BYTES,
        admission: Admission::All,
        reserve: 0.1,
        shard: 0,
        shards: 1,
        found_bytes: None,
        reset: false,
        boot_id: [1; 16],
        uuid: [2; 16],
        hash_seed: 77 << 40 | 5,
    }
}

/// A flash tier and the index over it, as a store owns them.
struct World {
    config: FlashConfig,
    flash: Flash,
    index: Index,
    rng: Rng,
    now_ms: u64,
    gone: usize,
}

impl World {
    fn open(io: Box<dyn BlockIo>, config: FlashConfig) -> Result<World, FlashError> {
        let mut index = Index::default();
        let flash = Flash::open(io, &config, hash, &mut index)?;
        Ok(World { config, flash, index, rng: Rng::seeded(1), now_ms: 1000, gone: 0 })
    }

    fn advance(&mut self) {
        let mut gone = Vec::new();
        self.flash.advance(&mut self.index, self.now_ms, &mut self.rng, &mut gone);
        self.gone += gone.len();
    }

    /// Until the device has nothing to do and everything written is announced.
    fn settle(&mut self) {
        self.flash.tick();
        (0..100).for_each(|_| self.advance());
        self.flash.commit();
    }

    fn hash(&self, key: u32) -> u64 {
        hash(self.flash.hash_seed(), &name(key))
    }

    fn put(&mut self, key: u32, value: &[u8], expires_at_ms: Option<u64>) -> Offered {
        let hash = self.hash(key);
        // A store removes the copy on flash when a key is overwritten in memory, long before it comes here.
        self.flash.forget(&mut self.index, hash, 3);
        let bytes = [&name(key), value].concat();
        let offer = Offer {
            hash,
            db: 3,
            kind: 1,
            key_and_value: &bytes,
            key_len: name(key).len() as u16,
            expires_at_ms,
            last_used: 0,
            unchanged: false,
        };
        self.flash.offer(&mut self.index, &offer)
    }

    fn get(&mut self, key: u32) -> Option<Vec<u8>> {
        let hash = self.hash(key);
        let place = self.index.find_log(hash)?;
        let id = self.flash.ask(hash, place);
        for _ in 0..1000 {
            self.flash.submit();
            if self.flash.is_ready(id, None) {
                let item: FlashItem = self.flash.take(id)?;
                assert_eq!(item.header.db, 3);
                return (item.key() == name(key)).then(|| item.value().to_vec());
            }
            self.advance();
        }
        panic!("a question is answered");
    }
}

fn name(key: u32) -> Vec<u8> {
    format!("key:{key}").into_bytes()
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
    let mut world = World::open(Lagging::boxed(&disk, 0), config(region_bytes)).unwrap();
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
                while world.put(key, &value, None) != Offered::Taken {
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
                let hash = world.hash(key);
                world.flash.forget(&mut world.index, hash, 3);
                model.remove(&key);
            }
            Step::Get(key) => check(&mut world, &model, key, roomy, true),
            Step::Advance => world.advance(),
            Step::Settle => settle(&mut world, &mut model),
            Step::Kill | Step::Close => {
                world.flash.commit();
                if matches!(step, Step::Close) {
                    world.flash.close(&mut world.index).unwrap();
                    model.values_mut().for_each(|(_, settled)| *settled = true);
                }
                let config = world.config.clone();
                drop(world);
                world = World::open(Lagging::boxed(&disk, version as u64), config).unwrap();
                for &key in &model.keys().copied().collect::<Vec<_>>() {
                    check(&mut world, &model, key, roomy, false);
                }
                // What was not announced is lost, and stays lost.
                let found: Vec<u32> = model
                    .keys()
                    .copied()
                    .filter(|&key| world.index.find_log(world.hash(key)).is_some())
                    .collect();
                model.retain(|key, _| found.contains(key));
                let items: u64 = world.flash.items().iter().sum();
                assert_eq!(items, world.index.log_len());
            }
        }
    }
    if roomy {
        assert_eq!(world.flash.stats().log.evictions, 0, "nothing is evicted while there is room");
    }
}

/// `running`: it was not restarted since the put, so even what is not announced must be there.
fn check(world: &mut World, model: &BTreeMap<u32, (Vec<u8>, bool)>, key: u32, roomy: bool, running: bool) {
    let found = world.get(key);
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
        while world.put(key, &value, None) != Offered::Taken {
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
            assert_eq!(world.index.log_len(), newest.len() as u64);
        }
    }
    let stats = world.flash.stats();
    assert!(stats.checkpoints > 2 && stats.journal_overruns == 0, "{stats:?}");
    assert_eq!(stats.log.evictions, 0);
    for (key, value) in newest {
        assert_eq!(world.get(key), Some(value));
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
            if world.put(0, &newest, None) == Offered::Taken {
                written += 1;
            }
            world.advance();
            if version % 97 == 0 {
                // Its segment leaves memory, so that the device is asked.
                (1..80).for_each(|key| {
                    world.put(key, &[0; 992], None);
                    world.advance();
                });
                let found = world.get(0);
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
        while world.put(key, &[7; 400], expires_at_ms) != Offered::Taken {
            world.advance();
        }
        world.advance();
    }
    assert!(world.gone > 2000);
    assert!(world.flash.stats().log.evictions > 0);
}

#[test]
fn another_boot_another_size_another_owner() {
    let region_bytes = 4 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let open = |config: FlashConfig| World::open(Box::new(disk.open()), config);
    let fill = |world: &mut World| {
        (0..50).for_each(|key| assert_eq!(world.put(key, &[1; 100], None), Offered::Taken));
        world.settle();
    };
    let mut world = open(config(region_bytes)).unwrap();
    fill(&mut world);
    drop(world);
    // The machine itself died: what is on the device may be older than what was acknowledged.
    let mut world = open(FlashConfig { boot_id: [9; 16], ..config(region_bytes) }).unwrap();
    assert_eq!(world.index.log_len(), 0);
    fill(&mut world);
    world.flash.close(&mut world.index).unwrap();
    // Closed in order, it survives the machine.
    let world = open(config(region_bytes)).unwrap();
    assert_eq!(world.index.log_len(), 50);
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
    assert_eq!(world.index.log_len(), 0);
}

#[test]
fn a_database_can_be_flushed_and_stays_so() {
    let region_bytes = 4 << 20;
    let disk = MemoryDisk::new(region_bytes as usize);
    let mut world = World::open(Box::new(disk.open()), config(region_bytes)).unwrap();
    for key in 0..50 {
        world.put(key, &[1; 100], None);
    }
    world.settle();
    world.flash.flush(Some(3));
    world.put(7, &[2; 100], None);
    world.settle();
    for restart in [false, true] {
        if restart {
            let config = world.config.clone();
            drop(world);
            world = World::open(Box::new(disk.open()), config).unwrap();
        }
        assert_eq!(world.flash.items()[3], 1);
        let hash = world.hash(8);
        let place = world.index.find_log(hash).unwrap();
        let id = world.flash.ask(hash, place);
        (0..10).for_each(|_| world.advance());
        let item = world.flash.take(id).unwrap();
        assert!(world.flash.is_flushed(&item.header));
        assert_eq!(world.get(7), Some(vec![2; 100]));
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
                        if world.put(key, &value, None) == Offered::Taken {
                            break;
                        }
                        world.advance();
                    }
                    model.insert(key, (value, false));
                }
                Step::Delete(key) => {
                    let hash = world.hash(key);
                    world.flash.forget(&mut world.index, hash, 3);
                    model.remove(&key);
                }
                Step::Get(key) => check(&mut world, &model, key, false, true),
                Step::Advance | Step::Close => world.advance(),
                Step::Settle | Step::Kill => world.settle(),
            }
        }
    }
}
