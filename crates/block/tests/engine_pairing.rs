//! Pairs of a cache and a store over crashes: a start that is right is taken wherever the machine died before, and one that is wrong is
//! refused before anything is lost. The decision alone is tested beside it (`policy/src/extents/pairing.rs`).
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::sync::Arc;

use tiermem_base::Rng;
use tiermem_block::disks::{Answer, Asker, Disks, Job, Piece, Task};
use tiermem_block::engine::{Engine, EngineConfig, EngineError, VolumeConfig};
use tiermem_policy::extents::Mode;
use tiermem_policy::extents::cleaner::{CleanerRules, WriteBackOrder};
use tiermem_policy::extents::pairing::{Accepted, Label};
use tiermem_tier::backing::{Backing, MemoryStore, StoreLabel};
use tiermem_tier::block::{MemoryDisk, Simulated, Simulation};

const VOLUME: u64 = 1 << 20;
const UNIT: u64 = 4096;

struct Machine {
    simulation: Simulation,
    cache: MemoryDisk,
    store: MemoryStore,
    mode: Mode,
    order: WriteBackOrder,
    accepted: Accepted,
    reset: bool,
}

impl Machine {
    fn new(mode: Mode) -> Self {
        let (simulation, cache, store) =
            (Simulation::new(1), MemoryDisk::new(4 << 20), MemoryStore::new(VOLUME));
        let order = WriteBackOrder::default();
        Machine { simulation, cache, store, mode, order, accepted: Accepted::Nothing, reset: false }
    }

    /// Starts a server; `None`: the machine died of it.
    fn start(&self) -> Result<Option<Engine>, EngineError> {
        let clock = self.simulation.clone();
        let pause = self.simulation.clone();
        let config = EngineConfig {
            log_bytes: Some(512 << 10),
            cleaning: CleanerRules { order: self.order, ..CleanerRules::default() },
            clock: Arc::new(move || clock.now_ns()),
            pause: Arc::new(move |time| pause.pass(time.as_nanos() as u64)),
            ..EngineConfig::default()
        };
        let device = Simulated::new(self.cache.clone(), &self.simulation);
        let backing = Simulated::new(self.store.clone(), &self.simulation);
        let volume = VolumeConfig { mode: self.mode, accepted: self.accepted, ..VolumeConfig::new("disk") };
        let started = Engine::open(Box::new(device), config, self.reset).and_then(|(mut engine, _)| {
            engine.add(volume, Box::new(backing))?;
            engine.begin_service()?;
            Ok(engine)
        });
        if self.simulation.is_dead() { Ok(None) } else { started.map(Some) }
    }

    fn started(&self) -> Engine {
        self.start().unwrap().expect("nobody dies")
    }

    fn ask(&self, engine: &mut Engine, task: Task, offset: u64, bytes: u64) -> Option<Vec<u8>> {
        let asker = Asker { connection: 1, cookie: 1 };
        engine.submit(Job { asker, disk: 0, task, offset, bytes, durable: false });
        let mut done = Vec::new();
        for _ in 0..100_000 {
            self.simulation.pass(100_000);
            engine.take(&mut done);
            if self.simulation.is_dead() {
                return None;
            }
            if let Some(outcome) = done.pop() {
                return match outcome.result.unwrap() {
                    Answer::Data(pieces) => {
                        let bytes = |it: &Piece| it.buffer[it.from..it.from + it.bytes].to_vec();
                        Some(pieces.iter().flat_map(bytes).collect())
                    }
                    _ => Some(Vec::new()),
                };
            }
        }
        panic!("no answer");
    }

    /// Writes a unit that says `value` everywhere, and flushes; whether that was done before the machine died.
    fn write(&self, engine: &mut Engine, unit: u64, value: u8) -> bool {
        let mut buffer = engine.lend(UNIT as usize);
        buffer[..UNIT as usize].fill(value);
        self.ask(engine, Task::Write(buffer), unit * UNIT, UNIT).is_some()
            && self.ask(engine, Task::Flush, 0, 0).is_some()
    }

    fn read(&self, engine: &mut Engine, unit: u64) -> u8 {
        let bytes = self.ask(engine, Task::Read, unit * UNIT, UNIT).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    }

