//! A cache with less memory than the log's table has bytes.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tiermem_block::backing::MemoryStore;
use tiermem_block::disks::{Answer, Asker, Disks, Job, Outcome, Task};
use tiermem_block::engine::{Engine, EngineConfig, VolumeConfig};
use tiermem_block::journal::LayoutConfig;
use tiermem_block::nbd::Errno;
use tiermem_tier::block::MemoryDisk;

const CACHE_BYTES: u64 = 64 << 20;
const VOLUME_BYTES: u64 = 32 << 20;
const PART: usize = 64 << 10;
/// Two pages; the cache has 21.
const LITTLE: Option<u64> = Some(8192);

struct House {
    engine: Engine,
    next: u64,
}

impl House {
    fn new(disk: &MemoryDisk, store: &MemoryStore, table_bytes: Option<u64>) -> Self {
        let ticks = AtomicU64::new(0);
        let clock = Arc::new(move || ticks.fetch_add(1_000_000, Ordering::Relaxed));
        let config = EngineConfig { clock, table_bytes, ..EngineConfig::default() };
        let (mut engine, _) = Engine::open(Box::new(disk.open()), config, false).unwrap();
        engine.add(VolumeConfig::new("disk"), Box::new(store.open())).unwrap();
        engine.begin_service().unwrap();
        House { engine, next: 0 }
    }

    fn run(&mut self, task: Task, offset: u64, bytes: usize) -> Result<Answer, (Errno, String)> {
        self.next += 1;
        let asker = Asker { connection: 1, cookie: self.next };
        self.engine.submit(Job { asker, disk: 0, task, offset, bytes: bytes as u64, durable: false });
        let mut done: Vec<Outcome> = Vec::new();
        for _ in 0..100_000 {
            self.engine.take(&mut done);
            if let Some(outcome) = done.pop() {
                return outcome.result;
            }
        }
        panic!("it does not end");
    }

    fn write(&mut self, part: u64, value: u8) -> Result<Answer, (Errno, String)> {
        let mut buffer = self.engine.lend(PART);
        buffer[..PART].fill(value);
        self.run(Task::Write(buffer), part * PART as u64, PART)
    }

    fn read(&mut self, part: u64) -> u8 {
        let answer = self.run(Task::Read, part * PART as u64, PART).unwrap();
        let Answer::Data(pieces) = answer else { panic!("there are data") };
        let bytes = pieces.iter().flat_map(|piece| &piece.buffer[piece.from..piece.from + piece.bytes]);
        let bytes: Vec<u8> = bytes.copied().collect();
        assert!(bytes.len() == PART && bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    }

    fn fill(&mut self) {
        for part in 0..VOLUME_BYTES / PART as u64 {
            self.write(part, value(part)).unwrap();
        }
        self.run(Task::Flush, 0, 0).unwrap();
    }
}

fn value(part: u64) -> u8 {
    1 + (part % 251) as u8
}

#[test]
fn what_has_no_room_in_memory_is_read_again() {
    let (disk, store) = (MemoryDisk::new(CACHE_BYTES as usize), MemoryStore::new(VOLUME_BYTES));
    let mut house = House::new(&disk, &store, LITTLE);
    let empty = house.engine.status().cache.metadata_bytes;
    house.fill();
    for part in (0..VOLUME_BYTES / PART as u64).rev() {
        assert_eq!(house.read(part), value(part));
    }
    let pages_read = house.engine.log_stats().unwrap().pages_read;
    assert!(pages_read > 10, "{pages_read}");
    house.engine.close();
    drop(house);
    // The same cache with all of it in memory.
    let mut house = House::new(&disk, &store, None);
    assert_eq!(house.read(300), value(300));
    assert_eq!(house.engine.counts(0).core_reads, 0, "it is cached");
    assert_eq!(house.engine.log_stats().unwrap().pages_read, 0);
    let all = house.engine.status().cache.metadata_bytes;
    assert!(all > empty + 15 * 4096, "{empty} with little, {all} with all");
}

#[test]
fn what_cannot_be_proven_is_never_given_out() {
    let (disk, store) = (MemoryDisk::new(CACHE_BYTES as usize), MemoryStore::new(VOLUME_BYTES));
    let mut house = House::new(&disk, &store, LITTLE);
    house.fill();
    let _ = house.engine.begin_write_back(0);
    while house.engine.dirty_bytes() > 0 {
        house.engine.take(&mut Vec::new());
    }
    house.run(Task::Flush, 0, 0).unwrap();
    // Somebody else writes over the table.
    let sizes = EngineConfig::default().sizes_bytes;
    let config = LayoutConfig { block_bytes: sizes, group_bytes: None, log_bytes: None };
    let layout = tiermem_block::journal::Layout::plan(CACHE_BYTES, &config).unwrap();
    disk.with_bytes(|bytes| bytes[layout.table_at as usize..layout.data_at as usize].fill(0xee));
    for part in 0..VOLUME_BYTES / PART as u64 {
        assert_eq!(house.read(part), value(part));
    }
    assert!(house.engine.counts(0).core_reads > 0, "the store has them");
    let (errno, words) = house.write(0, 0).unwrap_err();
    assert!(errno == Errno::Io && words.contains("metadata are damaged"), "{words}");
}
