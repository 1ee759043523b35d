//! A cache with volumes, clients that ask it for things, and what they may be told.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tiermem_base::Rng;
use tiermem_block::backing::MemoryStore;
use tiermem_block::disks::{Answer, Asker, Disks, Job, Outcome, Piece, Task, UNIT_BYTES};
use tiermem_block::engine::{Drops, Engine, EngineConfig, VolumeConfig};
use tiermem_policy::extents::{Fill, Mode, Sizing};
use tiermem_tier::block::MemoryDisk;

use crate::lazy::{Lazy, Switches};

pub const KIB: u64 = 1 << 10;
/// Bytes that are written as a whole by the model: one stamp.
const STAMP_BYTES: u64 = 512;

/// What varies from world to world.
#[derive(Clone, Debug)]
pub struct Setup {
    pub sizes_bytes: Vec<u64>,
    pub cache_bytes: u64,
    pub volume_bytes: u64,
    pub fill: Fill,
    pub sizing: Sizing,
    pub modes: Vec<Mode>,
    /// Whether the cache outlives the process.
    pub durable: bool,
    /// DRAM for copies.
    pub memory_bytes: u64,
    /// DRAM for the log's table; enough for all of it unless given.
    pub table_bytes: Option<u64>,
}

struct Flight {
    volume: usize,
    range: Range<u64>,
    kind: Kind,
    /// For a write: what each stamp becomes.
    value: u64,
    durable: bool,
    /// Its number: requests are numbered as they are sent.
    began: u64,
}

/// A write to a stamp. Those to one stamp do not overlap in time.
#[derive(Clone, Copy, Debug)]
struct Entry {
    value: u64,
    /// The volume's acknowledged flushes when it was sent, and when it was done.
    epoch_sent: u64,
    epoch_done: u64,
    /// The last request that was sent before it was done; the largest number as long as it is not, or failed.
    done: u64,
}

impl Entry {
    /// A write from before anything was sent.
    fn old(value: u64) -> Self {
        Entry { value, epoch_sent: 0, epoch_done: 0, done: 0 }
    }
}

/// 512 bytes of a volume, as its clients know it: all that was written, in order.
#[derive(Clone, Debug)]
struct Stamp {
    history: Vec<Entry>,
    /// The last write that is durable.
    durable: usize,
    /// A trim came before this write: until it anything may be there that ever was, or zeroes.
    trimmed: usize,
    /// The last request that may see that.
    loose_until: u64,
}

impl Stamp {
    fn new(value: u64) -> Self {
        Stamp { history: vec![Entry::old(value)], durable: 0, trimmed: 0, loose_until: 0 }
    }

    /// Whether a read that was sent as number `began` may give a value.
    fn may_read(&self, value: u64, began: u64) -> bool {
        let last = self.history.iter().rposition(|entry| entry.done < began).unwrap_or(0);
        let last = if began <= self.loose_until { 0 } else { last };
        last == 0 && self.loose_until >= began && value == 0
            || self.history[last..].iter().any(|entry| entry.value == value)
    }

    /// What may be there after a crash.
    fn may_survive(&self, value: u64) -> bool {
        let is_loose = self.durable < self.trimmed;
        let first = if is_loose { 0 } else { self.durable };
        is_loose && value == 0 || self.history[first..].iter().any(|entry| entry.value == value)
    }

    /// A crash has left this value. It stays as long as nobody writes or crashes; what a store had not flushed may still be lost.
    fn survive(&mut self, value: u64) {
        if self.durable >= self.trimmed {
            self.history.drain(..self.durable);
            (self.trimmed, self.loose_until) = (0, 0);
        } else {
            self.loose_until = u64::MAX;
        }
        self.history.retain(|entry| entry.value != value);
        self.history.push(Entry::old(value));
        self.history.iter_mut().for_each(|entry| *entry = Entry::old(entry.value));
        self.trimmed = if self.loose_until > 0 { self.history.len() } else { 0 };
        self.durable = 0;
    }

    /// Between which flushes a store must be that has this value here: from the first to the last.
    fn flushes(&self, value: u64) -> Option<(u64, u64)> {
        let at = self.history.iter().position(|entry| entry.value == value)?;
        let next = self.history.get(at + 1).map_or(u64::MAX, |next| next.epoch_done);
        Some((self.history[at].epoch_sent.saturating_sub(1), next.saturating_sub(1)))
    }
}

struct Model {
    stamps: Vec<Stamp>,
    /// Flushes that were acknowledged.
    epoch: u64,
}

pub struct World {
    setup: Setup,
    pub engine: Engine,
    pub stores: Vec<MemoryStore>,
    pub disk: MemoryDisk,
    pub cache_switches: Arc<Mutex<Switches>>,
    pub store_switches: Vec<Arc<Mutex<Switches>>>,
    pub clock: Arc<AtomicU64>,
    models: Vec<Model>,
    flights: HashMap<u64, Flight>,
    next: u64,
    rng: Rng,
    pub errors: u64,
    pub errors_allowed: bool,
}

fn stamps_of(range: &Range<u64>) -> Range<usize> {
    (range.start / STAMP_BYTES) as usize..range.end.div_ceil(STAMP_BYTES) as usize
}

