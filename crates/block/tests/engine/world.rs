//! World of the engine tests: a cache with volumes, its clients, and the answers that they may get.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tiermem_base::Rng;
use tiermem_block::disks::{Answer, Asker, Disks, Job, Outcome, Piece, Task, UNIT_BYTES};
use tiermem_block::engine::{Drops, Engine, EngineConfig, VolumeConfig};
use tiermem_block::nbd::{Contexts, Errno};
use tiermem_policy::extents::Mode;
use tiermem_policy::extents::cleaner::CleanerRules;
use tiermem_tier::backing::MemoryStore;
use tiermem_tier::block::{BadPlace, MemoryDisk, Op, Simulated, Simulation};

use crate::bad_places::{Devices, Spoiled};
use crate::setup::{KIB, Setup};
use crate::stamp::{Entry, STAMP_BYTES, Stamp, assert_described, stamps_of, value_of};

struct Flight {
    volume: usize,
    range: Range<u64>,
    kind: Kind,
    /// For a write: what each stamp becomes.
    value: u64,
    durable: bool,
    /// Its number: requests are numbered as they are sent.
    began: u64,
    /// The store lacked something of its range when it was sent or later, as it may while a write is under way or has been.
    lacked: bool,
}

#[derive(Clone)]
struct Model {
    stamps: Vec<Stamp>,
    /// Units that a process found lost when it took up the cache: reading them is an error until they are written anew.
    lost: Vec<bool>,
    /// Flushes that were acknowledged.
    epoch: u64,
}

pub struct World {
    pub setup: Setup,
    pub engine: Engine,
    pub stores: Vec<MemoryStore>,
    pub disk: MemoryDisk,
    pub simulation: Simulation,
    models: Vec<Model>,
    /// In the order in which they were sent, so that a run follows from its seed.
    flights: BTreeMap<u64, Flight>,
    next: u64,
    /// Looks since something was answered.
    idle_looks: u32,
    pub rng: Rng,
    pub devices: Devices,
    pub spoiled: Spoiled,
}

impl World {
    pub fn new(setup: &Setup, seed: u64) -> Self {
        let disk = MemoryDisk::new(setup.cache_bytes as usize);
        let stores: Vec<_> = setup.modes.iter().map(|_| MemoryStore::new(setup.volume_bytes)).collect();
        let stamps = vec![Stamp::new(0); setup.volume_bytes.div_ceil(STAMP_BYTES) as usize];
        let lost = vec![false; setup.volume_bytes.div_ceil(UNIT_BYTES) as usize];
        let model = Model { stamps, lost, epoch: 0 };
        let simulation = Simulation::new(seed);
        let (engine, devices) = start(setup, &disk, &stores, &simulation, &[]).expect("nothing has died");
        World {
            setup: setup.clone(),
            engine,
            models: vec![model; stores.len()],
            stores,
            disk,
            simulation,
            flights: BTreeMap::new(),
            next: 0,
            idle_looks: 0,
            rng: Rng::seeded(seed ^ 0x5eed),
            devices,
            spoiled: Spoiled::default(),
        }
    }

    /// The process dies, and perhaps its machine with it; then another one takes up the cache, and may die of that as well.
    pub fn crash(&mut self, power: bool) {
        if self.setup.failures_per_mille == 0 && !self.setup.bad_places && !self.simulation.is_dead() {
            self.check_cache(true);
        }
        let mut may_be_lost = if self.setup.bad_places { self.those_that_may_be_lost() } else { Vec::new() };
        // What the stores got after the log had failed is dirty for the next process, or lost, or was kept in DRAM. It must not give out
        // what the stores have where it has no such bytes: nothing says that this is as new.
        let is_log_stale = self.has_log_failed();
        if is_log_stale && self.has_failed_places() {
            may_be_lost.iter_mut().for_each(|units| units.fill(true));
        }
        self.flights.clear();
        self.idle_looks = 0;
        let idle = Engine::new(Box::new(MemoryDisk::new(8 << 20).open()), EngineConfig::default()).unwrap();
        // What was in flight dies with the engine.
        self.engine = idle;
        if power {
            self.lose_power();
        }
        loop {
            self.simulation.restart();
            if self.rng.below(4) == 0 {
                self.simulation.die_after(self.rng.below(60));
            }
            self.spoiled.restart();
            let places = self.spoil_start();
            if is_log_stale && places.iter().any(|place| place.op == Op::Read) {
                may_be_lost.iter_mut().for_each(|units| units.fill(true));
            }
            let started = start(&self.setup, &self.disk, &self.stores, &self.simulation, &places);
            if let Some(started) = started {
                self.simulation.restart();
                (self.engine, self.devices) = started;
                break;
            }
            if power || self.rng.below(2) == 0 {
                self.lose_power();
            }
        }
        self.look_at_all(&may_be_lost);
    }

