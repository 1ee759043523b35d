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

    /// A write of half of the first unit.
    fn write_part(&mut self, value: u8) -> u64 {
        let mut buffer = self.engine.lend(4096);
        buffer[..2048].fill(value);
        self.send(Task::Write(buffer), 2048, false)
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

/// A house in which the log has closed the block that holds the old content, and the fate of all writes is set.
fn closed(fate: Fate) -> House {
    let mut house = House::new();
    // More than a second of the clock.
    assert!(house.look(0).is_none());
    house.fates.set(fate, |request| request.op == Op::Write);
    house
}

#[test]
fn a_write_over_a_closed_block_is_done_before_the_log_opens_it_and_is_stored_after_that() {
    let mut house = closed(Fate::Held);
    let write = house.write(2, false);
    house.outcome(write).unwrap();
    let log_alone = house.fates.held_bytes();
    assert!(!log_alone.is_empty() && !log_alone.contains(&BYTES), "{log_alone:?}");
    let read = house.read();
    let flush = house.send(Task::Flush, 0, false);
    assert!(house.look(read).is_none() && house.look(flush).is_none());
    assert!(!house.fates.held_bytes().contains(&BYTES), "what was promised is not written over yet");
    house.set(Fate::Done);
    assert_eq!(house.value(read), Ok(2));
    house.outcome(flush).unwrap();
}

#[test]
fn a_write_over_a_closed_block_that_must_be_durable_or_needs_what_is_there_waits_for_the_log() {
    for durable in [true, false] {
        let mut house = closed(Fate::Held);
        let write = if durable { house.write(2, true) } else { house.write_part(2) };
        assert!(house.look(write).is_none());
        house.set(Fate::Done);
        house.outcome(write).unwrap();
    }
}

#[test]
fn a_write_that_is_done_is_read_and_the_flush_fails_where_the_log_fails_before_it_opens_the_block() {
    for flushes_first in [false, true] {
        let mut house = closed(Fate::Held);
        let write = house.write(2, false);
        house.outcome(write).unwrap();
        let early = flushes_first.then(|| house.send(Task::Flush, 0, false));
        assert!(early.is_none_or(|flush| house.look(flush).is_none()));
        house.fates.set(Fate::Failed, |request| request.op == Op::Write);
        let read = house.read();
        assert_eq!(house.value(read), Ok(2));
        let flush = early.unwrap_or_else(|| house.send(Task::Flush, 0, false));
        assert_eq!(house.outcome(flush).err(), Some(Errno::Io), "the log has it not");
        let refused = house.write(3, false);
        assert_eq!(house.outcome(refused).err(), Some(Errno::Io));
        let read = house.read();
        assert_eq!(house.value(read), Ok(2));
    }
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