impl World {
    pub fn new(setup: &Setup, seed: u64) -> Self {
        let disk = MemoryDisk::new(setup.cache_bytes as usize);
        let stores: Vec<_> = setup.modes.iter().map(|_| MemoryStore::new(setup.volume_bytes)).collect();
        let stamps = vec![Stamp::new(0); setup.volume_bytes.div_ceil(STAMP_BYTES) as usize];
        let clock = Arc::new(AtomicU64::new(0));
        let (engine, cache_switches, store_switches) = start(setup, seed, &disk, &stores, &clock);
        World {
            setup: setup.clone(),
            engine,
            models: stores.iter().map(|_| Model { stamps: stamps.clone(), epoch: 0 }).collect(),
            stores,
            disk,
            cache_switches,
            store_switches,
            clock,
            flights: HashMap::new(),
            next: 0,
            rng: Rng::seeded(seed ^ 0x5eed),
            errors: 0,
            errors_allowed: false,
        }
    }

    /// The process dies, and perhaps its machine with it; then another one takes up the cache.
    pub fn crash(&mut self, power: bool) {
        self.check_cache(true);
        self.flights.clear();
        let seed = self.rng.below(u64::MAX);
        // Requests that were held back are never done: they die with the engine.
        self.engine =
            Engine::new(Box::new(MemoryDisk::new(8 << 20).open()), EngineConfig::default()).unwrap();
        if power {
            self.disk.lose_some_unsynced(&mut self.rng);
            // In the other modes what a store lost of what it had not flushed may still be cached as clean: docs/block-design.md.
            let can_lose = self.setup.modes.iter().all(|mode| *mode == Mode::WriteBack);
            if can_lose && self.rng.below(2) == 0 {
                self.stores.iter().for_each(|store| store.crash_some(&mut self.rng));
            }
        }
        let (engine, cache_switches, store_switches) =
            start(&self.setup, seed, &self.disk, &self.stores, &self.clock);
        (self.engine, self.cache_switches, self.store_switches) = (engine, cache_switches, store_switches);
        self.look_at_all();
    }

    /// Reads all volumes: what survived a crash is one of what may, and stays.
    fn look_at_all(&mut self) {
        for volume in 0..self.models.len() {
            let size = self.engine.exports()[volume].size_bytes;
            self.next += 1;
            let asker = Asker { connection: 2, cookie: self.next };
            self.engine.submit(Job {
                asker,
                disk: volume,
                task: Task::Read,
                offset: 0,
                bytes: size,
                durable: false,
            });
            let mut done = Vec::new();
            for _ in 0..100_000 {
                self.clock.fetch_add(1_000_000, Ordering::Relaxed);
                self.engine.take(&mut done);
                if !done.is_empty() {
                    break;
                }
            }
            let outcome = done.pop().expect("the volume is read");
            let Ok(Answer::Data(pieces)) = outcome.result else {
                panic!("volume {volume}: {:?}", outcome.result)
            };
            let model = &mut self.models[volume];
            for (at, stamped) in bytes_of(&pieces).chunks(STAMP_BYTES as usize).enumerate() {
                let value = value_of(stamped).unwrap_or_else(|| panic!("volume {volume}, stamp {at}: a mix"));
                let stamp = &mut model.stamps[at];
                assert!(
                    stamp.may_survive(value),
                    "volume {volume}, stamp {at}: {value} after the crash, may be {:?}",
                    &stamp.history[stamp.durable..]
                );
                stamp.survive(value);
            }
            model.epoch = 0;
        }
    }

    /// Sends something at random. Writes that overlap in time do not overlap in place, for then nobody could know what is there.
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
            18 if self.rng.below(2) == 0 => self.send(volume, Kind::Describe, range, false),
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
        let writes = matches!(kind, Kind::Write | Kind::Zero | Kind::Trim);
        let clashes = |flight: &Flight| {
            flight.volume == volume
                && matches!(flight.kind, Kind::Write | Kind::Zero | Kind::Trim)
                && flight.range.start < range.end
                && range.start < flight.range.end
        };
        if range.is_empty() && kind != Kind::Flush || writes && self.flights.values().any(clashes) {
            return;
        }
        self.next += 1;
        let cookie = self.next;
        let value = if kind == Kind::Write { cookie } else { 0 };
        if kind == Kind::Trim {
            for at in stamps_of(&range) {
                let stamp = &mut self.models[volume].stamps[at];
                (stamp.trimmed, stamp.loose_until) = (stamp.history.len(), u64::MAX);
            }
        } else if writes {
            let epoch_sent = self.models[volume].epoch;
            for at in stamps_of(&range) {
                let entry = Entry { value, epoch_sent, epoch_done: u64::MAX, done: u64::MAX };
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
            Kind::Describe => Task::Describe,
            Kind::Flush => Task::Flush,
        };
        let flight = Flight { volume, range: range.clone(), kind, value, durable, began: cookie };
        self.flights.insert(cookie, flight);
        let asker = Asker { connection: 1, cookie };
        self.engine.submit(Job { asker, disk: volume, task, offset: range.start, bytes, durable });
    }

