//! Early replies: writes acknowledged before the cache's device has them. Reads see
//! them, flushes wait for them, and where the device does not take one the store gets it.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

#[path = "engine/fated.rs"]
mod fated;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tiermem_block::disks::{Answer, Asker, Disks, Job, Outcome, Task};
use tiermem_block::engine::{Engine, EngineConfig, VolumeConfig};
use tiermem_block::nbd::Errno;
use tiermem_tier::backing::MemoryStore;
use tiermem_tier::block::{MemoryDisk, Op, Request};

use fated::{Fate, Fated, Fates};

/// The clients' writes have this length, and nothing else that the cache writes has.
const BYTES: usize = 64 << 10;
const OLD: u8 = 1;

fn is_clients(request: &Request) -> bool {
    request.op == Op::Write && request.buffer.len() == BYTES
}

struct House {
    engine: Engine,
    store: MemoryStore,
    fates: Fates,
    next: u64,
    done: Vec<Outcome>,
}

impl House {
    fn new() -> Self {
        Self::of(VolumeConfig::new("disk"))
    }

    fn of(config: VolumeConfig) -> Self {
        let (device, fates) = Fated::new(MemoryDisk::new(64 << 20).open());
        let ticks = AtomicU64::new(0);
        let clock = Arc::new(move || ticks.fetch_add(1_000_000, Ordering::Relaxed));
        let (mut engine, _) =
            Engine::open(Box::new(device), EngineConfig { clock, ..EngineConfig::default() }, true).unwrap();
        let store = MemoryStore::new(16 << 20);
        engine.add(config, Box::new(store.open())).unwrap();
        engine.begin_service().unwrap();
        let mut house = House { engine, store, fates, next: 0, done: Vec::new() };
        let old = house.write(OLD, false);
        house.outcome(old).unwrap();
        let flush = house.send(Task::Flush, 0, false);
        house.outcome(flush).unwrap();
        house
    }

    fn send(&mut self, task: Task, bytes: u64, durable: bool) -> u64 {
        self.next += 1;
        let asker = Asker { connection: 1, cookie: self.next };
        self.engine.submit(Job { asker, disk: 0, task, offset: 0, bytes, durable });
        self.next
    }

    fn write(&mut self, value: u8, durable: bool) -> u64 {
        let mut buffer = self.engine.lend(BYTES);
        buffer[..BYTES].fill(value);
        self.send(Task::Write(buffer), BYTES as u64, durable)
    }

    fn read(&mut self) -> u64 {
        self.send(Task::Read, BYTES as u64, false)
    }

    /// The result of a request, once the engine has had time for it; `None` until then.
    fn look(&mut self, cookie: u64) -> Option<Result<Answer, Errno>> {
        for _ in 0..3000 {
            self.engine.take(&mut self.done);
        }
        let at = self.done.iter().position(|outcome| outcome.asker.cookie == cookie)?;
        Some(self.done.swap_remove(at).result.map_err(|(errno, _)| errno))
    }

    fn outcome(&mut self, cookie: u64) -> Result<Answer, Errno> {
        self.look(cookie).expect("it has ended")
    }

    fn value(&mut self, cookie: u64) -> Result<u8, Errno> {
        let Answer::Data(pieces) = self.outcome(cookie)? else { panic!("there are data") };
        let bytes: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| &piece.buffer[piece.from..piece.from + piece.bytes])
            .copied()
            .collect();
        assert!(bytes.len() == BYTES && bytes.iter().all(|byte| *byte == bytes[0]));
        Ok(bytes[0])
    }

    fn set(&self, fate: Fate) {
        self.fates.set(fate, is_clients);
    }
}

#[test]
fn a_write_is_done_before_it_is_stored_and_a_flush_waits_for_it() {
    let mut house = House::new();
    house.set(Fate::Held);
    let write = house.write(2, false);
    house.outcome(write).unwrap();
    let read = house.read();
    let flush = house.send(Task::Flush, 0, false);
    assert!(house.look(read).is_none() && house.look(flush).is_none());
    house.set(Fate::Done);
    assert_eq!(house.value(read), Ok(2));
    house.outcome(flush).unwrap();
}

#[test]
fn a_write_that_must_be_durable_waits() {
    let mut house = House::new();
    house.set(Fate::Held);
    let write = house.write(2, true);
    assert!(house.look(write).is_none());
    house.set(Fate::Done);
    house.outcome(write).unwrap();
}

#[test]
fn where_all_writes_are_to_be_durable_each_waits_and_reads_and_trims_do_not() {
    let mut house = House::of(VolumeConfig { acknowledges_durably: true, ..VolumeConfig::new("disk") });
    let trim = house.send(Task::Trim, BYTES as u64, false);
    house.outcome(trim).unwrap();
    let read = house.read();
    house.outcome(read).unwrap();
    house.set(Fate::Held);
    let write = house.write(2, false);
    assert!(house.look(write).is_none());
    house.set(Fate::Done);
    house.outcome(write).unwrap();
    let zero = house.send(Task::Zero, BYTES as u64, false);
    house.outcome(zero).unwrap();
}

/// Whether the store has this value.
fn is_stored(house: &House, value: u8) -> bool {
    house.store.with_bytes(|bytes| bytes[..BYTES].iter().all(|byte| *byte == value))
}

#[test]
fn what_the_device_does_not_take_is_read_and_a_flush_brings_it_to_the_store() {
    for flushes_first in [false, true] {
        let mut house = House::new();
        house.set(Fate::Held);
        let write = house.write(2, false);
        house.outcome(write).unwrap();
        let early = flushes_first.then(|| house.send(Task::Flush, 0, false));
        assert!(early.is_none_or(|flush| house.look(flush).is_none()));
        house.set(Fate::Failed);
        let read = house.read();
        assert_eq!(house.value(read), Ok(2));
        let flush = early.unwrap_or_else(|| house.send(Task::Flush, 0, false));
        house.outcome(flush).unwrap();
        assert!(is_stored(&house, 2), "the flush has promised it");
        house.set(Fate::Done);
        let write = house.write(3, false);
        house.outcome(write).unwrap();
        let read = house.read();
        assert_eq!(house.value(read), Ok(3));
        let flush = house.send(Task::Flush, 0, false);
        house.outcome(flush).unwrap();
    }
}

#[test]
fn a_durable_write_that_the_device_does_not_take_is_in_the_store_when_it_is_done() {
    let mut house = House::new();
    house.set(Fate::Failed);
    let write = house.write(2, true);
    house.outcome(write).unwrap();
    assert!(is_stored(&house, 2));
    house.set(Fate::Done);
    let read = house.read();
    assert_eq!(house.value(read), Ok(2));
    let flush = house.send(Task::Flush, 0, false);
    house.outcome(flush).unwrap();
}