    fn lose_power(&mut self) {
        self.disk.lose_some_unsynced(&mut self.rng);
        // In the other modes what a store lost of what it had not flushed may still be cached as clean: docs/block-design.md.
        let can_lose = self.setup.modes.iter().all(|mode| *mode == Mode::WriteBack);
        if can_lose && self.rng.below(2) == 0 {
            self.stores.iter().for_each(|store| store.crash_some(&mut self.rng));
        }
    }

    /// Reads bytes of a volume while no other request is in flight; `None`: it cannot.
    fn read_alone(&mut self, volume: usize, range: Range<u64>) -> Option<Vec<u8>> {
        self.next += 1;
        let asker = Asker { connection: 2, cookie: self.next };
        let (offset, bytes) = (range.start, range.end - range.start);
        self.engine.submit(Job { asker, disk: volume, task: Task::Read, offset, bytes, durable: false });
        let mut done = Vec::new();
        for _ in 0..100_000 {
            self.simulation.pass(100_000);
            self.engine.take(&mut done);
            if !done.is_empty() {
                break;
            }
        }
        match done.pop().expect("the volume is read").result {
            Ok(Answer::Data(pieces)) => Some(bytes_of(&pieces)),
            other => {
                // What a failed write has lost is an error until it is written anew.
                let may_fail = self.setup.failures_per_mille > 0 || self.setup.bad_places;
                assert!(may_fail, "volume {volume}: {other:?}");
                None
            }
        }
    }

    /// Reads all volumes: what survived a crash is one of what may, and stays. Only these units of each volume may have been lost.
    fn look_at_all(&mut self, may_be_lost: &[Vec<bool>]) {
        for volume in 0..self.models.len() {
            let size = self.engine.exports()[volume].size_bytes;
            if let Some(bytes) = self.read_alone(volume, 0..size) {
                self.survive(volume, 0, &bytes);
            } else {
                for start in (0..size).step_by(UNIT_BYTES as usize) {
                    let range = start..(start + UNIT_BYTES).min(size);
                    let unit = (start / UNIT_BYTES) as usize;
                    let read = self.read_alone(volume, range.clone());
                    self.models[volume].lost[unit] = read.is_none();
                    if let Some(bytes) = read {
                        self.survive(volume, start, &bytes);
                        continue;
                    }
                    let may_be_lost = may_be_lost.get(volume).is_none_or(|units| units[unit]);
                    assert!(may_be_lost, "volume {volume}, byte {start}: it is an error after the crash");
                    stamps_of(&range).for_each(|at| self.models[volume].stamps[at].loosen(0, 0));
                }
            }
            self.models[volume].epoch = 0;
        }
    }

    /// After a crash, checks that a volume's bytes from a position on are allowed; they must stay so.
    fn survive(&mut self, volume: usize, start: u64, bytes: &[u8]) {
        let first = (start / STAMP_BYTES) as usize;
        for (at, stamped) in (first..).zip(bytes.chunks(STAMP_BYTES as usize)) {
            let value = value_of(stamped).unwrap_or_else(|| panic!("volume {volume}, stamp {at}: a mix"));
            let stamp = &mut self.models[volume].stamps[at];
            assert!(
                stamp.may_survive(value),
                "volume {volume}, stamp {at}: {value} after the crash, may be {:?}",
                &stamp.history[stamp.durable..]
            );
            stamp.survive(value);
        }
    }

