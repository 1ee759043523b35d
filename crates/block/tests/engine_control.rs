//! Operator's view of the engine, and changes while it serves.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::sync::{Arc, Mutex};

use tiermem_block::config::ExportMode;
use tiermem_block::disks::{Answer, Asker, Disks, Job, Outcome, Task};
use tiermem_block::engine::{ControlError, Drops, Engine, EngineConfig, ExportStatus, VolumeConfig};
use tiermem_policy::extents::{Mode, Sizing};
use tiermem_tier::backing::MemoryStore;
use tiermem_tier::block::{MemoryDisk, Simulated, Simulation, Troubles};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const VOLUME_BYTES: u64 = 64 * MIB;

/// Two volumes behind a cache of 32 MiB of which nothing outlives the process; the first store has its troubles.
struct House {
    engine: Engine,
    stores: Vec<MemoryStore>,
    troubles: Arc<Mutex<Troubles>>,
    simulation: Simulation,
    sent: u64,
    done: Vec<Outcome>,
}

impl House {
    fn new(shares: u16) -> Self {
        let simulation = Simulation::new(1);
        let clock = simulation.clone();
        let config = EngineConfig {
            shares,
            sizing: Sizing::Request,
            clock: Arc::new(move || clock.now_ns()),
            ..EngineConfig::default()
        };
        let disk = MemoryDisk::new(32 * MIB as usize);
        let mut engine = Engine::new(Box::new(disk.open()), config).unwrap();
        let stores = vec![MemoryStore::new(VOLUME_BYTES), MemoryStore::new(VOLUME_BYTES)];
        let store = Simulated::new(stores[0].clone(), &simulation);
        let troubles = store.troubles();
        engine.add(VolumeConfig::new("a"), Box::new(store)).unwrap();
        engine
            .add(VolumeConfig { read_only: true, ..VolumeConfig::new("b") }, Box::new(stores[1].open()))
            .unwrap();
        engine.begin_service().unwrap();
        House { engine, stores, troubles, simulation, sent: 0, done: Vec::new() }
    }

    fn send(&mut self, disk: usize, task: Task, offset: u64, bytes: u64) {
        self.sent += 1;
        let asker = Asker { connection: 1, cookie: self.sent };
        self.engine.submit(Job { asker, disk, task, offset, bytes, durable: false });
    }

    fn write(&mut self, disk: usize, offset: u64, bytes: u64, value: u8) {
        let mut buffer = self.engine.lend(bytes as usize);
        buffer[..bytes as usize].fill(value);
        self.send(disk, Task::Write(buffer), offset, bytes);
    }

    /// Advances the time and runs the engine; returns the number of requests answered in all.
    fn work(&mut self) -> usize {
        for _ in 0..2000 {
            self.simulation.pass(1_000_000);
            self.engine.take(&mut self.done);
        }
        self.done.len()
    }

    fn read(&mut self, disk: usize, offset: u64, bytes: u64) -> Vec<u8> {
        self.send(disk, Task::Read, offset, bytes);
        self.work();
        let outcome = self.done.pop().unwrap();
        let Ok(Answer::Data(pieces)) = outcome.result else { panic!("{:?}", outcome.result) };
        pieces.iter().flat_map(|piece| piece.buffer[piece.from..piece.from + piece.bytes].to_vec()).collect()
    }

    fn export(&self, at: usize) -> ExportStatus {
        self.engine.status().exports.swap_remove(at)
    }

    fn hang(&self, hangs: bool) {
        self.troubles.lock().unwrap().hangs = hangs;
    }
}

#[test]
fn requests_count_as_clients_send_them() {
    let mut house = House::new(1);
    // Cut into three operations, and one request all the same.
    assert_eq!(house.read(1, 0, 3 * MIB), vec![0; 3 * MIB as usize]);
    house.read(1, 0, 3 * MIB);
    house.write(0, 4 * KIB, 8 * KIB, 7);
    house.send(0, Task::Flush, 0, 0);
    house.work();
    let reads = house.export(1);
    assert_eq!((reads.counts.reads, reads.counts.read_hits, reads.read_hit_ratio), (2, 1, Some(0.5)));
    assert_eq!(reads.counts.read_bytes, 6 * MIB);
    assert_eq!(reads.missed_request_mean_bytes, Some((3 * MIB) as f64));
    assert_eq!(reads.allocated_block_mean_bytes, Some((256 * KIB) as f64));
    assert_eq!((reads.counts.core_read_bytes, reads.counts.cache_read_bytes), (3 * MIB, 3 * MIB));
    assert_eq!((reads.mode, reads.write_hit_ratio), (ExportMode::ReadOnly, None));
    let writes = house.export(0);
    assert_eq!((writes.counts.writes, writes.counts.write_hits, writes.counts.flushes), (1, 0, 1));
    assert_eq!((writes.counts.written_bytes, writes.counts.core_written_bytes), (8 * KIB, 8 * KIB));
    let cache = house.engine.status().cache;
    assert_eq!((cache.capacity_bytes, cache.held_bytes), (32 * MIB, 3 * MIB + 32 * KIB));
    assert_eq!(cache.blocks.iter().map(|size| size.blocks).collect::<Vec<_>>(), [1, 0, 0, 12]);
    assert!(
        cache.metadata_bytes > 0
            && cache.metadata_bytes_per_gib.is_some_and(|bytes| bytes > 0.0)
            && cache.log.is_none()
    );
}

