//! Cache with less memory than the log's table has bytes.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

#[path = "engine/fated.rs"]
mod fated;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tiermem_block::disks::{Answer, Asker, Disks, Job, Outcome, Task};
use tiermem_block::engine::{Drops, Engine, EngineConfig, VolumeConfig};
use tiermem_block::journal::{Layout, LayoutConfig, Stats};
use tiermem_block::nbd::Errno;
use tiermem_tier::backing::{self, AlignedBuffer, Backing, MemoryStore};
use tiermem_tier::block::{MemoryDisk, Op};

use fated::{Fate, Fated, Fates};

const MIB: u64 = 1 << 20;
const CACHE_BYTES: u64 = 64 * MIB;
const VOLUME_BYTES: u64 = 32 * MIB;
const PART: usize = 64 << 10;
const PARTS: u64 = VOLUME_BYTES / PART as u64;
/// Two pages; a cache of 64 MiB has 21.
const LITTLE: Option<u64> = Some(8192);

struct House {
    engine: Engine,
    fates: Fates,
    next: u64,
}

impl House {
    /// With blocks of one size, or of the usual ones.
    fn new(
        disk: &MemoryDisk,
        store: &MemoryStore,
        block_bytes: Option<u64>,
        table_bytes: Option<u64>,
    ) -> Self {
        let ticks = AtomicU64::new(0);
        let clock = Arc::new(move || ticks.fetch_add(1_000_000, Ordering::Relaxed));
        let mut config = EngineConfig { clock, table_bytes, ..EngineConfig::default() };
        config.sizes_bytes = block_bytes.map_or(config.sizes_bytes, |bytes| vec![bytes]);
        let (device, fates) = Fated::new(disk.open());
        let (mut engine, _) = Engine::open(Box::new(device), config, false).unwrap();
        engine.add(VolumeConfig::new("disk"), Box::new(store.open())).unwrap();
        engine.begin_service().unwrap();
        House { engine, fates, next: 0 }
    }

    fn send(&mut self, task: Task, offset: u64, bytes: usize) {
        self.next += 1;
        let asker = Asker { connection: 1, cookie: self.next };
        self.engine.submit(Job { asker, disk: 0, task, offset, bytes: bytes as u64, durable: false });
    }

    fn run(&mut self, task: Task, offset: u64, bytes: usize) -> Result<Answer, (Errno, String)> {
        self.send(task, offset, bytes);
        let mut done: Vec<Outcome> = Vec::new();
        for _ in 0..100_000 {
            self.engine.take(&mut done);
            if let Some(outcome) = done.pop() {
                return outcome.result;
            }
        }
        panic!("it does not end");
    }

    fn write(&mut self, offset: u64, bytes: usize, value: u8) -> Result<Answer, (Errno, String)> {
        let mut buffer = self.engine.lend(bytes);
        buffer[..bytes].fill(value);
        self.run(Task::Write(buffer), offset, bytes)
    }

