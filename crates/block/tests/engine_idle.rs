//! What was overwritten is checked after a crash, once nobody has written to it for a while: damage is an error and never data.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::sync::Arc;

use tiermem_base::Rng;
use tiermem_block::disks::{Answer, Asker, Disks, Job, Task};
use tiermem_block::engine::{Engine, EngineConfig, VolumeConfig};
use tiermem_tier::backing::MemoryStore;
use tiermem_tier::block::{MemoryDisk, Simulated, Simulation};

const UNIT: u64 = 4096;
const UNITS: u64 = 200;
/// Two seconds in which nothing happens, in the steps of the live engine's clock.
const IDLE_STEPS: u64 = 40;
const STEP_NS: u64 = 50_000_000;

fn start(simulation: &Simulation, cache: &MemoryDisk, store: &MemoryStore) -> (Engine, u64) {
    let (clock, pause) = (simulation.clone(), simulation.clone());
    let config = EngineConfig {
        log_bytes: Some(512 << 10),
        clock: Arc::new(move || clock.now_ns()),
        pause: Arc::new(move |time| pause.pass(time.as_nanos() as u64)),
        ..EngineConfig::default()
    };
    let device = Simulated::new(cache.clone(), simulation);
    let (mut engine, recovered) = Engine::open(Box::new(device), config, false).unwrap();
    engine.add(VolumeConfig::new("disk"), Box::new(Simulated::new(store.clone(), simulation))).unwrap();
    engine.begin_service().unwrap();
    (engine, recovered.unchecked.iter().map(|(_, bytes)| bytes.end - bytes.start).sum())
}

/// Asks and waits; the bytes of a read, `None` where it fails.
fn ask(engine: &mut Engine, simulation: &Simulation, task: Task, unit: u64) -> Option<Vec<u8>> {
    let asker = Asker { connection: 1, cookie: 1 };
    let (offset, bytes) = if matches!(task, Task::Flush) { (0, 0) } else { (unit * UNIT, UNIT) };
    engine.submit(Job { asker, disk: 0, task, offset, bytes, durable: false });
    let mut done = Vec::new();
    for _ in 0..100_000 {
        simulation.pass(100_000);
        engine.take(&mut done);
        match done.pop().map(|outcome| outcome.result) {
            None => {}
            Some(Ok(Answer::Data(pieces))) => {
                let all = pieces.iter().flat_map(|it| it.buffer[it.from..it.from + it.bytes].to_vec());
                return Some(all.collect());
            }
            Some(Ok(_)) => return Some(Vec::new()),
            Some(Err(_)) => return None,
        }
    }
    panic!("no answer");
}

/// The bytes of a unit in its version.
fn content(unit: u64, version: u64) -> Vec<u8> {
    let words =
        (0..UNIT / 32).flat_map(|word| format!("unit {unit:08} {version:08} {word:08}\n").into_bytes());
    words.chain(std::iter::repeat(0)).take(UNIT as usize).collect()
}

/// Writes all units twice, and flushes; the second time over dirty ones.
fn write_all(engine: &mut Engine, simulation: &Simulation) {
    for version in 0..2 {
        for unit in 0..UNITS {
            let mut buffer = engine.lend(UNIT as usize);
            buffer[..UNIT as usize].copy_from_slice(&content(unit, version));
            ask(engine, simulation, Task::Write(buffer), unit).unwrap();
        }
        ask(engine, simulation, Task::Flush, 0).unwrap();
    }
}

#[test]
fn after_two_idle_seconds_damage_is_an_error_and_never_data() {
    let mut rng = Rng::seeded(11);
    for round in 0..4 {
        let (simulation, cache) = (Simulation::new(round), MemoryDisk::new(6 << 20));
        let store = MemoryStore::new(UNITS * UNIT);
        let (mut engine, _) = start(&simulation, &cache, &store);
        write_all(&mut engine, &simulation);
        for _ in 0..IDLE_STEPS {
            simulation.pass(STEP_NS);
            engine.take(&mut Vec::new());
        }
        assert!(engine.dirty_bytes() == UNITS * UNIT, "nothing was written back");
        drop(engine);
        // A bit, a sector, all of the unit: in 25 of them each round.
        let mut damaged = std::collections::BTreeSet::new();
        cache.with_bytes(|bytes| {
            while damaged.len() < 25 {
                let unit = rng.below(UNITS);
                let wanted = content(unit, 1);
                let at = bytes.windows(64).step_by(UNIT as usize).position(|it| it == &wanted[..64]);
                let Some(at) = at.map(|at| at * UNIT as usize) else { continue };
                match rng.below(3) {
                    0 => bytes[at + rng.below(UNIT) as usize] ^= 1 << rng.below(8),
                    1 => bytes[at + 512 * rng.below(8) as usize..][..512].fill(0),
                    _ => bytes[at..at + UNIT as usize].fill(0),
                }
                damaged.insert(unit);
            }
        });
        let (mut engine, unchecked_bytes) = start(&simulation, &cache, &store);
        assert_eq!((unchecked_bytes, engine.status().cache.unchecked_bytes), (0, 0));
        for unit in 0..UNITS {
            let found = ask(&mut engine, &simulation, Task::Read, unit);
            let expected = (!damaged.contains(&unit)).then(|| content(unit, 1));
            assert!(found == expected, "round {round}, unit {unit}: {:?}", found.map(|it| it[..32].to_vec()));
        }
        engine.close();
        // Nor do they reach the store, which may have the version that was flushed first.
        store.with_bytes(|bytes| {
            for unit in 0..UNITS {
                let found = &bytes[(unit * UNIT) as usize..][..UNIT as usize];
                let is_older = found == content(unit, 0) || found.iter().all(|it| *it == 0);
                assert!(if damaged.contains(&unit) { is_older } else { found == content(unit, 1) }, "{unit}");
            }
        });
    }
}

#[test]
fn what_cannot_be_checked_is_counted_and_told() {
    let (simulation, cache) = (Simulation::new(1), MemoryDisk::new(6 << 20));
    let store = MemoryStore::new(UNITS * UNIT);
    let (mut engine, _) = start(&simulation, &cache, &store);
    write_all(&mut engine, &simulation);
    drop(engine);
    let wanted = content(7, 1);
    cache.with_bytes(|bytes| {
        let at = bytes.windows(64).step_by(UNIT as usize).position(|it| it == &wanted[..64]).unwrap();
        bytes[at * UNIT as usize + 1000] ^= 1;
    });
    let (engine, unchecked_bytes) = start(&simulation, &cache, &store);
    assert_eq!((unchecked_bytes, engine.status().cache.unchecked_bytes), (UNIT, UNIT));
}