    /// Sends a random request. Writes that overlap in time do not overlap in place, as the result would be undefined.
    pub fn send_random(&mut self) {
        let volume = self.rng.below(self.models.len() as u64) as usize;
        let size = self.engine.exports()[volume].size_bytes;
        let is_aligned = self.rng.below(3) > 0;
        let step = if is_aligned { UNIT_BYTES } else { STAMP_BYTES };
        let bytes_max =
            [4 * KIB, 16 * KIB, 64 * KIB, 300 * KIB, 3000 * KIB][self.rng.below(5) as usize].min(size);
        let bytes = (1 + self.rng.below(bytes_max / step)) * step;
        // Most requests go to a part of the volume.
        let reach = if self.rng.below(3) > 0 { size / 8 } else { size };
        let offset = self.rng.below(reach / step) * step;
        let bytes = bytes.min(size - offset);
        let range = offset..offset + bytes;
        match self.rng.below(20) {
            0..=8 => self.send(volume, Kind::Read, range, false),
            9..=15 => {
                let durable = self.rng.below(10) == 0;
                self.send(volume, Kind::Write, range, durable);
            }
            16 => self.send(volume, Kind::Zero, range, false),
            17 => self.send(volume, Kind::Prefetch, range, false),
            18 if self.rng.below(3) == 0 => self.send(volume, Kind::Describe, range, false),
            18 => self.send(volume, Kind::Trim, range, false),
            _ => self.send(volume, Kind::Flush, 0..0, false),
        }
    }

    /// Does what an operator may do, at random.
    pub fn steer_random(&mut self) {
        let volume = self.rng.below(self.models.len() as u64) as usize;
        match self.rng.below(6) {
            0..=2 => {
                let modes = [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround];
                self.engine.set_mode(volume, modes[self.rng.below(3) as usize]).unwrap();
            }
            3 => {
                let quota = (self.rng.below(2) == 0).then(|| self.rng.below(self.setup.cache_bytes / 2));
                self.engine.set_quota(volume, quota).unwrap();
            }
            4 => drop(self.engine.begin_write_back(volume)),
            _ => {
                let mut drops = Drops::default();
                self.engine.drop_clean(volume, &mut drops);
            }
        }
    }

    pub fn send(&mut self, volume: usize, kind: Kind, range: Range<u64>, durable: bool) {
        let writes = kind.writes();
        let clashes = |flight: &Flight| {
            flight.volume == volume
                && flight.kind.writes()
                && flight.range.start < range.end
                && range.start < flight.range.end
        };
        if range.is_empty() && kind != Kind::Flush || writes && self.flights.values().any(clashes) {
            return;
        }
        self.next += 1;
        let cookie = self.next;
        let value = if kind == Kind::Write { cookie } else { 0 };
        let epoch_sent = self.models[volume].epoch;
        if kind == Kind::Trim {
            for at in stamps_of(&range) {
                self.models[volume].stamps[at].loosen(cookie, epoch_sent);
            }
        } else if writes {
            for at in stamps_of(&range) {
                let entry = Entry { value, sent: cookie, epoch_sent, epoch_done: u64::MAX, done: u64::MAX };
                self.models[volume].stamps[at].history.push(entry);
            }
        }
        let bytes = range.end - range.start;
        let task = match kind {
            Kind::Read => Task::Read,
            Kind::Write => {
                let from = range.start % UNIT_BYTES;
                let mut buffer = self.engine.lend((from + bytes) as usize);
                for stamped in buffer[from as usize..(from + bytes) as usize].chunks_mut(8) {
                    stamped.copy_from_slice(&value.to_le_bytes()[..stamped.len()]);
                }
                Task::Write(buffer)
            }
            Kind::Zero => Task::Zero,
            Kind::Trim => Task::Trim,
            Kind::Prefetch => Task::Prefetch,
            Kind::Describe => Task::Describe(Contexts::all()),
            Kind::Flush => Task::Flush,
        };
        let lacked = self.setup.bad_places && self.is_lacking(volume, &range);
        if self.setup.bad_places && kind.writes() {
            let around = self.dirtied_with(&range);
            let meets = |flight: &&mut Flight| {
                flight.volume == volume && flight.range.start < around.end && around.start < flight.range.end
            };
            self.flights.values_mut().filter(meets).for_each(|flight| flight.lacked = true);
        }
        let flight = Flight { volume, range: range.clone(), kind, value, durable, began: cookie, lacked };
        self.flights.insert(cookie, flight);
        let asker = Asker { connection: 1, cookie };
        self.engine.submit(Job { asker, disk: volume, task, offset: range.start, bytes, durable });
    }

