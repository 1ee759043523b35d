//! Engine over a flash tier in virtual time: device requests take time and fail, and the machine dies during
//! any of them, with power loss or without. What the next process finds is compared with what was acknowledged.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use tiermem_base::{Bytes, Rng, TierKind, TierSpec};
use tiermem_policy::log::Admission;
use tiermem_store::engine::{Condition, Engine, EngineConfig, Expiry};
use tiermem_store::flash::format::Layout;
use tiermem_store::flash::{Durability, FlashConfig, Moment};
use tiermem_tier::block::{BlockIo, MemoryDisk, Simulated, Simulation, Troubles, for_each_seed};
use world::{Known, START_MS, look, name, value};

const MS: u64 = 1_000_000;

/// Parameters of a world.
#[derive(Clone, Debug)]
struct Setup {
    memory_bytes: Vec<u64>,
    flash_bytes: u64,
    segment_bytes: u32,
    admission: Admission,
    durability: Durability,
    keys: u64,
    /// Values are mostly shorter, and now and then much longer.
    len_max: u64,
    churns: bool,
    failures_per_mille: u64,
    /// The device fails this submission of each life, of any kind.
    fails_after: Option<u64>,
    /// What a sync takes beyond what any request does.
    sync_ns: u64,
    /// Each waits for its own replies alone.
    clients: u64,
}

impl Setup {
    fn draw(rng: &mut Rng) -> Self {
        let fails = rng.below(4) == 0;
        let submissions_max = 2 << rng.below(12);
        let fails_after = fails.then(|| rng.below(submissions_max));
        // In some worlds small items of many keys come and go, which fills the journal: checkpoints are under way when death comes.
        let churns = rng.below(3) == 0;
        Setup {
            memory_bytes: match churns {
                true => vec![9 << 16],
                false => (0..1 + rng.below(2)).map(|_| (8 + rng.below(9)) << 16).collect(),
            },
            flash_bytes: (1 << 20) + (rng.below(10) << 16),
            segment_bytes: [32 << 10, 64 << 10][rng.below(2) as usize],
            admission: if rng.below(4) == 0 { Admission::default() } else { Admission::All },
            durability: if rng.below(3) > 0 { Durability::Power } else { Durability::Process },
            keys: if churns { 6000 + rng.below(12_000) } else { 20 + rng.below(3000) },
            len_max: if churns { 1 + rng.below(50) } else { 20 << rng.below(8) },
            churns,
            failures_per_mille: if fails { rng.below(10) } else { 0 },
            fails_after,
            sync_ns: 0,
            clients: 1 + rng.below(4),
        }
    }

    /// A world with syncs slow enough for many segments to be written meanwhile, with room
    /// for all keys: a segment freed before its superblock is durable is soon overwritten.
    fn draw_slow(rng: &mut Rng) -> Self {
        Setup {
            memory_bytes: vec![9 << 16],
            flash_bytes: (3 << 20) + (rng.below(16) << 16),
            segment_bytes: 32 << 10,
            admission: Admission::All,
            durability: Durability::Power,
            keys: 1500 + rng.below(1000),
            len_max: 600 + rng.below(600),
            churns: true,
            failures_per_mille: 0,
            fails_after: None,
            sync_ns: (20 + rng.below(60)) * MS,
            clients: 1 + rng.below(4),
        }
    }
}

/// Acknowledged states of a key.
#[derive(Clone, Debug, Default)]
struct Told {
    /// What it is by the last change that was acknowledged; `None`: nothing.
    acknowledged: Option<Known>,
    /// What it became since.
    pending: Vec<Pending>,
}

/// A change of a key that is not acknowledged yet.
#[derive(Clone, Debug)]
struct Pending {
    known: Option<Known>,
    told: When,
}

/// When a client gets its reply.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    /// When what it has done is committed, and durable then.
    Committed,
    /// When this moment is past.
    Past(Moment),
    /// Never: another client, which may not wait for it, has seen that the key was gone.
    Never,
}

