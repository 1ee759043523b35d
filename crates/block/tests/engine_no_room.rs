//! Stores without room: writes go on until the cache is nearly full of dirty bytes, wait for a while, and fail; nothing is lost.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod fallible_store;
mod virtual_time;

use std::collections::BTreeMap;
use std::ops::Range;

use fallible_store::{ORDERS, Parts, start};
use tiermem_block::disks::{Answer, Asker, Disks, Job, Task};
use tiermem_block::engine::{Engine, ExportStatus};
use tiermem_block::nbd::Errno;
use tiermem_policy::extents::Mode;
use tiermem_policy::extents::cleaner::{CleanerRules, WriteBackOrder};
use tiermem_tier::backing::{FaultControl, MemoryStore};
use tiermem_tier::block::Simulation;

const MIB: u64 = 1 << 20;
const PIECE: u64 = 64 << 10;
const S: u64 = 1_000_000_000;
/// Much more than the cache.
const VOLUME_BYTES: u64 = 64 * MIB;

/// An engine in front of a store that has room for 2 MiB.
struct House {
    engine: Engine,
    store: MemoryStore,
    faults: FaultControl,
    simulation: Simulation,
    next: u64,
    answers: BTreeMap<u64, Result<Answer, Errno>>,
    /// What each piece of the volume was last written with.
    written: BTreeMap<u64, u8>,
}

impl House {
    fn new(order: WriteBackOrder, is_kept: bool, full_wait_ns: Option<u64>) -> Self {
        let rules = CleanerRules { order, full_wait_ns, ..CleanerRules::default() };
        let Parts { engine, store, faults, simulation } =
            start(rules, Mode::WriteBack, is_kept, VOLUME_BYTES);
        faults.faults(|faults| faults.full_after_bytes = Some(2 * MIB));
        let (answers, written) = (BTreeMap::new(), BTreeMap::new());
        House { engine, store, faults, simulation, next: 0, answers, written }
    }

    fn begin(&mut self, task: Task, range: Range<u64>) -> u64 {
        self.next += 1;
        let asker = Asker { connection: 1, cookie: self.next };
        let (offset, bytes) = (range.start, range.end - range.start);
        self.engine.submit(Job { asker, disk: 0, task, offset, bytes, durable: false });
        self.next
    }

    fn begin_write(&mut self, piece: u64, value: u8) -> u64 {
        let mut buffer = self.engine.lend(PIECE as usize);
        buffer[..PIECE as usize].fill(value);
        self.begin(Task::Write(buffer), piece * PIECE..(piece + 1) * PIECE)
    }

    fn pass(&mut self, time_ns: u64) {
        virtual_time::pass(&mut self.engine, &self.simulation, time_ns, |outcome| {
            self.answers.insert(outcome.asker.cookie, outcome.result.map_err(|(errno, _)| errno));
        });
    }

    /// Waits some milliseconds for an answer.
    fn answer(&mut self, cookie: u64) -> Option<Result<Answer, Errno>> {
        self.pass(20_000_000);
        self.answers.remove(&cookie)
    }

    /// Writes one piece after the other until one is not answered at once; the piece, and its request.
    fn fill(&mut self) -> (u64, u64) {
        for piece in 0.. {
            let value = (piece % 250) as u8 + 1;
            let cookie = self.begin_write(piece, value);
            match self.answer(cookie) {
                Some(Ok(_)) => _ = self.written.insert(piece, value),
                Some(Err(errno)) => panic!("piece {piece}: {errno}"),
                None => return (piece, cookie),
            }
        }
        unreachable!("the cache is smaller than that")
    }

    fn assert_all_is_read(&mut self) {
        for (piece, value) in self.written.clone() {
            let cookie = self.begin(Task::Read, piece * PIECE..(piece + 1) * PIECE);
            let Some(Ok(Answer::Data(parts))) = self.answer(cookie) else { panic!("piece {piece} is read") };
            let mut bytes = parts.iter().flat_map(|it| &it.buffer[it.from..it.from + it.bytes]);
            assert!(bytes.all(|byte| *byte == value), "piece {piece}");
        }
    }

    fn status(&self) -> ExportStatus {
        self.engine.status().exports.remove(0)
    }