#[test]
fn what_is_dirty_and_for_how_long_is_told() {
    let mut house = House::new(1);
    house.read(1, 0, 64 * KIB);
    let per_gib = house.engine.status().cache.metadata_bytes_per_gib;
    assert_eq!(per_gib, None, "a cache that is nearly empty says nothing for each GiB");
    house.write(0, 0, 8 * KIB, 7);
    house.engine.take(&mut house.done);
    house.simulation.pass(5_000_000_000);
    let export = house.export(0);
    assert_eq!((export.dirty_bytes, export.dirty_age_s, export.epochs), (8 * KIB, Some(5.0), 1));
    assert_eq!(house.engine.status().cache.dirty_bytes, 8 * KIB);
}

#[test]
fn writes_of_another_mode_wait_until_nothing_is_dirty() {
    let mut house = House::new(1);
    house.hang(true);
    house.write(0, 0, 64 * KIB, 1);
    assert_eq!(house.work(), 1);
    house.engine.set_mode(0, Mode::WriteThrough).unwrap();
    assert_eq!(house.export(0).mode, ExportMode::WriteThrough);
    house.write(0, 32 * KIB, 64 * KIB, 2);
    assert_eq!(house.work(), 1, "the store lacks what is older");
    assert_eq!((house.export(0).parked_now, house.export(0).counts.parked), (1, 1));
    // Readers do not wait.
    assert_eq!(house.read(0, 0, 64 * KIB), vec![1; 64 * KIB as usize]);
    house.hang(false);
    assert_eq!(house.work(), 2);
    house.stores[0].with_bytes(|bytes| {
        assert!(bytes[..32 << 10].iter().all(|byte| *byte == 1));
        assert!(bytes[32 << 10..96 << 10].iter().all(|byte| *byte == 2));
    });
    assert_eq!(house.export(0).dirty_bytes, 0);
    assert_eq!(
        house.engine.set_mode(1, Mode::WriteBack),
        Err(ControlError::ReadOnly { name: "b".to_owned() })
    );
}

#[test]
fn without_a_writer_a_change_of_mode_writes_back_too() {
    let mut house = House::new(1);
    house.write(0, 0, 64 * KIB, 1);
    house.engine.set_mode(0, Mode::WriteAround).unwrap();
    house.work();
    assert_eq!(house.export(0).dirty_bytes, 0);
}

#[test]
fn writing_back_is_told_when_it_is_done() {
    let mut house = House::new(1);
    house.hang(true);
    house.write(0, 0, 64 * KIB, 1);
    house.work();
    let asked = house.engine.begin_write_back(0);
    house.work();
    assert_eq!(house.engine.written_back_by(&asked), None);
    house.hang(false);
    house.work();
    assert_eq!(house.engine.written_back_by(&asked), Some(Ok(64 * KIB)));
    house.stores[0].with_bytes(|bytes| assert_eq!(bytes[..64 << 10], [1; 64 << 10]));
    let asked = house.engine.begin_write_back(0);
    assert_eq!(house.engine.written_back_by(&asked), Some(Ok(0)), "there is nothing to do");
}

#[test]
fn a_store_that_fails_is_told_to_who_waits() {
    let mut house = House::new(1);
    house.troubles.lock().unwrap().broken = true;
    house.write(0, 0, 64 * KIB, 1);
    house.work();
    let asked = house.engine.begin_write_back(0);
    house.work();
    let told = house.engine.written_back_by(&asked).unwrap().unwrap_err();
    assert!(told.to_string().contains("64KiB"), "{told}");
    assert!(house.export(0).counts.write_back_failures > 0);
}

#[test]
fn what_is_forgotten_is_read_anew_and_dirty_bytes_stay() {
    let mut house = House::new(1);
    house.hang(true);
    house.write(0, 0, 64 * KIB, 1);
    house.work();
    house.read(1, 0, 4 * MIB);
    let mut drops = Drops::default();
    assert!(house.engine.drop_clean(0, &mut drops));
    assert_eq!(drops.bytes(), 0);
    assert_eq!(house.read(0, 0, 64 * KIB), vec![1; 64 * KIB as usize]);
    let mut drops = Drops::default();
    assert!(house.engine.drop_clean(1, &mut drops));
    assert_eq!(drops.bytes(), 4 * MIB);
    assert_eq!(house.engine.status().cache.held_bytes, 64 * KIB);
    house.read(1, 0, 4 * MIB);
    assert_eq!(house.export(1).counts.core_read_bytes, 8 * MIB);
}

#[test]
fn a_quota_holds_from_now_on() {
    let mut house = House::new(2);
    house.read(1, 0, 8 * MIB);
    house.engine.set_quota(1, Some(8 * MIB)).unwrap();
    for at in 1..6 {
        house.read(1, at * 8 * MIB, 8 * MIB);
    }
    let export = house.export(1);
    assert_eq!((export.quota_bytes, export.share), (Some(8 * MIB), 1));
    assert!(export.share_held_bytes <= 8 * MIB, "{}", export.share_held_bytes);
    assert_eq!(house.engine.set_quota(0, Some(MIB)), Err(ControlError::Shares), "there is one share to give");
    assert!(matches!(house.engine.set_quota(1, Some(64 * MIB)), Err(ControlError::Quota { .. })));
    house.engine.set_quota(1, None).unwrap();
    for at in 1..6 {
        house.read(1, at * 8 * MIB, 8 * MIB);
    }
    assert!(house.export(1).share_held_bytes > 8 * MIB);
    assert_eq!(house.export(1).quota_bytes, None);
    house.engine.set_quota(0, None).unwrap();
}