impl Told {
    fn newest(&self) -> Option<&Known> {
        self.pending.last().map_or(self.acknowledged.as_ref(), |pending| pending.known.as_ref())
    }
}

struct World {
    setup: Setup,
    disk: MemoryDisk,
    simulation: Simulation,
    engine: Engine,
    rng: Rng,
    told: BTreeMap<u64, Told>,
    /// Keys with something pending, in the order in which it became so.
    pending: Vec<u64>,
    /// Keys that were durably on flash alone and that no request
    /// has touched since; and the number of items evicted by then.
    safe: BTreeSet<u64>,
    evicted: u64,
    /// How the halves of the journal began, or the superblocks, when they were looked at last.
    parts: [[u8; 16]; 2],
    /// For each client the moment that its replies wait for.
    promised: Vec<Moment>,
    /// The client with requests that run now.
    client: usize,
    version: usize,
    boot: u8,
    starts: u64,
    is_blank: bool,
}

impl World {
    fn new(setup: &Setup, seed: u64) -> Self {
        let simulation = Simulation::new(seed);
        let disk = MemoryDisk::new(setup.flash_bytes as usize);
        let (engine, troubles) = start(setup, &disk, &simulation, 1, 0).expect("nothing has died");
        troubles.lock().unwrap().sync_ns = setup.sync_ns;
        World {
            setup: setup.clone(),
            disk,
            simulation,
            engine,
            rng: Rng::seeded(seed ^ 0x5eed),
            told: BTreeMap::new(),
            pending: Vec::new(),
            safe: BTreeSet::new(),
            evicted: 0,
            parts: [[0; 16]; 2],
            promised: vec![Moment::default(); setup.clients as usize],
            client: 0,
            version: 0,
            boot: 1,
            starts: 0,
            is_blank: false,
        }
    }

    fn is_dead(&self) -> bool {
        self.simulation.is_dead()
    }

    fn now_ms(&self) -> u64 {
        START_MS + self.simulation.now_ns() / MS
    }

    /// A client changes or reads something; then, now and then, all replies that may be sent are.
    fn step(&mut self) {
        self.engine.set_clock(self.now_ms());
        // Most go to a few keys.
        let keys = if !self.setup.churns && self.rng.below(2) == 0 {
            1 + self.setup.keys / 8
        } else {
            self.setup.keys
        };
        let key = self.rng.below(keys);
        self.version += 1;
        self.safe.remove(&key);
        match self.rng.below(1000) {
            0..850 if self.setup.churns => self.set(key, None),
            0..450 => self.set(key, None),
            450..500 => {
                let ms = 1 + self.rng.below(5000);
                self.set(key, Some(self.now_ms() + ms));
            }
            500..850 => self.see(key),
            850..950 => self.remove(key),
            950..998 => self.expire(key),
            // Seldom, so that memory fills in between.
            _ if self.rng.below(20) == 0 => self.flush(),
            _ => self.see(key),
        }
        if self.is_dead() {
            return;
        }
        self.engine.flash_reads().unstage();
        if self.rng.below(4) > 0 {
            self.commit();
            self.client = self.rng.below(self.setup.clients) as usize;
            if self.setup.clients > 1 && self.rng.below(4) == 0 {
                // Another client comes in its place, with no replies that wait.
                self.promised[self.client] = Moment::default();
            }
        }
        if self.rng.below(8) == 0 {
            self.simulation.pass(self.rng.below(MS));
            self.engine.flash().advance();
        }
        if self.rng.below(3000) == 0 && !self.is_dead() {
            self.settle();
            self.note_safe();
        }
        match self.rng.below(200) {
            0 => {
                self.simulation.pass(self.rng.below(1000 * MS));
                self.engine.flash().tick();
            }
            1..10 => drop(self.engine.between_requests().tick()),
            _ => {}
        }
    }

