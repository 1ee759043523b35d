//! Opening and closing of the engine: restoring a cache from a device, adding volumes to it, and an orderly stop.

use std::sync::Arc;
use std::time::Duration;

use std::collections::{HashSet, VecDeque};

use tiermem_base::Rng;
use tiermem_policy::evict::Order;
use tiermem_policy::extents::cleaner::{Cleaner, TrimsLeft};
use tiermem_policy::extents::{Config, Extents, Geometry, Mode, Part, Share, Volume};
use tiermem_tier::block::BlockIo;

use super::Engine;
use super::client_jobs::Answers;
use super::config::{EngineConfig, EngineError, VolumeConfig};
use super::descriptions::Descriptions;
use super::device::Device;
use super::memory::Memory;
use super::op::units_of;
use super::op_table::Operations;
use super::pairing_state::CacheIdentity;
use super::shared::Shared;
use super::ticker::Ticker;
use super::unstored::Unstored;
use super::volume::{VolumeState, Volumes};
use super::write_back::WriteBack;
use super::write_order::{Log, WriteOrder};
use crate::disks::BufferPool;
use crate::journal::{self, Journal, JournalError, Recovered};
use tiermem_tier::backing::Backing;

/// Longest wait for stores when a server stops.
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

    /// Opens the cache on a device that has one, or a new one on an empty device; with `reset` the device's contents
    /// are lost. It may take a while: it reads the log and checks what was being written when the last process ended.
    ///
    /// # Errors
    /// When the device holds something else, another cache than the one described, or a damaged one; or when it fails.
    pub fn open(
        mut cache: Box<dyn BlockIo>,
        config: EngineConfig,
        reset: bool,
    ) -> Result<(Self, Recovered), EngineError> {
        let layout = config.layout();
        let discarded = if reset { journal::cache_on(&mut cache) } else { None };
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
        engine.shared.cache.discarded = discarded;
        engine.shared.restore()?;
        engine.shared.note_unchecked(&recovered);
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
        let write_order = WriteOrder::new(&geometry);
        let mut extents = Extents::new(geometry, extents_config, order, Rng::seeded(config.seed));
        extents.changes_mut().record(journal.is_some());
        extents.set_admission(config.admission);
        extents.sizer_mut().clean_by(config.cleaning);
        let drawn = || u128::from(journal::random()) << 64 | u128::from(journal::random());
        let id = journal.as_ref().map_or_else(drawn, Journal::cache);
        let data_at = journal.as_ref().map_or(0, |journal| journal.layout().data_at);
        Engine {
            ops: Operations::default(),
            shared: Shared {
                cache: CacheIdentity { id, discarded: None },
                unchecked_bytes: 0,
                extents,
                write_back: WriteBack::new(cleaner),
                log: Log::new(journal),
                write_order,
                device: Device::new(cache, data_at),
                memory: Memory::new(config.memory_bytes),
                unstored: Unstored::default(),
                descriptions: Descriptions::default(),
                volumes: Volumes::default(),
                answers: Answers::default(),
                pool: BufferPool::default(),
                ready: VecDeque::new(),
                unproven: Vec::new(),
                now_ns: 0,
            },
            waker: None,
            ticker: Ticker::idle(),
            clock: config.clock,
            pause: config.pause,
        }
    }

    /// Adds a volume; the place of its export is its number for the server.
    ///
    /// # Errors
    /// When there are too many, it is larger than the smallest blocks can address, or it is another image than the one that the cache has
    /// dirty bytes for.
    pub fn add(&mut self, config: VolumeConfig, mut backing: Box<dyn Backing>) -> Result<usize, EngineError> {
        let (number, pairing) = self.shared.take_up(&config, &mut *backing)?;
        let Shared { extents, write_back, .. } = &mut self.shared;
        let cleaner = write_back.cleaner_mut();
        extents.shares_mut().assign(number, Share(config.share));
        cleaner.add(number, backing.session());
        cleaner.drain(number, config.mode != Mode::WriteBack);
        // All data that were dirty when the last process ended form one
        // epoch: their order relative to flushes is not known any more.
        extents.visit_dirty(|owner, part| {
            let parts = if owner == number { extents.units().without_lost(&[part]) } else { Vec::new() };
            for Part { offset, bytes, .. } in parts {
                cleaner.restore(number, units_of(&(offset..offset + bytes)));
            }
        });
        cleaner.close_epoch(number);
        let export = config.export(backing.size_bytes(), backing.is_read_only());
        let mut volume = VolumeState::new(number, &config, backing);
        volume.pairing = pairing;
        if !volume.backing.is_read_only() {
            // What the process before has written and not flushed is read now: a flush is for that, too.
            volume.flushing.wrote(volume.backing.session());
        }
        if let Some(waker) = &self.waker {
            volume.backing.notify(Arc::clone(waker));
        }
        let at = self.shared.volumes.add(volume, export);
        if config.quota_bytes.is_some() {
            self.limit(at, config.quota_bytes);
        }
        Ok(at)
    }

    /// Makes sure that nothing dirty waits for a volume that was not added, and that what was noted is durable. Call it when all
    /// volumes are there.
    ///
    /// # Errors
    /// When there are such bytes, or the device fails.
    pub fn begin_service(&mut self) -> Result<(), EngineError> {
        if !self.shared.log.is_kept() {
            self.shared.label_stores();
            return Ok(());
        }
        let served: HashSet<Volume> = self.shared.volumes.iter().map(|volume| volume.number).collect();
        let mut orphans = HashSet::new();
        self.shared.extents.visit_dirty(|volume, _| {
            if !served.contains(&volume) {
                orphans.insert(volume.0);
            }
        });
        if !orphans.is_empty() {
            let infos = self.shared.log.journal().into_iter().flat_map(Journal::volumes);
            let names: Vec<_> =
                infos.filter(|info| orphans.contains(&info.number)).map(|info| info.name.clone()).collect();
            return Err(EngineError::Orphans { names: names.join(", ") });
        }
        // What was noted of the volumes is durable before their stores change, and that is noted before anything else is done.
        self.settle_log()?;
        self.shared.label_stores();
        for at in 0..self.shared.volumes.len() {
            let flushing = &mut self.shared.volumes[at].flushing;
            if let Some(flush) = flushing.needed() {
                flushing.want(flush);
                self.shared.flush_store(at);
            }
        }
        self.settle_log()
    }

    /// Makes all that the log was told durable.
    fn settle_log(&mut self) -> Result<(), EngineError> {
        let wait = self.shared.log.sync();
        self.drive(CLOSE_MAX, |engine| engine.shared.log.is_past(wait));
        match self.shared.log.failure() {
            Some(why) => Err(EngineError::Journal(JournalError::Log { why: why.to_owned() })),
            None => Ok(()),
        }
    }

    /// Writes back all that is dirty, as long as the stores take it, and leaves the cache in order: for the end of a server. Returns the
    /// bytes that are dirty still.
    pub fn close(&mut self) -> u64 {
        self.shared.write_back.cleaner_mut().close();
        // What the stores have is clean once the log says so.
        self.drive(CLOSE_MAX, |engine| {
            let Shared { log, write_order, volumes, write_back, .. } = &engine.shared;
            write_order.is_settled(log)
                && volumes.iter().all(|volume| {
                    let cleaner = write_back.cleaner();
                    // No stop waits for a store that fails a trim.
                    let trims_left = cleaner.standing(volume.number).trims_left;
                    cleaner.is_settled(volume.number) && trims_left != TrimsLeft::Some
                })
        });
        let dirty_bytes = self.dirty_bytes();
        if dirty_bytes > 0 {
            let kept = self.shared.log.is_kept();
            tracing::error!(dirty_bytes, kept, "the stores did not take all that is dirty");
        }
        if !self.shared.log.is_kept() {
            return dirty_bytes;
        }
        for at in 0..self.shared.volumes.len() {
            let volume = &self.shared.volumes[at];
            let is_settled = self.shared.write_back.cleaner().is_settled(volume.number);
            if is_settled && volume.flushing.is_flushed() {
                self.shared.settle(at);
            }
        }
        let Shared { log, write_order, .. } = &mut self.shared;
        let wait = write_order.close(log);
        self.drive(CLOSE_MAX, |engine| {
            let log = &engine.shared.log;
            let is_checkpointed = log.journal().is_none_or(Journal::is_checkpointed);
            log.is_past(wait) && (is_checkpointed || log.failure().is_some())
        });
        dirty_bytes
    }

    /// Works until something is so, without clients.
    fn drive(&mut self, longest: Duration, is_so: impl Fn(&Engine) -> bool) {
        let start_ns = (self.clock)();
        let mut paused = Duration::ZERO;
        loop {
            self.pump();
            // A clock that is advanced from outside may stand still.
            let waited = Duration::from_nanos((self.clock)().saturating_sub(start_ns)).max(paused);
            if is_so(self) || waited >= longest {
                return;
            }
            (self.pause)(PAUSE);
            paused += PAUSE;
        }
    }

    /// Statistics of the log, where there is one.
    pub fn log_stats(&self) -> Option<journal::Stats> {
        self.shared.log.journal().map(Journal::stats)
    }
}