    /// Time passes, mostly little.
    pub fn tick(&mut self) {
        let ns = if self.rng.below(20) == 0 { 20_000_000_000 } else { self.rng.below(5_000_000) };
        self.clock.fetch_add(ns, Ordering::Relaxed);
    }

    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Lets the engine do what it can, and looks at what it answers.
    pub fn look(&mut self) {
        let mut done = Vec::new();
        self.engine.take(&mut done);
        for outcome in done {
            self.check(outcome);
        }
    }

    /// Until nothing is under way.
    pub fn settle(&mut self) {
        for _ in 0..200_000 {
            if self.flights.is_empty() && self.engine.is_idle() {
                return;
            }
            self.clock.fetch_add(10_000_000, Ordering::Relaxed);
            self.look();
        }
        panic!("{} requests are never answered", self.flights.len());
    }

    /// Until the store has all of a volume.
    pub fn write_back(&mut self, volume: usize) {
        let asked = self.engine.begin_write_back(volume);
        for _ in 0..200_000 {
            if let Some(result) = self.engine.written_back_by(&asked) {
                result.unwrap();
                return;
            }
            self.clock.fetch_add(10_000_000, Ordering::Relaxed);
            self.look();
        }
        panic!("volume {volume} is never written back");
    }

    fn check(&mut self, outcome: Outcome) {
        let flight = self.flights.remove(&outcome.asker.cookie).expect("asked for once");
        let Flight { volume, range, kind, value, durable, began } = flight;
        let answer = match outcome.result {
            Ok(answer) => answer,
            Err((errno, words)) => {
                assert!(self.errors_allowed, "{errno}: {words}");
                self.errors += 1;
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
                for parts in [allocation, cache] {
                    let total: u64 = parts.iter().map(|part| u64::from(part.len_bytes)).sum();
                    assert_eq!(total, range.end - range.start);
                }
            }
            (Kind::Write | Kind::Zero, Answer::Done) => {
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

    /// The cache's device gave what was stored whenever it was asked: nobody has made it fail. After a crash clean blocks may be found
    /// overwritten by others, of which the log does not know yet; dirty ones never.
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

    /// If the cache's device were lost now, each store has all that was written before some flush, and some of what was written before the
    /// next.
    pub fn check_order(&mut self) {
        for (at, store) in self.stores.iter().enumerate() {
            if self.setup.modes[at] != Mode::WriteBack {
                continue;
            }
            store.with_bytes(|bytes| {
                let (mut first, mut last) = (0, u64::MAX);
                for (place, stamped) in bytes.chunks(STAMP_BYTES as usize).enumerate() {
                    let value = value_of(stamped).unwrap();
                    if value == 0 {
                        // Nobody knows which of its zeroes it is.
                        continue;
                    }
                    let (from, to) = self.models[at].stamps[place].flushes(value).unwrap();
                    (first, last) = (first.max(from), last.min(to));
                    assert!(
                        first <= last,
                        "volume {at}, stamp {place}: of flush {from} to {to}, others of {first} to {last}"
                    );
                }
            });
        }
    }
}

fn bytes_of(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend_from_slice(&piece.buffer[piece.from..piece.from + piece.bytes]);
    }
    bytes
}

/// What a stamp's bytes say, unless they are a mix.
fn value_of(stamped: &[u8]) -> Option<u64> {
    let value = u64::from_le_bytes(stamped[..8].try_into().unwrap());
    (stamped[..stamped.len() - 8] == stamped[8..]).then_some(value)
}

type Started = (Engine, Arc<Mutex<Switches>>, Vec<Arc<Mutex<Switches>>>);

/// An engine on a disk in front of stores.
fn start(
    setup: &Setup,
    seed: u64,
    disk: &MemoryDisk,
    stores: &[MemoryStore],
    clock: &Arc<AtomicU64>,
) -> Started {
    let (cache, cache_switches) = Lazy::new(disk.open(), seed);
    let time = Arc::clone(clock);
    let config = EngineConfig {
        sizes_bytes: setup.sizes_bytes.clone(),
        fill: setup.fill,
        sizing: setup.sizing,
        log_bytes: Some(512 * KIB),
        memory_bytes: setup.memory_bytes,
        table_bytes: setup.table_bytes,
        shares: 1 + stores.len() as u16,
        clock: Arc::new(move || time.load(Ordering::Relaxed)),
        ..EngineConfig::default()
    };
    let mut engine = if setup.durable {
        Engine::open(Box::new(cache), config, false).unwrap().0
    } else {
        Engine::new(Box::new(cache), config).unwrap()
    };
    let mut store_switches = Vec::new();
    for (at, (mode, store)) in setup.modes.iter().zip(stores).enumerate() {
        let (backing, switches) = Lazy::new(store.open(), seed.wrapping_add(1 + at as u64));
        let volume = VolumeConfig { mode: *mode, ..VolumeConfig::new(format!("v{at}")) };
        engine.add(volume, Box::new(backing)).unwrap();
        store_switches.push(switches);
    }
    engine.begin_service().unwrap();
    (engine, cache_switches, store_switches)
}

/// What a client asks for.
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
