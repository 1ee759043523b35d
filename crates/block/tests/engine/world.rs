//! A cache with volumes, clients that ask it for things, and what they may be told.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tiermem_base::Rng;
use tiermem_block::backing::MemoryStore;
use tiermem_block::disks::{Answer, Asker, Disks, Job, Outcome, Task, UNIT_BYTES};
use tiermem_block::engine::{Engine, EngineConfig, VolumeConfig};
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
}

struct Flight {
    volume: usize,
    range: Range<u64>,
    kind: u8,
    /// For a write: what each stamp becomes.
    stamp: u64,
    /// Its number: requests are numbered as they are sent.
    began: u64,
}

/// A volume as its clients know it.
struct Model {
    /// For each stamp, what may be there, and the last request that may still see it.
    stamps: Vec<Vec<(u64, u64)>>,
}

pub struct World {
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
        let (cache, cache_switches) = Lazy::new(disk.open(), seed);
        let clock = Arc::new(AtomicU64::new(0));
        let time = Arc::clone(&clock);
        let config = EngineConfig {
            sizes_bytes: setup.sizes_bytes.clone(),
            fill: setup.fill,
            sizing: setup.sizing,
            clock: Arc::new(move || time.load(Ordering::Relaxed)),
            ..EngineConfig::default()
        };
        let mut engine = Engine::new(Box::new(cache), config).unwrap();
        let (mut stores, mut store_switches, mut models) = (Vec::new(), Vec::new(), Vec::new());
        for (at, mode) in setup.modes.iter().enumerate() {
            let store = MemoryStore::new(setup.volume_bytes);
            let (backing, switches) = Lazy::new(store.open(), seed + 1 + at as u64);
            let volume = VolumeConfig { mode: *mode, ..VolumeConfig::new(format!("v{at}")) };
            engine.add(volume, Box::new(backing)).unwrap();
            stores.push(store);
            store_switches.push(switches);
            models.push(Model {
                stamps: vec![vec![(0, u64::MAX)]; setup.volume_bytes.div_ceil(STAMP_BYTES) as usize],
            });
        }
        World {
            engine,
            stores,
            disk,
            cache_switches,
            store_switches,
            clock,
            models,
            flights: HashMap::new(),
            next: 0,
            rng: Rng::seeded(seed ^ 0x5eed),
            errors: 0,
            errors_allowed: false,
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
            18 => self.send(volume, Kind::Describe, range, false),
            _ => self.send(volume, Kind::Flush, 0..0, false),
        }
    }

    pub fn send(&mut self, volume: usize, kind: Kind, range: Range<u64>, durable: bool) {
        let writes = matches!(kind, Kind::Write | Kind::Zero);
        let clashes = |flight: &Flight| {
            flight.volume == volume
                && flight.kind == Kind::Write as u8
                && flight.range.start < range.end
                && range.start < flight.range.end
        };
        if range.is_empty() && kind != Kind::Flush || writes && self.flights.values().any(clashes) {
            return;
        }
        self.next += 1;
        let cookie = self.next;
        let stamp = if kind == Kind::Write { cookie } else { 0 };
        if writes {
            for at in stamps_of(&range) {
                self.models[volume].stamps[at].push((stamp, u64::MAX));
            }
        }
        let bytes = range.end - range.start;
        let task = match kind {
            Kind::Read => Task::Read,
            Kind::Write => {
                let from = range.start % UNIT_BYTES;
                let mut buffer = self.engine.lend((from + bytes) as usize);
                for stamped in buffer[from as usize..(from + bytes) as usize].chunks_mut(8) {
                    stamped.copy_from_slice(&stamp.to_le_bytes()[..stamped.len()]);
                }
                Task::Write(buffer)
            }
            Kind::Zero => Task::Zero,
            Kind::Prefetch => Task::Prefetch,
            Kind::Describe => Task::Describe,
            Kind::Flush => Task::Flush,
        };
        let kind = if writes { Kind::Write } else { kind } as u8;
        let began = cookie;
        self.flights.insert(cookie, Flight { volume, range: range.clone(), kind, stamp, began });
        let asker = Asker { connection: 1, cookie };
        self.engine.submit(Job { asker, disk: volume, task, offset: range.start, bytes, durable });
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

    fn check(&mut self, outcome: Outcome) {
        let flight = self.flights.remove(&outcome.asker.cookie).expect("asked for once");
        let Flight { volume, range, kind, stamp, .. } = flight;
        let answer = match outcome.result {
            Ok(answer) => answer,
            Err((errno, words)) => {
                assert!(self.errors_allowed, "{errno}: {words}");
                self.errors += 1;
                // A write that failed may have happened, or not.
                return;
            }
        };
        match answer {
            Answer::Data(pieces) => {
                let bytes: Vec<u8> = pieces
                    .iter()
                    .flat_map(|piece| piece.buffer[piece.from..piece.from + piece.bytes].to_vec())
                    .collect();
                assert_eq!(bytes.len() as u64, range.end - range.start);
                for (at, stamped) in bytes.chunks(STAMP_BYTES as usize).enumerate() {
                    let allowed = &self.models[volume].stamps[(range.start / STAMP_BYTES) as usize + at];
                    let seen = u64::from_le_bytes(stamped[..8].try_into().unwrap());
                    assert!(
                        allowed.iter().any(|(value, last)| *value == seen && *last >= flight.began)
                            && stamped.chunks(8).all(|word| word == seen.to_le_bytes()),
                        "volume {volume}, byte {}: read {seen}, may be {allowed:?}",
                        range.start + at as u64 * STAMP_BYTES
                    );
                }
            }
            Answer::Parts { allocation, cache } => {
                for parts in [allocation, cache] {
                    let total: u64 = parts.iter().map(|part| u64::from(part.len_bytes)).sum();
                    assert_eq!(total, range.end - range.start);
                }
            }
            Answer::Done if kind == Kind::Write as u8 => {
                // From now on this is what is there; a read that was sent before may still see what was.
                let oldest = self.flights.keys().min().copied().unwrap_or(u64::MAX);
                let last = self.next;
                for at in stamps_of(&range) {
                    let stamps = &mut self.models[volume].stamps[at];
                    for (value, until) in stamps.iter_mut() {
                        *until = if *value == stamp { u64::MAX } else { last.min(*until) };
                    }
                    stamps.retain(|(_, until)| *until >= oldest);
                }
            }
            Answer::Done => {}
        }
    }

    /// What clients may read of a volume, once all is quiet: one value for each stamp, where no write failed.
    pub fn check_stores(&mut self) {
        for (at, store) in self.stores.iter().enumerate() {
            store.with_bytes(|bytes| {
                for (place, stamped) in bytes.chunks(STAMP_BYTES as usize).enumerate() {
                    let seen = u64::from_le_bytes(stamped[..8].try_into().unwrap());
                    let allowed = &self.models[at].stamps[place];
                    assert!(
                        allowed.iter().any(|(value, last)| *value == seen && *last == u64::MAX),
                        "volume {at}, stamp {place}: {seen}, may be {allowed:?}"
                    );
                }
            });
        }
    }
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Zero,
    Prefetch,
    Describe,
    Flush,
}
