//! Trims: they reach the store behind the dirty bytes, again where it fails them, and never what was written since.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod fallible_store;
mod virtual_time;

use std::ops::Range;

use fallible_store::{ORDERS, Parts, start};
use tiermem_block::disks::{Answer, Asker, Disks, Job, Outcome, Task};
use tiermem_block::engine::Engine;
use tiermem_policy::extents::Mode;
use tiermem_policy::extents::cleaner::{CleanerRules, WriteBackOrder};
use tiermem_tier::backing::{FaultControl, MemoryStore};
use tiermem_tier::block::Simulation;

const MIB: u64 = 1 << 20;
const PIECE: u64 = 64 << 10;
const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// An engine in front of a store.
struct House {
    engine: Engine,
    store: MemoryStore,
    faults: FaultControl,
    simulation: Simulation,
    next: u64,
    done: Vec<Outcome>,
}

impl House {
    fn new(order: WriteBackOrder, mode: Mode, is_kept: bool) -> Self {
        let rules = CleanerRules { order, ..CleanerRules::default() };
        let Parts { engine, store, faults, simulation } = start(rules, mode, is_kept, 8 * MIB);
        House { engine, store, faults, simulation, next: 0, done: Vec::new() }
    }

    fn each() -> impl Iterator<Item = House> {
        let kept = [false, true];
        ORDERS.into_iter().flat_map(move |order| kept.map(|kept| House::new(order, Mode::WriteBack, kept)))
    }

    fn pass(&mut self, time_ns: u64) {
        virtual_time::pass(&mut self.engine, &self.simulation, time_ns, |outcome| self.done.push(outcome));
    }

    /// Has a request done within 20 ms: its answer.
    fn run(&mut self, task: Task, pieces: Range<u64>) -> Answer {
        self.next += 1;
        let asker = Asker { connection: 1, cookie: self.next };
        let (offset, bytes) = (pieces.start * PIECE, (pieces.end - pieces.start) * PIECE);
        self.engine.submit(Job { asker, disk: 0, task, offset, bytes, durable: false });
        self.pass(20 * MS);
        let at = self.done.iter().position(|outcome| outcome.asker == asker).expect("it is answered soon");
        self.done.remove(at).result.unwrap()
    }

    fn write(&mut self, piece: u64, value: u8) {
        let mut buffer = self.engine.lend(PIECE as usize);
        buffer[..PIECE as usize].fill(value);
        self.run(Task::Write(buffer), piece..piece + 1);
    }

    fn read(&mut self, piece: u64) -> u8 {
        let Answer::Data(parts) = self.run(Task::Read, piece..piece + 1) else { panic!("it is read") };
        let bytes: Vec<u8> =
            parts.iter().flat_map(|it| &it.buffer[it.from..it.from + it.bytes]).copied().collect();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "of one write");
        bytes[0]
    }

    fn trim(&mut self, pieces: Range<u64>) {
        self.run(Task::Trim, pieces);
    }

    fn write_back(&mut self) {
        let asked = self.engine.begin_write_back(0);
        self.pass(S);
        self.engine.written_back_by(&asked).expect("it is done soon").unwrap();
    }

    /// What the store has of the first pieces.
    fn stored<const COUNT: usize>(&self) -> [u8; COUNT] {
        self.store.with_bytes(|bytes| std::array::from_fn(|piece| bytes[piece * PIECE as usize]))
    }
}

#[test]
fn a_trim_behind_dirty_bytes_reaches_the_store_when_it_has_them() {
    for mut house in House::each() {
        house.write(0, 7);
        house.write(3, 7);
        house.write_back();
        house.write(1, 8);
        house.trim(0..2);
        assert_eq!(house.stored(), [7, 0, 0, 7], "the store lacks what came before");
        house.write_back();
        assert_eq!(house.stored(), [0, 0, 0, 7], "dirty or not, all of it is trimmed");
        house.write(0, 9);
        assert_eq!((house.read(0), house.read(3)), (9, 7));
    }
}

#[test]
fn what_was_written_after_a_trim_stays() {
    for mut house in House::each() {
        house.write(0, 7);
        house.write(1, 7);
        house.trim(0..3);
        house.write(1, 8);
        house.run(Task::Flush, 0..0);
        house.write(2, 9);
        house.write_back();
        assert_eq!(house.stored(), [0, 8, 9]);
        assert_eq!((house.read(1), house.read(2)), (8, 9));
    }
}

#[test]
fn a_trim_that_the_store_fails_is_tried_again_and_nobody_else_notices() {
    for mut house in House::each() {
        house.write(0, 7);
        house.write_back();
        house.faults.faults(|faults| faults.zero_error = 1.0);
        house.trim(0..1);
        for value in 1..5 {
            house.write(1, value);
            house.write_back();
            assert_eq!(house.stored(), [7, value], "writes reach it");
        }
        house.trim(2..4);
        house.write(2, 3);
        house.faults.faults(|faults| faults.zero_error = 0.0);
        house.pass(31 * S);
        house.write_back();
        assert_eq!(house.stored(), [0, 4, 3]);
        assert_eq!(house.engine.counts(0).write_back_failures, 0, "no write failed");
    }
}

#[test]
fn writes_to_what_is_being_trimmed_wait_for_no_store() {
    for mut house in House::each() {
        house.write(0, 7);
        house.write(1, 7);
        house.write_back();
        house.faults.hang(true);
        house.trim(0..2);
        house.write(0, 8);
        assert_eq!(house.read(0), 8);
        house.faults.hang(false);
        house.write_back();
        assert_eq!(house.stored(), [8, 0]);
        assert_eq!(house.read(0), 8);
    }
}

#[test]
fn a_write_that_goes_to_the_store_is_not_trimmed() {
    for mode in [Mode::WriteThrough, Mode::WriteAround] {
        for is_kept in [false, true] {
            let mut house = House::new(WriteBackOrder::Group, mode, is_kept);
            house.write(0, 7);
            house.write(1, 7);
            house.trim(0..2);
            house.write(0, 8);
            house.pass(S);
            assert_eq!(house.stored(), [8, 0]);
            assert_eq!(house.read(0), 8);
        }
    }
}

#[test]
fn a_stop_passes_trims_on_and_waits_for_no_store_that_fails_them() {
    for fails in [false, true] {
        for mut house in House::each() {
            house.write(0, 7);
            house.write_back();
            house.write(1, 7);
            house.trim(0..2);
            house.faults.faults(|faults| faults.zero_error = if fails { 1.0 } else { 0.0 });
            let before_ns = house.simulation.now_ns();
            assert_eq!(house.engine.close(), 0);
            assert!(house.simulation.now_ns() - before_ns < S);
            assert_eq!(house.stored(), if fails { [7, 7] } else { [0, 0] });
        }
    }
}
