//! Places of the cache's device that fail: nobody notices as long as the store, or the server's memory, has a copy.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod virtual_time;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex};

use tiermem_block::disks::{Answer, Asker, Disks, Job, Outcome, Task};
use tiermem_block::engine::{CacheStatus, Drops, Engine, EngineConfig, VolumeConfig};
use tiermem_block::journal::{Layout, LayoutConfig};
use tiermem_block::nbd::Errno;
use tiermem_policy::extents::Mode;
use tiermem_tier::backing::MemoryStore;
use tiermem_tier::block::{BadPlace, Failing, MemoryDisk, Op, Simulated, Simulation, Troubles};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const UNIT: u64 = 4 * KIB;
const CACHE_BYTES: u64 = 32 * MIB;
const VOLUME_BYTES: u64 = 8 * MIB;
const MODES: [Mode; 3] = [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround];
const FAILINGS: [Failing; 4] = [Failing::Io, Failing::Short, Failing::Full, Failing::ReadOnly];

/// The content of a volume: each unit is another.
static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let units = 0..VOLUME_BYTES / UNIT;
    let words = units.flat_map(|unit| (0..UNIT / 8).map(move |word| unit << 16 | word | 1 << 63));
    words.flat_map(u64::to_le_bytes).collect()
});

fn content(units: Range<u64>) -> Vec<u8> {
    CONTENT[(units.start * UNIT) as usize..(units.end * UNIT) as usize].to_vec()
}

struct House {
    engine: Engine,
    disk: MemoryDisk,
    store: MemoryStore,
    simulation: Simulation,
    cache: Arc<Mutex<Troubles>>,
    mode: Mode,
    durable: bool,
    next: u64,
}

type Result<T> = std::result::Result<T, (Errno, String)>;

impl House {
    fn new(mode: Mode, durable: bool) -> Self {
        let store = MemoryStore::new(VOLUME_BYTES);
        store.with_bytes(|bytes| bytes.copy_from_slice(&CONTENT));
        let (disk, simulation) = (MemoryDisk::new(CACHE_BYTES as usize), Simulation::new(1));
        let (engine, cache) = start(&disk, &store, &simulation, mode, durable);
        House { engine, disk, store, simulation, cache, mode, durable, next: 0 }
    }

    /// The process dies, and another one takes up the cache; what was broken works again.
    fn crash(&mut self) {
        self.stop();
        self.start();
    }

    fn stop(&mut self) {
        self.engine =
            Engine::new(Box::new(MemoryDisk::new(8 << 20).open()), EngineConfig::default()).unwrap();
    }

    fn start(&mut self) {
        (self.engine, self.cache) = start(&self.disk, &self.store, &self.simulation, self.mode, self.durable);
    }

    fn run(&mut self, task: Task, range: Range<u64>, durable: bool) -> Result<Answer> {
        self.next += 1;
        let asker = Asker { connection: 1, cookie: self.next };
        let (offset, bytes) = (range.start, range.end - range.start);
        self.engine.submit(Job { asker, disk: 0, task, offset, bytes, durable });
        let mut done: Vec<Outcome> = Vec::new();
        for _ in 0..100_000 {
            self.engine.take(&mut done);
            if let Some(outcome) = done.pop() {
                return outcome.result;
            }
            self.simulation.pass(100_000);
        }
        panic!("it does not end");
    }

    fn read(&mut self, range: Range<u64>) -> Result<Vec<u8>> {
        match self.run(Task::Read, range, false)? {
            Answer::Data(pieces) => {
                Ok(pieces.iter().flat_map(|it| it.buffer[it.from..it.from + it.bytes].to_vec()).collect())
            }
            _ => panic!("there are data"),
        }
    }

    fn write(&mut self, range: Range<u64>, value: u8, durable: bool) -> Result<()> {
        let from = (range.start % UNIT) as usize;
        let bytes = (range.end - range.start) as usize;
        let mut buffer = self.engine.lend(from + bytes);
        buffer[from..from + bytes].fill(value);
        self.run(Task::Write(buffer), range, durable).map(drop)
    }

    fn flush(&mut self) -> Result<()> {
        self.run(Task::Flush, 0..0, false).map(drop)
    }

    /// Two seconds pass, in which all ends that is under way.
    fn settle(&mut self) {
        virtual_time::pass(&mut self.engine, &self.simulation, 2_000_000_000, drop);
    }