    /// Time passes, mostly little.
    pub fn tick(&mut self) {
        let ns = if self.rng.below(20) == 0 { 20_000_000_000 } else { self.rng.below(5_000_000) };
        self.simulation.pass(ns);
    }

    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Runs the engine as far as it goes, and checks its answers.
    pub fn look(&mut self) {
        let mut done = Vec::new();
        // Mostly something is about to come; else the engine waits for its own time to do something.
        self.idle_looks += 1;
        assert!(self.idle_looks < 100_000, "{} requests are never answered", self.flights.len());
        self.simulation.pass(self.rng.below(if self.idle_looks < 50 { 100_000 } else { 20_000_000 }));
        self.engine.take(&mut done);
        // No client has received what a dead engine said.
        done.retain(|_| !self.simulation.is_dead());
        self.idle_looks = if done.is_empty() { self.idle_looks } else { 0 };
        for outcome in done {
            self.check(outcome);
        }
    }

    /// Until nothing is under way.
    pub fn settle(&mut self) {
        while !self.flights.is_empty() || !self.engine.is_idle() {
            self.simulation.pass(10_000_000);
            self.look();
        }
    }

    /// Until the store has all of a volume.
    pub fn write_back(&mut self, volume: usize) {
        let asked = self.engine.begin_write_back(volume);
        for _ in 0..200_000 {
            if let Some(result) = self.engine.written_back_by(&asked) {
                result.unwrap();
                return;
            }
            self.simulation.pass(10_000_000);
            self.look();
        }
        panic!("volume {volume} is never written back");
    }

    fn check(&mut self, outcome: Outcome) {
        let flight = self.flights.remove(&outcome.asker.cookie).expect("asked for once");
        let Flight { volume, range, kind, value, durable, began, lacked } = flight;
        let answer = match outcome.result {
            Ok(answer) => answer,
            Err((errno, words)) => {
                let may_fail = self.setup.failures_per_mille > 0
                    || self.may_fail(volume, kind, &range, (durable, lacked))
                    || errno == Errno::NoSpc && self.may_be_full(volume, kind);
                assert!(may_fail, "{kind:?} of {range:?} of volume {volume}: {errno}: {words}");
                // A write that failed may have happened, or not.
                return;
            }
        };
        let model = &mut self.models[volume];
        match (kind, answer) {
            (Kind::Read, Answer::Data(pieces)) => {
                let bytes = bytes_of(&pieces);
                assert_eq!(bytes.len() as u64, range.end - range.start);
                for (at, stamped) in bytes.chunks(STAMP_BYTES as usize).enumerate() {
                    let stamp = &model.stamps[(range.start / STAMP_BYTES) as usize + at];
                    let read = value_of(stamped);
                    assert!(
                        read.is_some_and(|read| stamp.may_read(read, began)),
                        "volume {volume}, byte {}: {read:?}, number {began} may read {:?}",
                        range.start + at as u64 * STAMP_BYTES,
                        stamp.history
                    );
                }
            }
            (Kind::Describe, Answer::Parts { allocation, cache }) => {
                assert_described(&model.stamps, &range, began, &allocation, &cache);
            }
            (Kind::Write | Kind::Zero, Answer::Done) => {
                model.lost[units_touched(&range)].fill(false);
                for at in stamps_of(&range) {
                    let stamp = &mut model.stamps[at];
                    let place = stamp.history.iter().rposition(|entry| entry.value == value).unwrap();
                    stamp.history[place].done = self.next;
                    stamp.history[place].epoch_done = model.epoch;
                    stamp.loose_until = stamp.loose_until.min(self.next);
                    if durable {
                        stamp.durable = stamp.durable.max(place);
                    }
                }
                model.epoch += u64::from(durable);
            }
            (Kind::Flush, Answer::Done) => {
                for stamp in &mut model.stamps {
                    let last = stamp.history.iter().rposition(|entry| entry.done < began);
                    stamp.durable = stamp.durable.max(last.unwrap_or(0));
                }
                model.epoch += 1;
            }
            (Kind::Prefetch | Kind::Trim, Answer::Done) => {}
            (_, answer) => panic!("{kind:?} is answered by {answer:?}"),
        }
    }

    /// What the clients of a volume know.
    pub fn stamps(&self, volume: usize) -> &[Stamp] {
        &self.models[volume].stamps
    }

    /// Whether a unit of a range was lost before the present process took up the cache, and not written since.
    pub fn was_lost(&self, volume: usize, range: &Range<u64>) -> bool {
        let lost = &self.models[volume].lost;
        let units = units_touched(range);
        lost[units.start..units.end.min(lost.len())].contains(&true)
    }