    fn set(&mut self, key: u64, expires_at_ms: Option<u64>) {
        let len = match self.rng.below(100) {
            0 if !self.setup.churns => self.rng.below(30 << 10),
            1..20 if !self.setup.churns => self.rng.below(2000),
            _ => self.rng.below(self.setup.len_max),
        };
        let value = value(self.version, len as usize);
        let expiry = expires_at_ms.map_or(Expiry::Never, Expiry::AtUnixMs);
        self.engine.flash_reads().prepare();
        match self.engine.set(0, &name(key), &value, Condition::Always, expiry) {
            Ok(is_set) => {
                assert!(is_set || self.is_dead());
                self.changed(key, Some(Known { value, expires_at_ms }));
            }
            // There was no room for it, and the old one is there or not.
            Err(_) => self.see(key),
        }
    }

    /// Checks that the state of a key, if it exists, is the newest.
    fn see(&mut self, key: u64) {
        let found = look(&mut self.engine, key);
        self.engine.flash_reads().unstage();
        if self.is_dead() {
            return;
        }
        let now_ms = self.now_ms();
        let told = self.told.entry(key).or_default();
        match found {
            Some(found) => {
                let newest =
                    told.newest().filter(|it| it.expires_at_ms.is_none_or(|at_ms| at_ms > now_ms - 1000));
                assert_eq!(Some(&found), newest, "key {key}");
            }
            // Evicted, or over, or removed by a client that waits until that is durable.
            None if self.setup.clients == 1 => self.changed(key, None),
            None => told.pending.push(Pending { known: None, told: When::Never }),
        }
    }

    fn remove(&mut self, key: u64) {
        self.engine.flash_reads().resolve(0, &name(key));
        let was = self.engine.remove(0, &name(key));
        assert!(!was || self.is_dead() || self.told[&key].newest().is_some(), "key {key} was back");
        self.changed(key, None);
    }

    fn expire(&mut self, key: u64) {
        self.engine.flash_reads().resolve(0, &name(key));
        let at_ms = (self.rng.below(2) == 0).then(|| self.now_ms() + 1 + self.rng.below(5000));
        if self.engine.set_expires_at(0, &name(key), at_ms) && !self.is_dead() {
            let known = self.told[&key].newest().expect("no key comes back").clone();
            self.changed(key, Some(Known { expires_at_ms: at_ms, ..known }));
        }
    }

    fn flush(&mut self) {
        self.engine.flush((self.rng.below(2) == 0).then_some(0));
        self.safe.clear();
        for key in self.told.keys().copied().collect::<Vec<_>>() {
            self.changed(key, None);
        }
    }

    /// Whether the journal has turned to its other half since this was asked last, or, where syncs are slow, a superblock was written:
    /// then a checkpoint is under way, or the one before it is about to be given back.
    fn checkpoint_goes_on(&mut self) -> bool {
        let setup = &self.setup;
        let layout = Layout::divide(0, setup.flash_bytes, setup.segment_bytes).expect("it was opened");
        let begin = |bytes: &[u8], part| {
            let (at, len) = match setup.sync_ns {
                0 => (layout.journal(part) as usize, 16),
                // The superblock's epoch.
                _ => (layout.superblock(part as usize) as usize + 16, 8),
            };
            let mut begin = [0; 16];
            begin[..len].copy_from_slice(&bytes[at..at + len]);
            begin
        };
        let parts = self.disk.with_bytes(|bytes| [0, 1].map(|part| begin(bytes, part)));
        std::mem::replace(&mut self.parts, parts) != parts
    }

    /// At a settled point: the keys that a restart must find until a request touches them.
    fn note_safe(&mut self) {
        self.safe.clear();
        let is_whole = self.setup.fails_after.is_none() && !self.is_dead();
        if is_whole && self.engine.stats().flash.is_some_and(|flash| flash.recoverable_items > 0) {
            (self.safe, self.evicted) = (self.on_flash(), evictions(&self.engine));
        }
    }