    /// Where units of the volume lie on the cache's device, as the store has them.
    fn places(&self, units: Range<u64>) -> Vec<Range<u64>> {
        let mut found = HashMap::new();
        self.disk.with_bytes(|bytes| {
            for (at, chunk) in (0u64..).step_by(UNIT as usize).zip(bytes.chunks_exact(UNIT as usize)) {
                found.insert(chunk[..8].to_vec(), at);
            }
        });
        let place = |unit: u64| {
            let start = found[&(unit << 16 | 1 << 63).to_le_bytes()[..]];
            start..start + UNIT
        };
        units.map(place).collect()
    }

    fn spoil(&self, op: Op, places: &[Range<u64>], failing: Failing, times: Option<u32>) {
        for bytes in places {
            let place = BadPlace { op, bytes: bytes.clone(), failing, times };
            self.cache.lock().unwrap().bad_places.add(place);
        }
    }

    fn failures(&self) -> u64 {
        self.engine.counts(0).cache_failures
    }

    fn cache_status(&self) -> CacheStatus {
        self.engine.status().cache
    }

    fn is_stored(&self, range: Range<u64>, value: u8) -> bool {
        let range = range.start as usize..range.end as usize;
        self.store.with_bytes(|bytes| bytes[range].iter().all(|byte| *byte == value))
    }
}

fn start(
    disk: &MemoryDisk,
    store: &MemoryStore,
    simulation: &Simulation,
    mode: Mode,
    durable: bool,
) -> (Engine, Arc<Mutex<Troubles>>) {
    let cache = Simulated::steady(disk.clone(), simulation, 10_000);
    let troubles = cache.troubles();
    let (clock, pause) = (simulation.clone(), simulation.clone());
    let config = EngineConfig {
        clock: Arc::new(move || clock.now_ns()),
        pause: Arc::new(move |time| pause.pass(time.as_nanos() as u64)),
        ..EngineConfig::default()
    };
    let mut engine = match durable {
        true => Engine::open(Box::new(cache), config, false).unwrap().0,
        false => Engine::new(Box::new(cache), config).unwrap(),
    };
    let backing = Simulated::steady(store.clone(), simulation, 10_000);
    engine.add(VolumeConfig { mode, ..VolumeConfig::new("disk") }, Box::new(backing)).unwrap();
    engine.begin_service().unwrap();
    (engine, troubles)
}

/// Runs a test in every mode, with a log and without.
fn in_all_modes(test: impl Fn(Mode, bool)) {
    for mode in MODES {
        for durable in [false, true] {
            test(mode, durable);
        }
    }
}

#[test]
fn a_bad_read_is_a_miss_at_every_size() {
    in_all_modes(|mode, durable| {
        for (round, bytes) in [UNIT, 8 * KIB, 64 * KIB, 256 * KIB, 3 * MIB].into_iter().enumerate() {
            for (failing, times) in FAILINGS.into_iter().zip([None, Some(1), Some(2), None]) {
                let mut house = House::new(mode, durable);
                let range = 64 * KIB..64 * KIB + bytes;
                let expected = content(range.start / UNIT..range.end / UNIT);
                house.read(0..VOLUME_BYTES).unwrap();
                house.settle();
                // The first unit, and one in the midst.
                let middle = (range.start + range.end) / 2 / UNIT;
                let mut places = house.places(range.start / UNIT..range.start / UNIT + 1);
                places.extend(house.places(middle..middle + 1));
                house.spoil(Op::Read, &places, failing, times);
                let told = format!("{mode:?}, log {durable}, round {round}, {failing:?} {times:?}");
                assert!(house.read(range.clone()).unwrap() == expected, "{told}");
                let failures = house.failures();
                assert!(failures > 0 || times.is_some(), "{told}");
                for _ in 0..3 {
                    assert!(house.read(range.clone()).unwrap() == expected, "{told}, again");
                    house.settle();
                }
                assert!(
                    times.is_some() || house.failures() == failures,
                    "{told}: who failed is not asked again"
                );
            }
        }
    });
}

