//! The engine's begin and end: a cache taken up from a device, volumes added to it, and all of it left in order.

use std::sync::Arc;
use std::time::Duration;

use std::collections::{HashSet, VecDeque};

use slab::Slab;
use tiermem_base::Rng;
use tiermem_policy::evict::Order;
use tiermem_policy::extents::cleaner::Cleaner;
use tiermem_policy::extents::{Config, Extents, Geometry, Mode, Part, Share, Volume};
use tiermem_tier::block::BlockIo;

use super::Engine;
use super::config::{EngineConfig, EngineError, VolumeConfig};
use super::ledger::Ledger;
use super::memory::Memory;
use super::op::units_of;
use super::ticker::Ticker;
use super::volume::VolumeState;
use crate::backing::{Backing, Identity};
use crate::disks::BufferPool;
use crate::journal::{self, BlockState, Journal, JournalError, Record, Recovered, VolumeInfo};

/// How long the end of a server waits for its stores.
const CLOSE_MAX: Duration = Duration::from_secs(60);
/// Between two looks at devices and stores while the engine itself waits.
const PAUSE: Duration = Duration::from_micros(100);

impl Engine {
    /// A cache of which nothing outlives the process, in front of no volume.
    ///
    /// # Errors
    /// When the device is too small for the blocks that it is to hold.
    pub fn new(cache: Box<dyn BlockIo>, config: EngineConfig) -> Result<Self, EngineError> {
        let geometry = config.geometry(cache.capacity_bytes())?;
        Ok(Self::with(cache, geometry, config, None))
    }

    /// The cache on a device that holds one, or on an empty one; with `reset` whatever it holds is lost. It may take a while, as it reads
    /// the log and looks at what was being written when the last process ended.
    ///
    /// # Errors
    /// When the device holds something else, another cache than the one described, or a damaged one; or when it fails.
    pub fn open(
        mut cache: Box<dyn BlockIo>,
        config: EngineConfig,
        reset: bool,
    ) -> Result<(Self, Recovered), EngineError> {
        let layout = config.layout();
        if reset {
            journal::format(&mut cache, &layout, true)?;
        }
        let (journal, recovered) = match journal::open(&mut cache, &layout, config.table_bytes) {
            Err(JournalError::NotFormatted) => {
                journal::format(&mut cache, &layout, false)?;
                journal::open(&mut cache, &layout, config.table_bytes)?
            }
            opened => opened?,
        };
        let geometry = journal.layout().geometry.clone();
        let mut engine = Self::with(cache, geometry, config, Some(journal));
        engine.restore()?;
        Ok((engine, recovered))
    }

    fn with(
        cache: Box<dyn BlockIo>,
        geometry: Geometry,
        config: EngineConfig,
        journal: Option<Journal>,
    ) -> Self {
        let shares = config.shares.max(1);
        let order = Order::new(config.policy, Extents::<Order>::domains(shares), 0);
        let extents_config = Config { fill: config.fill, sizing: config.sizing, shares };
        let notes_units_max = journal.as_ref().map_or(u64::MAX, Journal::units_at_once);
        let cleaner = Cleaner::new(config.cleaning, geometry.capacity_bytes(), notes_units_max);
        let mut extents = Extents::new(geometry, extents_config, order, Rng::seeded(config.seed));
        extents.changes_mut().record(journal.is_some());
        extents.set_admission(config.admission);
        Engine {
            extents,
            cleaner,
            acts: Vec::new(),
            cleaner_was_told: false,
            wake_ns: None,
            data_at: journal.as_ref().map_or(0, |journal| journal.layout().data_at),
            ledger: journal.map(Ledger::new),
            events: Vec::new(),
            cache,
            memory: Memory::new(config.memory_bytes),
            outgoing: Vec::new(),
            volumes: Vec::new(),
            places: Vec::new(),
            shares,
            exports: Vec::new(),
            jobs: Slab::new(),
            ops: Slab::new(),
            ios: Slab::new(),
            spare: Vec::new(),
            ready: VecDeque::new(),
            parked: VecDeque::new(),
            crowded: VecDeque::new(),
            done: Vec::new(),
            pool: BufferPool::default(),
            waker: None,
            ticker: Ticker::idle(),
            clock: config.clock,
            pause: config.pause,
            now_ns: 0,
            woken: Vec::new(),
            arrived: Vec::new(),
            answered: Vec::new(),
        }
    }