    fn has_room(&mut self) {
        self.faults.faults(|faults| faults.full_after_bytes = None);
    }
}

fn error(answer: Option<Result<Answer, Errno>>) -> Option<Errno> {
    answer.and_then(Result::err)
}

#[test]
fn writes_go_on_then_wait_for_a_minute_and_fail_until_the_store_has_room() {
    for (order, is_kept) in ORDERS.into_iter().flat_map(|order| [(order, true), (order, false)]) {
        let told = format!("{order:?}, log {is_kept}");
        let mut house = House::new(order, is_kept, Some(60 * S));
        let (piece, waiting) = house.fill();
        let dirty_bytes = house.engine.dirty_bytes();
        let capacity_bytes = house.engine.status().cache.capacity_bytes;
        assert!(dirty_bytes > capacity_bytes * 85 / 100, "{told}: {dirty_bytes} of {capacity_bytes}");
        let status = house.status();
        assert!(status.store_full_s.is_some() && !status.refuses_writes, "{told}: {status:?}");
        house.pass(58 * S);
        assert!(!house.answers.contains_key(&waiting), "{told}: it waits");
        house.pass(3 * S);
        assert_eq!(error(house.answers.remove(&waiting)), Some(Errno::NoSpc), "{told}");
        // Those that come later wait no more; what is there is read as ever.
        let cookie = house.begin_write(piece + 1, 9);
        assert_eq!(error(house.answer(cookie)), Some(Errno::NoSpc), "{told}");
        let status = house.status();
        assert!(status.refuses_writes && status.store_full_s > Some(60.0), "{told}: {status:?}");
        assert_eq!(status.counts.full_refusals, 2, "{told}");
        house.assert_all_is_read();
        house.has_room();
        house.pass(31 * S);
        let status = house.status();
        assert!(!status.refuses_writes, "{told}: {status:?}");
        let cookie = house.begin_write(piece, 7);
        assert!(matches!(house.answer(cookie), Some(Ok(_))), "{told}");
        house.written.insert(piece, 7);
        house.assert_all_is_read();
        assert_eq!(house.engine.close(), 0, "{told}");
        assert_eq!(house.status().store_full_s, None, "{told}");
        for (piece, value) in house.written {
            let range = (piece * PIECE) as usize..((piece + 1) * PIECE) as usize;
            house.store.with_bytes(|bytes| assert!(bytes[range].iter().all(|byte| *byte == value), "{told}"));
        }
    }
}

#[test]
fn where_writes_are_to_wait_they_wait_until_the_store_has_room() {
    let mut house = House::new(WriteBackOrder::Group, true, None);
    let (_, waiting) = house.fill();
    house.pass(600 * S);
    assert!(!house.answers.contains_key(&waiting) && !house.status().refuses_writes);
    house.has_room();
    house.pass(31 * S);
    assert!(matches!(house.answers.remove(&waiting), Some(Ok(_))));
}

#[test]
fn a_flush_that_needs_the_store_fails_with_the_writes_and_one_that_does_not_is_done() {
    for is_kept in [true, false] {
        let mut house = House::new(WriteBackOrder::Group, is_kept, Some(60 * S));
        for piece in 0..64 {
            let cookie = house.begin_write(piece, 5);
            assert!(matches!(house.answer(cookie), Some(Ok(_))));
        }
        let flush = house.begin(Task::Flush, 0..0);
        house.pass(59 * S);
        // A cache with a log has it durably.
        assert_eq!(house.answers.contains_key(&flush), is_kept);
        house.pass(2 * S);
        assert_eq!(error(house.answers.remove(&flush)), (!is_kept).then_some(Errno::NoSpc));
        if !is_kept {
            let again = house.begin(Task::Flush, 0..0);
            assert_eq!(error(house.answer(again)), Some(Errno::NoSpc), "at once");
            let write = house.begin_write(0, 6);
            assert!(matches!(house.answer(write), Some(Ok(_))), "the cache has room for it");
            house.has_room();
            house.pass(31 * S);
        }
        let flush = house.begin(Task::Flush, 0..0);
        house.pass(31 * S);
        assert!(matches!(house.answers.remove(&flush), Some(Ok(_))));
    }
}