#[test]
fn a_write_over_units_that_cannot_be_read_keeps_what_lies_beside_it() {
    in_all_modes(|mode, durable| {
        for (failing, times) in FAILINGS.into_iter().zip([None, Some(2), None, Some(1)]) {
            let mut house = House::new(mode, durable);
            house.read(0..VOLUME_BYTES).unwrap();
            house.settle();
            let unit = 1000;
            house.spoil(Op::Read, &house.places(unit..unit + 2), failing, times);
            let (first, last) = (unit * UNIT, (unit + 2) * UNIT);
            house.write(first + 2048..last - 2048, 7, false).unwrap();
            let mut expected = content(unit..unit + 2);
            expected[2048..3 * 2048].fill(7);
            let told = format!("{mode:?}, log {durable}, {failing:?} {times:?}");
            assert!(house.read(first..last).unwrap() == expected, "{told}");
            house.flush().unwrap();
            house.engine.close();
            house
                .store
                .with_bytes(|bytes| assert!(bytes[first as usize..last as usize] == expected, "{told}"));
        }
    });
}

#[test]
fn what_the_device_does_not_take_is_kept_until_the_store_has_it_and_a_flush_promises_it() {
    in_all_modes(|mode, durable| {
        // A clean unit, one that is dirty and promised, and one that is not cached.
        for (failing, times) in FAILINGS.into_iter().zip([None, Some(1), None, Some(2)]) {
            for before in ["clean", "dirty", "promised"] {
                let mut house = House::new(mode, durable);
                house.read(0..VOLUME_BYTES).unwrap();
                house.settle();
                let range = 100 * UNIT..116 * UNIT;
                let places = house.places(100..116);
                if before != "clean" {
                    house.write(range.clone(), 1, before == "promised").unwrap();
                }
                house.spoil(Op::Write, &places, failing, times);
                let told = format!("{mode:?}, log {durable}, {failing:?} {times:?}, {before}");
                house.write(range.clone(), 2, false).unwrap();
                assert!(house.read(range.clone()).unwrap().iter().all(|byte| *byte == 2), "{told}");
                house.write(range.start + 512..range.start + 1024, 3, false).unwrap();
                house.flush().unwrap();
                let wrote = house.failures();
                if times.is_none() && mode != Mode::WriteAround {
                    assert!(wrote > 0, "{told}");
                    assert!(
                        house.is_stored(range.start + 1024..range.end, 2),
                        "{told}: a flush has promised it"
                    );
                }
                house.write(range.clone(), 4, true).unwrap();
                assert_eq!(house.failures(), wrote, "{told}: the place is not used again");
                house.crash();
                let read = house.read(range.clone()).unwrap();
                assert!(read.iter().all(|byte| *byte == 4), "{told}, after a restart");
            }
        }
    });
}

#[test]
fn dirty_bytes_are_read_again_before_they_are_given_up() {
    for durable in [false, true] {
        for (times, is_there) in [(Some(1), true), (None, false)] {
            let mut house = House::new(Mode::WriteBack, durable);
            house.read(0..VOLUME_BYTES).unwrap();
            house.settle();
            let place = house.places(100..101);
            house.write(100 * UNIT..101 * UNIT, 9, false).unwrap();
            house.spoil(Op::Read, &place, Failing::Io, times);
            let read = house.read(100 * UNIT..101 * UNIT);
            assert_eq!(read.is_ok(), is_there, "log {durable}: {:?}", read.err());
            // What lies beside it is there in any case.
            assert!(house.read(101 * UNIT..102 * UNIT).unwrap() == content(101..102));
            house.cache.lock().unwrap().bad_places.clear();
            let read = house.read(100 * UNIT..101 * UNIT).unwrap();
            assert!(read.iter().all(|byte| *byte == 9), "it was there, and nobody has given it up");
        }
    }
}

/// What was promised and lost is an error, or what was written over it; never what the store had before, though the store loses that write,
/// which was promised to nobody.
#[test]
fn what_is_written_through_over_lost_bytes_is_never_older_than_they_when_the_store_loses_it() {
    for fails in [false, true] {
        for steps in [0, 1, 2, 4, 8, 100, 200_000] {
            let mut house = House::new(Mode::WriteBack, true);
            house.read(0..VOLUME_BYTES).unwrap();
            house.settle();
            let (range, place) = (100 * UNIT..101 * UNIT, house.places(100..101));
            house.write(range.clone(), 1, true).unwrap();
            if fails {
                house.spoil(Op::Read, &place, Failing::Io, None);
            } else {
                house.settle();
                house.disk.with_bytes(|bytes| bytes[place[0].start as usize] = 0);
            }
            house.engine.begin_write_back(0);
            house.settle();
            assert!(house.engine.counts(0).poisoned_units == 1 && house.read(range.clone()).is_err());
            house.engine.set_mode(0, Mode::WriteThrough).unwrap();
            house.write(range.clone(), 2, false).unwrap();
            let told = format!("its place fails: {fails}, {steps} requests' time later");
            assert!(house.read(range.clone()).unwrap().iter().all(|byte| *byte == 2), "{told}");
            for _ in 0..steps {
                house.engine.take(&mut Vec::new());
                house.simulation.pass(10_000);
            }
            house.stop();
            house.store.crash();
            house.start();
            let is_newer = |bytes: Vec<u8>| bytes.iter().all(|byte| *byte == 1 || *byte == 2);
            let read = house.read(range.clone());
            assert!(read.is_err() || read.is_ok_and(is_newer), "{told}");
            let mut drops = Drops::default();
            while !house.engine.drop_clean(0, &mut drops) {}
            let read = house.read(range.clone());
            assert!(read.is_err() || read.is_ok_and(is_newer), "{told}, from the store");
        }
    }
}