    /// Takes up the blocks that the log knows.
    fn restore(&mut self) -> Result<(), EngineError> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let extents = &mut self.extents;
        let mut result = Ok(());
        ledger.journal.each_block(&mut self.cache, |block| {
            let BlockState { slot, class, volume, piece, valid, dirty, poisoned: lost } = block;
            // What is lost reads as an error, and must not be fetched: the store has something older.
            let mut all: Vec<_> = valid.iter().chain(lost).cloned().collect();
            all.sort_unstable_by_key(|run| run.start);
            let mut unclean: Vec<_> = dirty.iter().chain(lost).cloned().collect();
            unclean.sort_unstable_by_key(|run| run.start);
            let restored =
                extents.restore(*slot, usize::from(*class), Volume(*volume), *piece, &all, &unclean);
            match restored {
                Ok(()) => lost.iter().for_each(|run| _ = extents.units_mut().lose(run.clone())),
                Err(error) if result.is_ok() => result = Err(EngineError::Damaged(error.to_string())),
                Err(_) => {}
            }
        })?;
        result
    }

    /// Adds a volume; the place of its export is its number for the server.
    ///
    /// # Errors
    /// When there are too many, it is larger than the smallest blocks can address, or it is another image than the one that the cache has
    /// dirty bytes for.
    pub fn add(&mut self, config: VolumeConfig, mut backing: Box<dyn Backing>) -> Result<usize, EngineError> {
        let at = self.volumes.len();
        let number = self.number_of(&config.name)?;
        let size_bytes = backing.size_bytes();
        let limit = Volume::bytes_max(self.extents.geometry().piece_bytes());
        if size_bytes > limit {
            return Err(EngineError::VolumeSize { name: config.name, size_bytes, limit });
        }
        self.extents.shares_mut().assign(number, Share(config.share));
        self.meet(&config, number, &mut *backing)?;
        self.cleaner.add(number, backing.session());
        self.cleaner.drain(number, config.mode != Mode::WriteBack);
        let mut volume = VolumeState::new(number, &config, backing);
        // What was dirty when the last process ended is one epoch: nobody knows any more what came before which flush.
        let (units, cleaner) = (self.extents.units(), &mut self.cleaner);
        self.extents.visit_dirty(|owner, part| {
            let parts = if owner == number { units.without_lost(&[part]) } else { Vec::new() };
            for Part { offset, bytes, .. } in parts {
                cleaner.restore(number, units_of(&(offset..offset + bytes)));
            }
        });
        self.cleaner.close_epoch(number);
        if !volume.backing.is_read_only() {
            // What the process before has written and not flushed is read now: a flush is for that, too.
            volume.direct_writes = Some(volume.backing.session());
        }
        self.exports.push(config.export(size_bytes, volume.backing.is_read_only()));
        if let Some(waker) = &self.waker {
            volume.backing.notify(Arc::clone(waker));
        }
        self.volumes.push(volume);
        self.places.resize(self.places.len().max(usize::from(number.0) + 1), usize::MAX);
        self.places[usize::from(number.0)] = at;
        if config.quota_bytes.is_some() {
            self.limit(at, config.quota_bytes);
        }
        Ok(at)
    }

    /// The number under which the cache knows a volume: the one that it had, or one that none has had.
    fn number_of(&self, name: &str) -> Result<Volume, EngineError> {
        let known = self.ledger.iter().flat_map(|ledger| ledger.journal.volumes());
        let mut used: HashSet<u16> = self.volumes.iter().map(|volume| volume.number.0).collect();
        for info in known {
            if info.name == name {
                return Ok(Volume(info.number));
            }
            used.insert(info.number);
        }
        let free = (0..Volume::COUNT_MAX).find(|number| !used.contains(number));
        free.map(Volume).ok_or(EngineError::Volumes(Volume::COUNT_MAX))
    }

    /// Compares a volume's image with the one that the cache knows, and notes that it will be written.
    fn meet(
        &mut self,
        config: &VolumeConfig,
        number: Volume,
        backing: &mut dyn Backing,
    ) -> Result<(), EngineError> {
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        let known = ledger.journal.volumes().find(|info| info.number == number.0).cloned();
        let is_read_only = config.read_only || backing.is_read_only();
        let now = backing.identity();
        if let Some(VolumeInfo { state: journal::VolumeState::Settled { which, version }, .. }) = known {
            let before = Identity { which, version };
            let differs = |before: &Option<String>, now: &Option<String>| {
                before.is_some() && now.is_some() && before != now
            };
            if differs(&before.which, &now.which) || differs(&before.version, &now.version) {
                self.part_with(config, number, &before, &now)?;
            }
        }
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        let settled =
            || journal::VolumeState::Settled { which: now.which.clone(), version: now.version.clone() };
        let state = if is_read_only { settled() } else { journal::VolumeState::Writing };
        let info = VolumeInfo {
            number: number.0,
            name: config.name.clone(),
            size_bytes: backing.size_bytes(),
            state,
        };
        ledger.journal.append(Record::Volume(&info));
        Ok(())
    }

    /// The image was changed by somebody else: what is cached of it is not so any more.
    fn part_with(
        &mut self,
        config: &VolumeConfig,
        number: Volume,
        before: &Identity,
        now: &Identity,
    ) -> Result<(), EngineError> {
        let mut dirty_bytes = 0;
        self.extents.visit_dirty(|owner, part| dirty_bytes += if owner == number { part.bytes } else { 0 });
        if dirty_bytes > 0 {
            let words = |identity: &Identity| {
                let part = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
                format!("{}, version {}", part(&identity.which), part(&identity.version))
            };
            let (name, before, now) = (config.name.clone(), words(before), words(now));
            return Err(EngineError::Stranger { name, dirty_bytes, before, now });
        }
        tracing::warn!(
            export = config.name,
            "the image was changed by somebody else: nothing of it stays cached"
        );
        let piece_bytes = self.extents.geometry().piece_bytes();
        let mut blocks = Vec::new();
        self.extents.map().visit_blocks(|owner, _, block| {
            if owner == number {
                blocks.push(block.piece * piece_bytes..(block.piece + block.pieces) * piece_bytes);
            }
        });
        for range in blocks {
            self.extents.discard(number, range);
        }
        self.note_map();
        Ok(())
    }

    /// Makes sure that nothing dirty waits for a volume that was not added, and that what was noted is durable. Call it when all
    /// volumes are there.
    ///
    /// # Errors
    /// When there are such bytes, or the device fails.
    pub fn begin_service(&mut self) -> Result<(), EngineError> {
        let served: HashSet<Volume> = self.volumes.iter().map(|volume| volume.number).collect();
        let mut orphans = HashSet::new();
        self.extents.visit_dirty(|volume, _| {
            if !served.contains(&volume) {
                orphans.insert(volume.0);
            }
        });
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        if !orphans.is_empty() {
            let infos = ledger.journal.volumes().filter(|info| orphans.contains(&info.number));
            let names: Vec<_> = infos.map(|info| info.name.clone()).collect();
            return Err(EngineError::Orphans { names: names.join(", ") });
        }
        let lsn = ledger.journal.appended();
        ledger.journal.want_synced(lsn);
        for at in 0..self.volumes.len() {
            if self.volumes[at].direct_writes.is_some() {
                self.volumes[at].flushes.wanted += 1;
                self.flush_store(at);
            }
        }
        self.drive(CLOSE_MAX, |engine| {
            let journal = engine.ledger.as_ref().map(|ledger| &ledger.journal);
            journal.is_none_or(|journal| journal.failed().is_some() || journal.synced() >= lsn)
        });
        match self.log_failure() {
            Some(why) => Err(EngineError::Journal(JournalError::Log { why: why.to_owned() })),
            None => Ok(()),
        }
    }

    /// Writes back all that is dirty, as long as the stores take it, and leaves the cache in order: for the end of a server.
    pub fn close(&mut self) {
        self.cleaner.close();
        // What the stores have is clean once the log says so.
        self.drive(CLOSE_MAX, |engine| {
            let is_noted = engine
                .ledger
                .as_ref()
                .is_none_or(|ledger| ledger.cleaned.is_empty() || ledger.journal.failed().is_some());
            is_noted && engine.volumes.iter().all(|volume| engine.cleaner.is_settled(volume.number))
        });
        let dirty_bytes = self.extents.units().dirty_bytes();
        if dirty_bytes > 0 {
            let kept = self.ledger.is_some();
            tracing::error!(dirty_bytes, kept, "the stores did not take all that is dirty");
        }
        let Some(ledger) = &mut self.ledger else { return };
        for (volume, export) in self.volumes.iter_mut().zip(&self.exports) {
            let is_flushed = volume.direct_writes.is_none() && volume.direct_flushing.is_none();
            if !self.cleaner.is_settled(volume.number) || !is_flushed {
                continue;
            }
            let Identity { which, version } = volume.backing.identity();
            let info = VolumeInfo {
                number: volume.number.0,
                name: export.name.clone(),
                size_bytes: volume.backing.size_bytes(),
                state: journal::VolumeState::Settled { which, version },
            };
            ledger.journal.append(Record::Volume(&info));
        }
        // Of what is left open the next start would keep nothing that is clean.
        let journal = &mut ledger.journal;
        ledger.open.close_all(|slot| {
            journal.append(Record::Close { slot });
        });
        let lsn = ledger.journal.appended();
        ledger.journal.want_sealed(lsn);
        ledger.journal.want_checkpoint();
        self.drive(CLOSE_MAX, |engine| {
            let journal = engine.ledger.as_ref().map(|ledger| &ledger.journal);
            journal.is_none_or(|journal| {
                journal.failed().is_some() || journal.sealed() >= lsn && journal.is_checkpointed()
            })
        });
    }

    /// Works until something is so, without clients.
    fn drive(&mut self, longest: Duration, is_so: impl Fn(&Engine) -> bool) {
        let start_ns = (self.clock)();
        let mut paused = Duration::ZERO;
        loop {
            self.pump();
            // A clock that somebody else moves may stand still.
            let waited = Duration::from_nanos((self.clock)().saturating_sub(start_ns)).max(paused);
            if is_so(self) || waited >= longest {
                return;
            }
            (self.pause)(PAUSE);
            paused += PAUSE;
        }
    }

    /// What the log did, where there is one.
    pub fn log_stats(&self) -> Option<journal::Stats> {
        self.ledger.as_ref().map(|ledger| ledger.journal.stats())
    }
}