    fn label(&self) -> Option<Label> {
        match self.store.open().label().unwrap() {
            StoreLabel::Text(text) => text.parse().ok(),
            _ => None,
        }
    }
}

/// What is to be refused: by which error.
fn refusal(machine: &Machine) -> &'static str {
    let label = machine.label();
    let refused = match machine.start().map(drop) {
        Ok(()) => "taken",
        Err(EngineError::WrongStore { .. }) => "wrong store",
        Err(EngineError::ShortStore { .. }) => "short store",
        Err(EngineError::WrongCache { .. }) => "wrong cache",
        Err(other) => panic!("{other}"),
    };
    assert!(refused == "taken" || machine.label() == label, "a refused start changes nothing");
    refused
}

#[test]
fn a_start_that_is_right_is_taken_wherever_the_machine_died_before() {
    for (mode, power) in [(Mode::WriteBack, false), (Mode::WriteBack, true), (Mode::WriteThrough, false)] {
        let machine = Machine::new(mode);
        let mut rng = Rng::seeded(7);
        let mut promised = 1;
        assert!(machine.write(&mut machine.started(), 3, promised));
        let mut survived = 0;
        for steps in 0.. {
            assert!(steps < 1000, "a life has an end");
            machine.simulation.restart();
            machine.simulation.die_after(steps);
            let mut possible = vec![promised];
            if let Some(mut engine) = machine.start().unwrap() {
                let value = 2 + (steps % 250) as u8;
                possible.push(value);
                if machine.write(&mut engine, 3, value) {
                    possible = vec![value];
                    // Stops in order, which a machine may survive or not.
                    engine.close();
                }
            }
            survived += u32::from(!machine.simulation.is_dead());
            machine.simulation.restart();
            if power {
                machine.cache.lose_some_unsynced(&mut rng);
                machine.store.crash_some(&mut rng);
            }
            let mut engine =
                machine.start().unwrap_or_else(|error| panic!("{mode:?}, {steps} steps: {error}")).unwrap();
            promised = machine.read(&mut engine, 3);
            assert!(possible.contains(&promised), "{mode:?}, {steps} steps: {promised} of {possible:?}");
            let label = machine.label().unwrap();
            assert!(
                label.may_lack || mode == Mode::WriteThrough,
                "while it may be dirty the store's label says so"
            );
            if survived == 3 {
                break;
            }
        }
    }
}

/// A machine that died with unit 3 dirty in its cache: 7, where its store has nothing.
fn dirty() -> Machine {
    // In groups a start would write back at once what a crash has left dirty.
    let machine = Machine { order: WriteBackOrder::Flush, ..Machine::new(Mode::WriteBack) };
    assert!(machine.write(&mut machine.started(), 3, 7));
    machine
}

/// The store's byte at the begin of unit 3.
fn stored(machine: &Machine) -> u8 {
    machine.store.with_bytes(|bytes| bytes.get(3 * UNIT as usize).copied().unwrap_or(0))
}

#[test]
fn a_store_that_is_not_the_one_is_refused_and_taken_or_given_up_on_the_operators_word() {
    for accepted in [Accepted::Store, Accepted::Loss] {
        // Another one, of the same size; a copy of the right one, with its label; one that has lost its label.
        for case in 0..3 {
            let mut machine = dirty();
            let label = machine.label().unwrap().to_string();
            if case < 2 {
                machine.store = MemoryStore::new(VOLUME);
            }
            if case == 1 {
                machine.store.open().set_label(&label).unwrap();
            }
            if case == 2 {
                machine.store.open().set_label("").unwrap();
            }
            assert_eq!(refusal(&machine), "wrong store", "{case}");
            assert_eq!(refusal(&machine), "wrong store", "{case}: again");
            machine.accepted = accepted;
            let mut engine = machine.started();
            assert_eq!(machine.read(&mut engine, 3), if accepted == Accepted::Store { 7 } else { 0 });
            engine.close();
            assert_eq!(stored(&machine), if accepted == Accepted::Store { 7 } else { 0 });
            machine.accepted = Accepted::Nothing;
            assert_eq!(refusal(&machine), "taken", "{case}: they are a pair now");
        }
    }
}