#[test]
fn a_cache_that_fails_in_many_places_goes_out_of_use_and_the_stores_serve_alone() {
    in_all_modes(|mode, durable| {
        let mut house = House::new(mode, durable);
        house.read(0..VOLUME_BYTES).unwrap();
        house.write(0..64 * KIB, 5, false).unwrap();
        house.settle();
        assert!(!house.cache_status().out_of_use);
        let places = house.places(64..VOLUME_BYTES / UNIT);
        house.spoil(Op::Read, &places, Failing::Io, None);
        house.spoil(Op::Write, &places, Failing::Io, None);
        let all = house.read(0..VOLUME_BYTES).unwrap();
        assert!(all[..64 << 10].iter().all(|byte| *byte == 5));
        assert!(all[256 << 10..] == content(64..VOLUME_BYTES / UNIT), "{mode:?}, log {durable}");
        let status = house.cache_status();
        assert!(status.out_of_use && status.retired_bytes >= MIB, "{status:?}");
        // All that is dirty goes to the stores at once.
        house.settle();
        assert!(house.cache_status().dirty_bytes == 0 && house.is_stored(0..64 * KIB, 5));
        let before = *house.engine.counts(0);
        for round in 6..9 {
            house.write(3 * MIB..3 * MIB + 64 * KIB, round, false).unwrap();
            house.write(round as u64 * 512..9000, round, false).unwrap();
            let read = house.read(3 * MIB..3 * MIB + 64 * KIB).unwrap();
            assert!(read.iter().all(|byte| *byte == round));
            assert!(house.read(8000..9000).unwrap().iter().all(|byte| *byte == round));
            house.flush().unwrap();
            assert!(house.is_stored(3 * MIB..3 * MIB + 64 * KIB, round));
        }
        let after = *house.engine.counts(0);
        assert_eq!(
            (after.cache_reads, after.cache_writes, after.cache_failures),
            (before.cache_reads, before.cache_writes, before.cache_failures),
            "the device is left alone"
        );
        if durable {
            // A restart takes the cache up again, and nothing in it is older than the store.
            house.crash();
            assert!(!house.cache_status().out_of_use);
            assert!(house.read(3 * MIB..3 * MIB + 64 * KIB).unwrap().iter().all(|byte| *byte == 8));
        }
    });
}

/// A restart would take up what it got, also where the store has lost that, and has older content.
#[test]
fn a_cache_that_is_out_of_use_gets_nothing_beside_lost_bytes_either() {
    for durable in [false, true] {
        let mut house = House::new(Mode::WriteBack, durable);
        // The two blocks that are written over do not lie one behind the other in the cache.
        house.read(512 * KIB..768 * KIB).unwrap();
        house.read(0..VOLUME_BYTES).unwrap();
        house.settle();
        let lost = house.places(100..101);
        house.write(100 * UNIT..101 * UNIT, 1, durable).unwrap();
        let places = house.places(512..VOLUME_BYTES / UNIT);
        house.spoil(Op::Read, &places, Failing::Io, None);
        house.spoil(Op::Read, &lost, Failing::Io, None);
        house.read(2 * MIB..VOLUME_BYTES).unwrap();
        house.settle();
        assert!(house.cache_status().out_of_use && house.engine.counts(0).poisoned_units == 1);
        let writes = house.engine.counts(0).cache_writes;
        let range = 99 * UNIT..140 * UNIT;
        house.write(range.clone(), 2, false).unwrap();
        assert!(house.read(range.clone()).unwrap().iter().all(|byte| *byte == 2));
        assert_eq!(house.engine.counts(0).cache_writes, writes, "log {durable}");
        house.flush().unwrap();
        assert!(house.is_stored(range, 2));
        house.settle();
        assert_eq!(house.cache_status().dirty_bytes, 0);
    }
}