    fn read(&mut self, part: u64) -> u8 {
        let answer = self.run(Task::Read, part * PART as u64, PART).unwrap();
        let Answer::Data(pieces) = answer else { panic!("there are data") };
        let bytes = pieces.iter().flat_map(|piece| &piece.buffer[piece.from..piece.from + piece.bytes]);
        let bytes: Vec<u8> = bytes.copied().collect();
        assert!(bytes.len() == PART && bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    }

    /// Writes the whole volume, durably.
    fn fill(&mut self) {
        for part in 0..PARTS {
            self.write(part * PART as u64, PART, value(part)).unwrap();
        }
        self.run(Task::Flush, 0, 0).unwrap();
    }

    fn write_back(&mut self) {
        let _ = self.engine.begin_write_back(0);
        while self.engine.dirty_bytes() > 0 {
            self.engine.take(&mut Vec::new());
        }
        self.run(Task::Flush, 0, 0).unwrap();
    }

    fn stats(&self) -> Stats {
        self.engine.log_stats().unwrap()
    }
}

fn value(part: u64) -> u8 {
    1 + (part % 251) as u8
}

/// Another program writes over the table.
fn spoil_table(disk: &MemoryDisk) {
    let block_bytes = EngineConfig::default().sizes_bytes;
    let config = LayoutConfig { block_bytes, group_bytes: None, log_bytes: None };
    let layout = Layout::plan(CACHE_BYTES, &config).unwrap();
    disk.with_bytes(|bytes| bytes[layout.table_at as usize..layout.data_at as usize].fill(0xee));
}

fn house(table_bytes: Option<u64>) -> (House, MemoryDisk, MemoryStore) {
    let (disk, store) = (MemoryDisk::new(CACHE_BYTES as usize), MemoryStore::new(VOLUME_BYTES));
    (House::new(&disk, &store, None, table_bytes), disk, store)
}

#[test]
fn what_has_no_room_in_memory_is_read_again() {
    let (mut house, disk, store) = house(LITTLE);
    let empty = house.engine.status().cache.metadata_bytes;
    house.fill();
    for part in (0..PARTS).rev() {
        assert_eq!(house.read(part), value(part));
    }
    assert!(house.stats().pages_read > 10, "{:?}", house.stats());
    house.engine.close();
    drop(house);
    // The same cache with all of it in memory.
    let mut house = House::new(&disk, &store, None, None);
    assert_eq!(house.read(300), value(300));
    assert_eq!(house.engine.counts(0).core_reads, 0, "it is cached");
    assert_eq!(house.stats().pages_read, 0);
    let all = house.engine.status().cache.metadata_bytes;
    assert!(all > empty + 15 * 4096, "{empty} with little, {all} with all");
}

#[test]
fn what_cannot_be_proven_is_never_given_out() {
    let (mut house, disk, _store) = house(LITTLE);
    house.fill();
    house.write_back();
    spoil_table(&disk);
    for part in 0..PARTS {
        assert_eq!(house.read(part), value(part));
    }
    assert!(house.engine.counts(0).core_reads > 0, "the store has them");
    let (errno, words) = house.write(0, PART, 0).err().unwrap();
    assert!(errno == Errno::Io && words.contains("metadata are damaged"), "{words}");
}

#[test]
fn nobody_waits_for_room_in_a_log_that_has_failed() {
    let (mut house, disk, _store) = house(LITTLE);
    house.fill();
    house.write_back();
    spoil_table(&disk);
    let parts = [0, 150, 300, 450];
    let first = house.next + 1;
    for part in parts {
        let mut buffer = house.engine.lend(PART);
        buffer[..PART].fill(0);
        house.send(Task::Write(buffer), part * PART as u64, PART);
    }
    let mut done = Vec::new();
    while done.len() < 4 {
        house.engine.take(&mut done);
    }
    assert!(house.stats().dirty_pages > 1, "there is no room, and there will not be");
    assert!(done.iter().any(|outcome| outcome.result.is_err()), "{done:?}");
    // Some may have been acknowledged before the log failed: they are kept, and a flush says that they are not durable.
    for outcome in done.iter().filter(|outcome| outcome.result.is_ok()) {
        assert_eq!(house.read(parts[(outcome.asker.cookie - first) as usize]), 0);
    }
    assert_eq!(house.run(Task::Flush, 0, 0).err().map(|(errno, _)| errno), Some(Errno::Io));
    assert_eq!(house.read(200), value(200));
    // No client needs to know that it was not done, but it ends.
    house.run(Task::Trim, 0, PART).ok();
}

/// A device that takes no writes any more, as those do that are worn out, gives what it has: all of it reaches the store.
#[test]
fn dirty_bytes_leave_a_device_that_takes_no_writes() {
    for table_bytes in [None, LITTLE] {
        let (mut house, _disk, store) = house(table_bytes);
        house.fill();
        house.fates.set(Fate::Failed, |request| request.op != Op::Read);
        house.write(0, PART, value(0)).ok();
        while house.engine.status().cache.log.unwrap().failure.is_none() {
            house.engine.take(&mut Vec::new());
        }
        let _ = house.engine.begin_write_back(0);
        let mut backing = store.open();
        let mut lacks = |part: u64| {
            let buffer = AlignedBuffer::zeroed(PART);
            backing.submit(backing::Request::read(1, part * PART as u64, PART as u64, buffer));
            let mut done = Vec::new();
            backing.completed(&mut done);
            done[0].buffer.iter().any(|byte| *byte != value(part))
        };
        let mut rounds = 0;
        while (0..PARTS).any(&mut lacks) {
            (0..100).for_each(|_| house.engine.take(&mut Vec::new()));
            rounds += 1;
            assert!(rounds < 1000, "{table_bytes:?}: not all of it is in the store");
        }
        assert_eq!(house.engine.counts(0).poisoned_units, 0);
    }
}

/// A checkpoint that frees nothing is followed by the next one without
/// a caller's help: only the device's completions call the engine.
#[test]
fn checkpoints_follow_each_other_until_there_is_room() {
    let block_bytes = 4 * MIB;
    let (disk, store) = (MemoryDisk::new(5 << 30), MemoryStore::new(6 << 30));
    let mut house = House::new(&disk, &store, Some(block_bytes), Some(MIB));
    for block in 0..1100 {
        house.run(Task::Read, block * block_bytes, 4096).unwrap();
    }
    while house.stats().log_used_bytes > MIB || !house.engine.is_idle() {
        house.engine.take(&mut Vec::new());
    }
    house.fates.set(Fate::Held, |_| true);
    assert!(house.engine.drop_clean(0, &mut Drops::default()) || house.stats().dirty_pages > 1000);
    let mut done = Vec::new();
    house.engine.take(&mut done);
    house.send(Task::Read, 1050 * block_bytes, 4096);
    house.engine.take(&mut done);
    while done.is_empty() {
        let is_anything = house.fates.release();
        assert!(is_anything, "nothing is under way, and the read waits: {:?}", house.stats());
        house.engine.take(&mut done);
    }
}

#[test]
fn memory_is_given_back() {
    let block_bytes = MIB;
    let (disk, store) = (MemoryDisk::new(7 << 30), MemoryStore::new(8 << 30));
    let mut house = House::new(&disk, &store, Some(block_bytes), Some(MIB));
    let before = house.stats().memory_bytes;
    for block in 0..6900 {
        house.write(block * block_bytes, 4096, 3).unwrap();
    }
    house.run(Task::Flush, 0, 0).unwrap();
    house.write_back();
    while house.stats().dirty_pages > 64 {
        house.engine.take(&mut Vec::new());
    }
    let after = house.stats().memory_bytes;
    assert!(after < before + MIB + MIB / 2, "{before} bytes before, {after} after: {:?}", house.stats());
    // It dies with much in the log that only a larger memory held.
    drop(house);
    let mut house = House::new(&disk, &store, Some(block_bytes), None);
    for block in 0..6900 {
        house.write(block * block_bytes, 4096, 4).unwrap();
    }
    house.run(Task::Flush, 0, 0).unwrap();
    assert!(house.stats().dirty_pages > 200, "{:?}", house.stats());
    drop(house);
    let mut house = House::new(&disk, &store, Some(block_bytes), Some(MIB));
    house.engine.take(&mut Vec::new());
    let again = house.stats().memory_bytes;
    assert!(again < before + MIB + MIB / 2, "{before} bytes before, {again} after a recovery");
}