    /// A change of a key is acknowledged once it is committed and durable, after all earlier changes of its client.
    fn changed(&mut self, key: u64, known: Option<Known>) {
        self.told.entry(key).or_default().pending.push(Pending { known, told: When::Committed });
        self.pending.push(key);
    }

    /// The current client commits.
    fn commit(&mut self) {
        let moment = self.engine.commit();
        if self.is_dead() {
            return;
        }
        let promised = &mut self.promised[self.client];
        *promised = (*promised).max(moment);
        for key in &self.pending {
            let pending = &mut self.told.get_mut(key).expect("it was told of").pending;
            let committed = pending.iter_mut().filter(|pending| pending.told == When::Committed);
            committed.for_each(|pending| pending.told = When::Past(*promised));
        }
        self.acknowledge();
    }

    fn acknowledge(&mut self) {
        let flash = self.engine.flash();
        self.pending.retain(|key| {
            let Told { acknowledged, pending } = self.told.get_mut(key).expect("it was told of");
            let is_told = |it: &Pending| matches!(it.told, When::Past(moment) if flash.is_durable(moment));
            if let Some(last) = pending.iter().rposition(is_told) {
                // Its earlier states must not be found any more.
                *acknowledged = pending.drain(..=last).next_back().and_then(|pending| pending.known);
            }
            pending.iter().any(|pending| pending.told != When::Never)
        });
    }

    /// Until the device has nothing to do and all is written.
    fn settle(&mut self) {
        for _ in 0..40 {
            self.engine.flash().tick();
            for _ in 0..10 {
                self.simulation.pass(6 * MS);
                self.engine.flash().advance();
            }
            self.commit();
        }
    }

    /// The keys that are on flash alone.
    fn on_flash(&mut self) -> BTreeSet<u64> {
        let flash = self.engine.flash_reads();
        self.told.keys().copied().filter(|key| flash.seek(0, &name(key)).is_some()).collect()
    }

    /// The process dies, and perhaps its machine with it; another one takes up what is left, and may die of that as well.
    fn crash(&mut self, power: bool) {
        let is_safe = self.setup.durability == Durability::Power || !power;
        if !self.is_dead() && self.rng.below(2) == 0 {
            self.settle();
            self.note_safe();
        }
        let mut kept = std::mem::take(&mut self.safe);
        if !is_safe || evictions(&self.engine) > self.evicted {
            kept.clear();
        }
        let now_ms = self.now_ms();
        self.engine = Engine::new(EngineConfig::new(vec![world::tier("idle", TierKind::Dram, 1)])).unwrap();
        let mut loses = power;
        self.is_blank = false;
        loop {
            // Both superblocks are blank where a restart is to find nothing.
            self.is_blank |= self.disk.with_bytes(|bytes| bytes[..8192].iter().all(|byte| *byte == 0));
            if loses {
                self.disk.lose_some_unsynced(&mut self.rng);
                self.boot = self.boot.wrapping_add(1);
            }
            self.starts += 1;
            self.simulation.restart();
            if self.rng.below(4) == 0 {
                self.simulation.die_after(self.rng.below(30));
            }
            let started = start(&self.setup, &self.disk, &self.simulation, self.boot, self.starts);
            if let Some((engine, troubles)) = started {
                self.simulation.restart();
                self.engine = engine;
                if self.is_blank {
                    // The journal was full before its checkpoint was complete, and the store has said so.
                    kept.clear();
                }
                self.check(&kept, now_ms);
                let mut troubles = troubles.lock().unwrap();
                troubles.sync_ns = self.setup.sync_ns;
                troubles.failures_per_mille = self.setup.failures_per_mille;
                troubles.fails_after = self.setup.fails_after;
                return;
            }
            loses = power && is_safe || loses && self.rng.below(2) == 0;
        }
    }

