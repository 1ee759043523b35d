//! Stale fetches: items that were requested below memory and are not there any more when their bytes are at hand, case by case.

mod shard_world;

use shard_world::{Bytes, Cell, HEADER_BYTES, PAGE, SEGMENT_BYTES, Segment, hash_of};
use tiermem_base::Rng;
use tiermem_policy::Id;
use tiermem_policy::ladder::LadderConfig;
use tiermem_policy::log::{
    Admission, Filled, ITEM_HEADER_BYTES, LOG_PAGE_BYTES, LogConfig, LogPlace, RESERVE,
};
use tiermem_policy::shard::{Act, Away, Duty, Entered, Entry, LogState, Shard, Staged};

const SEGMENTS: u32 = 16;
const KEY: u64 = 5;
/// Of an item that takes all of the memory.
const LARGE_KEY: u64 = 6;

fn hash() -> u64 {
    hash_of(KEY)
}

/// A log, and so much memory above it that one large item has room.
struct Log {
    shard: Shard,
    bytes: Bytes,
    rng: Rng,
    /// Segments, and the bytes before which they were written.
    written: Vec<(u32, u32)>,
}

fn config() -> LogConfig {
    LogConfig {
        segments: SEGMENTS,
        segment_bytes: SEGMENT_BYTES,
        admission: Admission::All,
        reserve: RESERVE,
        journal_records: 1 << 20,
    }
}

impl Log {
    fn new() -> Self {
        let ladder = LadderConfig { charge_metadata: false, ..LadderConfig::with_capacities(&[PAGE]) };
        let mut shard = Shard::new(ladder, 0);
        shard.attach_log(LogState::new(config()));
        let below = vec![Segment::default(); SEGMENTS as usize];
        let bytes = Bytes { below, ..Bytes::default() };
        Log { shard, bytes, rng: Rng::seeded(1), written: Vec::new() }
    }

    fn carry_out(&mut self) {
        while let Some(act) = self.shard.next_act(&mut self.bytes, &mut self.rng) {
            match act {
                Act::Write { segment, end, .. } => self.written.push((segment, end)),
                Act::Append { .. } | Act::Seal { .. } => {}
                act => panic!("nothing moves and nothing is read, so why {act:?}"),
            }
        }
    }

    /// Finds a place in memory.
    fn enter(&mut self, key: u64, bytes: u64) -> Id {
        let entry = Entry { hash: hash_of(key), bytes, expires_at_ms: None, tenant: 0, is_newcomer: true };
        self.shard.enter(&entry, &mut self.rng);
        self.carry_out();
        let Entered::Placed { id, loc, replaces: None } = self.shard.entered() else {
            panic!("there is room")
        };
        let cell = Cell { key, bytes, version: 0, is_unchanged: false, expires_at_ms: None };
        self.bytes.here.insert(loc, cell);
        id
    }

    /// Has an item of `bytes`, its header included, leave memory for the log.
    fn sink(&mut self, bytes: u32) {
        self.shard.forget_below(hash());
        let sunk = |shard: &Shard| shard.log().expect("there is a log").sunk(0);
        let before = sunk(&self.shard);
        self.enter(KEY, u64::from(bytes - ITEM_HEADER_BYTES) + HEADER_BYTES);
        let large = self.enter(LARGE_KEY, PAGE);
        assert_eq!(sunk(&self.shard), before + 1);
        self.shard.forget(large, hash_of(LARGE_KEY), &self.bytes);
    }

    /// What has come is on the device, and no longer in memory.
    fn write_all(&mut self) {
        self.shard.device().write_out(true);
        self.carry_out();
        self.written.drain(..).for_each(|(segment, end)| self.shard.device().note_safe(segment, end));
        self.shard.device().announce();
        while let Some(duty) = self.shard.device().next_duty() {
            assert!(matches!(duty, Duty::Announce { .. } | Duty::Release { .. }));
        }
    }

    fn away(&self) -> Away {
        let place = self.shard.memory().keys().place_below(hash()).expect("it lies there");
        self.shard.log().expect("there is a log").away(hash(), place)
    }
}

#[test]
fn what_is_where_it_was_is_taken() {
    let mut log = Log::new();
    log.sink(1000);
    let in_memory = log.away();
    assert!(in_memory.is_in_memory);
    assert_eq!(log.shard.stage(&in_memory), Staged::Here);
    log.write_all();
    let away = log.away();
    assert!(!away.is_in_memory && away.is_same(&in_memory));
    assert_eq!(log.shard.stage(&away), Staged::Here);
    log.shard.hit_below(hash(), 1000);
    assert_eq!(log.shard.stage(&away), Staged::Here, "warmer, and where it was");
    log.shard.forget_below(hash());
    assert_eq!(log.shard.stage(&away), Staged::Elsewhere);
}

#[test]
fn what_was_in_memory_and_has_left_it_is_read_from_the_device() {
    let mut log = Log::new();
    log.sink(1000);
    let away = log.away();
    log.write_all();
    assert_eq!(log.shard.stage(&away), Staged::Elsewhere);
}

#[test]
fn what_was_written_anew_in_the_same_segment_is_looked_for_again() {
    let mut log = Log::new();
    log.sink(LOG_PAGE_BYTES);
    let away = log.away();
    log.sink(LOG_PAGE_BYTES);
    assert_eq!(log.away().sequence, away.sequence);
    assert_eq!(log.shard.stage(&away), Staged::Elsewhere);
}

#[test]
fn what_was_written_anew_in_the_same_place_is_looked_for_again() {
    let mut log = Log::new();
    log.sink(1000);
    log.write_all();
    let away = log.away();
    for _ in 0..4 * SEGMENTS {
        // A segment of its own each time; the ones before it become free.
        log.sink(1000);
        log.write_all();
        log.shard.advance(&mut log.rng);
        log.carry_out();
        if log.away().place == away.place {
            assert_ne!(log.away().sequence, away.sequence);
            assert_eq!(log.shard.stage(&away), Staged::Elsewhere);
            return;
        }
    }
    panic!("the segment was never filled again");
}

/// Of a key that was not seen since the start, what is hot is only known by the room there is.
#[test]
fn what_is_read_comes_up_only_where_its_bytes_find_room() {
    let memory_bytes = 4 << 20;
    for (bytes, comes_up) in [(1000, true), (memory_bytes, false)] {
        let mut state = LogState::new(config());
        state.put(hash(), LogPlace::new(0, 1));
        state.settle(vec![Filled { segment: 0, sequence: 1, items: 1, used_bytes: 4096 }], &[], 2);
        let mut shard = Shard::new(LadderConfig::with_capacities(&[memory_bytes]), 0);
        shard.attach_log(state);
        assert_eq!(shard.hit_below(hash(), bytes), comes_up, "{bytes} bytes");
    }
}