    /// The cache's device returned what was stored whenever it was asked: no failure was injected. After a crash
    /// clean blocks may be found overwritten by others, of which the log does not know yet; dirty ones never.
    pub fn check_cache(&self, crashed: bool) {
        for volume in 0..self.models.len() {
            let counts = self.engine.counts(volume);
            assert_eq!(counts.poisoned_units, 0, "volume {volume}");
            assert!(
                crashed || counts.cache_failures == 0,
                "volume {volume}: {} failures",
                counts.cache_failures
            );
        }
    }

    /// The stores have what their clients have, once all is written back.
    pub fn check_stores(&mut self) {
        for (at, store) in self.stores.iter().enumerate() {
            store.with_bytes(|bytes| {
                for (place, stamped) in bytes.chunks(STAMP_BYTES as usize).enumerate() {
                    let stamp = &self.models[at].stamps[place];
                    let value = value_of(stamped);
                    assert!(
                        value.is_some_and(|value| stamp.may_read(value, u64::MAX)),
                        "volume {at}, stamp {place}: {value:?}, may be {:?}",
                        stamp.history
                    );
                }
            });
        }
    }
}

fn units_touched(range: &Range<u64>) -> Range<usize> {
    (range.start / UNIT_BYTES) as usize..range.end.div_ceil(UNIT_BYTES) as usize
}

fn bytes_of(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend_from_slice(&piece.buffer[piece.from..piece.from + piece.bytes]);
    }
    bytes
}

/// An engine on a disk in front of stores, unless the machine dies of it, or the disk has these bad places. Otherwise devices and stores fail
/// only when it has started.
fn start(
    setup: &Setup,
    disk: &MemoryDisk,
    stores: &[MemoryStore],
    simulation: &Simulation,
    bad_places: &[BadPlace],
) -> Option<(Engine, Devices)> {
    let alive = |result: Result<(), String>| match result {
        Err(error) => {
            assert!(simulation.is_dead() || !bad_places.is_empty(), "{error}");
            false
        }
        Ok(()) => true,
    };
    let cache = Simulated::new(disk.clone(), simulation);
    let mut troubles: Devices = vec![cache.troubles()];
    bad_places.iter().for_each(|place| troubles[0].lock().unwrap().bad_places.add(place.clone()));
    let (clock, pause) = (simulation.clone(), simulation.clone());
    let config = EngineConfig {
        sizes_bytes: setup.sizes_bytes.clone(),
        fill: setup.fill,
        sizing: setup.sizing,
        log_bytes: Some(setup.log_bytes()),
        cleaning: CleanerRules { order: setup.order, ..CleanerRules::default() },
        memory_bytes: setup.memory_bytes,
        table_bytes: setup.table_bytes,
        shares: 1 + stores.len() as u16,
        clock: Arc::new(move || clock.now_ns()),
        pause: Arc::new(move |time| pause.pass(time.as_nanos() as u64)),
        ..EngineConfig::default()
    };
    let opened = if setup.durable {
        Engine::open(Box::new(cache), config, false).map(|it| it.0).map_err(|error| error.to_string())
    } else {
        Engine::new(Box::new(cache), config).map_err(|error| error.to_string())
    };
    let mut engine = match opened {
        Ok(engine) => engine,
        Err(error) => {
            alive(Err(error));
            return None;
        }
    };
    for (at, (mode, store)) in setup.modes.iter().zip(stores).enumerate() {
        let backing = Simulated::new(store.clone(), simulation);
        troubles.push(backing.troubles());
        let volume = VolumeConfig { mode: *mode, ..VolumeConfig::new(format!("v{at}")) };
        if !alive(engine.add(volume, Box::new(backing)).map(drop).map_err(|error| error.to_string())) {
            return None;
        }
    }
    if !alive(engine.begin_service().map_err(|error| error.to_string())) || simulation.is_dead() {
        return None;
    }
    for troubles in &troubles {
        troubles.lock().unwrap().failures_per_mille = setup.failures_per_mille;
    }
    Some((engine, troubles))
}

/// Kind of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Zero,
    Trim,
    Prefetch,
    Describe,
    Flush,
}

impl Kind {
    /// Whether it changes what may be read.
    fn writes(self) -> bool {
        matches!(self, Kind::Write | Kind::Zero | Kind::Trim)
    }
}