    /// Each key is what was acknowledged, or what it became since, or gone; of those kept none is.
    fn check(&mut self, kept: &BTreeSet<u64>, now_ms: u64) {
        self.engine.set_clock(now_ms);
        self.promised.fill(Moment::default());
        self.pending.clear();
        for (key, told) in &mut self.told {
            let found = look(&mut self.engine, key);
            self.engine.flash_reads().unstage();
            if let Some(found) = &found {
                let mut may_be =
                    std::iter::once(&told.acknowledged).chain(told.pending.iter().map(|it| &it.known));
                assert!(
                    may_be.any(|it| it.as_ref() == Some(found)),
                    "key {key} is {} of {} bytes, may be {:?}",
                    version_of(&found.value),
                    found.value.len(),
                    std::iter::once(&told.acknowledged)
                        .chain(told.pending.iter().map(|it| &it.known))
                        .map(|it| it.as_ref().map(|it| version_of(&it.value)))
                        .collect::<Vec<_>>()
                );
            }
            if found.is_none() && kept.contains(key) {
                // Reading promotes, which may drive others out.
                let is_over = |it: &Known| it.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
                let may_be_gone = told.newest().is_none_or(is_over) || evictions(&self.engine) > 0;
                assert!(may_be_gone, "key {key} was on flash and is gone");
            }
            *told = Told { acknowledged: found, pending: Vec::new() };
        }
        self.commit();
    }
}

/// Items that an engine has evicted from any tier.
fn evictions(engine: &Engine) -> u64 {
    let stats = engine.stats();
    stats.evicted + stats.tiers.iter().map(|tier| tier.evictions).sum::<u64>()
}

fn version_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

type Started = (Engine, Arc<Mutex<Troubles>>);

/// An engine over what the device holds, unless the machine dies of it.
fn start(
    setup: &Setup,
    disk: &MemoryDisk,
    simulation: &Simulation,
    boot: u8,
    starts: u64,
) -> Option<Started> {
    let tiers = setup.memory_bytes.iter().map(|bytes| TierSpec::new(TierKind::Dram, Bytes(*bytes))).collect();
    let mut engine = Engine::new(EngineConfig { seed: starts, ..EngineConfig::new(tiers) }).unwrap();
    let device = Simulated::new(disk.clone(), simulation);
    let troubles = device.troubles();
    // Where nothing is found a region is made anew, never with the seed of a former one.
    let hash_seed = 99 + (starts << 33);
    let config = FlashConfig {
        admission: setup.admission,
        boot_id: [boot; 16],
        durability: setup.durability,
        ..FlashConfig::whole(device.capacity_bytes(), setup.segment_bytes, hash_seed)
    };
    if let Err(error) = engine.flash().attach("flash", None, Box::new(device), &config) {
        assert!(simulation.is_dead(), "{error}");
    }
    (!simulation.is_dead()).then_some((engine, troubles))
}

#[test]
fn what_was_acknowledged_survives_a_death_in_any_submission() {
    for_each_seed(|seed| {
        let mut rng = Rng::seeded(seed);
        let setup = if seed % 10 == 9 { Setup::draw_slow(&mut rng) } else { Setup::draw(&mut rng) };
        let mut world = World::new(&setup, rng.next_u64());
        for life in 0..2 + rng.below(4) {
            // Deaths that come soon and late are as likely; some lives end between two submissions.
            if rng.below(4) > 0 {
                // Of the first life something is to be left.
                let bits = if setup.churns || life == 0 { 13 } else { rng.below(13) };
                let submissions_max = 2 << bits;
                world.simulation.die_after(rng.below(submissions_max));
            }
            for _ in 0..rng.below(if setup.churns { 16_000 } else { 6000 }) {
                world.step();
                if world.is_dead() {
                    break;
                }
                if setup.churns
                    && world.version.is_multiple_of(16)
                    && world.checkpoint_goes_on()
                    && rng.below(2) == 0
                {
                    // During a slow sync many requests are made.
                    let bits = if setup.sync_ns > 0 { 6 + rng.below(6) } else { rng.below(9) };
                    let submissions_max = 2 << bits;
                    world.simulation.die_after(rng.below(submissions_max));
                }
            }
            world.crash(rng.below(2) == 0);
        }
    });
}