#[test]
fn a_store_that_shrank_is_refused_and_one_that_changed_its_size_with_nothing_dirty_is_read_anew() {
    let mut machine = dirty();
    machine.store.resize(VOLUME / 2);
    assert_eq!(refusal(&machine), "wrong store");
    machine.store.resize(3 * UNIT);
    assert_eq!(refusal(&machine), "short store");
    machine.accepted = Accepted::Store;
    assert_eq!(refusal(&machine), "short store", "it cannot be written there");
    machine.store.resize(VOLUME);
    machine.accepted = Accepted::Nothing;
    let mut engine = machine.started();
    assert_eq!(machine.read(&mut engine, 3), 7, "nothing was lost");
    engine.close();
    drop(engine);
    machine.store.resize(2 * VOLUME);
    machine.store.with_bytes(|bytes| bytes[3 * UNIT as usize..4 * UNIT as usize].fill(9));
    assert_eq!(machine.read(&mut machine.started(), 3), 9);
}

#[test]
fn a_cache_that_is_absent_is_missed_until_the_operator_gives_its_data_up() {
    let mut machine = dirty();
    let old = std::mem::replace(&mut machine.cache, MemoryDisk::new(4 << 20));
    assert_eq!(refusal(&machine), "wrong cache");
    // The right one is there again: nothing has happened.
    let new = std::mem::replace(&mut machine.cache, old);
    assert_eq!(machine.read(&mut machine.started(), 3), 7);
    let old = std::mem::replace(&mut machine.cache, new);
    machine.accepted = Accepted::Store;
    assert_eq!(refusal(&machine), "wrong cache", "it has nothing to write there");
    machine.accepted = Accepted::Loss;
    let mut engine = machine.started();
    assert_eq!(machine.read(&mut engine, 3), 0);
    assert!(machine.write(&mut engine, 3, 8));
    engine.close();
    drop(engine);
    machine.accepted = Accepted::Nothing;
    assert_eq!(refusal(&machine), "taken");
    // The old one returns, with dirty data that are older than what the store has.
    machine.cache = old;
    assert_eq!(refusal(&machine), "wrong store");
    assert_eq!(stored(&machine), 8);
    machine.accepted = Accepted::Loss;
    assert_eq!(machine.read(&mut machine.started(), 3), 8);
}

#[test]
fn a_cache_that_was_away_while_its_store_was_written_serves_nothing_stale() {
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        let mut machine = Machine::new(mode);
        let mut engine = machine.started();
        assert!(machine.write(&mut engine, 3, 7));
        // One that is killed with nothing dirty; or stopped.
        engine.close();
        drop(engine);
        if mode == Mode::WriteThrough {
            drop(machine.started());
        }
        let away = std::mem::replace(&mut machine.cache, MemoryDisk::new(4 << 20));
        let mut engine = machine.started();
        assert!(machine.write(&mut engine, 3, 8));
        if mode == Mode::WriteBack {
            engine.close();
        }
        drop(engine);
        machine.cache = away;
        assert_eq!(machine.read(&mut machine.started(), 3), 8, "{mode:?}");
    }
}

#[test]
fn a_cache_that_is_overwritten_on_purpose_needs_no_other_word_and_another_one_does() {
    let mut machine = dirty();
    machine.reset = true;
    assert_eq!(machine.read(&mut machine.started(), 3), 0);
    let mut machine = dirty();
    machine.cache = MemoryDisk::new(4 << 20);
    machine.reset = true;
    assert_eq!(refusal(&machine), "wrong cache");
}

#[test]
fn a_volume_that_is_set_to_write_back_is_missed_from_its_first_dirty_byte_on() {
    let mut machine = Machine::new(Mode::WriteThrough);
    let mut engine = machine.started();
    assert!(!machine.label().unwrap().may_lack);
    engine.set_mode(0, Mode::WriteBack).unwrap();
    assert!(machine.label().unwrap().may_lack);
    assert!(machine.write(&mut engine, 3, 7));
    drop(engine);
    machine.cache = MemoryDisk::new(4 << 20);
    assert_eq!(refusal(&machine), "wrong cache");
}