/// The log's place on the device.
fn log(house: &House) -> Range<u64> {
    let config =
        LayoutConfig { block_bytes: EngineConfig::default().sizes_bytes, group_bytes: None, log_bytes: None };
    let layout = Layout::plan(house.disk.with_bytes(|bytes| bytes.len() as u64), &config).unwrap();
    0..layout.data_at
}

#[test]
fn with_a_log_that_failed_all_reads_go_on_those_too_that_would_have_filled() {
    for mode in MODES {
        for (op, failing) in
            [(Op::Write, Failing::Full), (Op::Write, Failing::ReadOnly), (Op::Sync, Failing::Io)]
        {
            let mut house = House::new(mode, true);
            house.read(0..MIB).unwrap();
            house.write(0..64 * KIB, 5, true).unwrap();
            house.settle();
            let log = log(&house);
            house.spoil(op, std::slice::from_ref(&log), failing, None);
            // Whoever waits for the log is told, or has what it needs without it.
            let told = format!("{mode:?}, {op:?} {failing:?}");
            let _ = house.write(64 * KIB..128 * KIB, 6, true);
            let early = house.write(256 * KIB..320 * KIB, 7, false).is_ok();
            house.settle();
            assert!(house.cache_status().log.unwrap().failure.is_some(), "{told}");
            let all = house.read(0..VOLUME_BYTES).unwrap();
            assert!(all[..64 << 10].iter().all(|byte| *byte == 5), "{told}");
            let is_old = all[256 << 10..320 << 10] == content(64..80);
            assert!(all[256 << 10] == 7 && early || is_old && !early, "{told}: {early}");
            assert!(all[2 << 20..] == content(512..VOLUME_BYTES / UNIT), "{told}");
            house.run(Task::Prefetch, 0..MIB, false).unwrap();
            assert!(house.read(0..VOLUME_BYTES).unwrap() == all, "{told}");
            assert!(house.write(0..UNIT, 8, false).is_err() && house.flush().is_err(), "{told}");
        }
    }
}

#[test]
fn what_the_store_got_after_the_log_has_failed_is_read_there_where_the_device_fails_too() {
    for is_early in [false, true] {
        let mut house = House::new(Mode::WriteBack, true);
        house.read(0..MIB).unwrap();
        house.settle();
        let places = house.places(0..16);
        house.write(0..64 * KIB, 5, true).unwrap();
        let log = log(&house);
        if is_early {
            // The store has it, and the log does not say so yet.
            house.engine.begin_write_back(0);
            house.cache.lock().unwrap().sync_ns = 100_000_000;
            while !house.is_stored(0..64 * KIB, 5) {
                house.engine.take(&mut Vec::new());
                house.simulation.pass(1_000);
            }
        }
        house.spoil(Op::Sync, std::slice::from_ref(&log), Failing::Io, None);
        let _ = house.write(64 * KIB..128 * KIB, 6, true);
        house.settle();
        assert!(house.cache_status().log.unwrap().failure.is_some());
        house.engine.begin_write_back(0);
        house.settle();
        assert!(house.is_stored(0..64 * KIB, 5), "it is written back without the log");
        house.spoil(Op::Read, &places, Failing::Io, None);
        assert!(house.read(0..64 * KIB).unwrap().iter().all(|byte| *byte == 5));
        assert!(house.failures() > 0 && house.cache_status().dirty_bytes == 0, "early {is_early}");
    }
}

#[test]
fn reads_that_wait_for_the_log_when_it_fails_are_answered() {
    let mut house = House::new(Mode::WriteBack, true);
    // More than the cache holds, so that what a read brings takes the place of something of which the log must speak first.
    let log = log(&house);
    house.cache.lock().unwrap().sync_ns = 1_000_000_000;
    house.write(0..VOLUME_BYTES, 5, false).unwrap();
    house.spoil(Op::Sync, std::slice::from_ref(&log), Failing::Io, None);
    for at in (0..VOLUME_BYTES).step_by(MIB as usize) {
        assert!(house.read(at..at + MIB).unwrap().iter().all(|byte| *byte == 5), "{at}");
    }
}
