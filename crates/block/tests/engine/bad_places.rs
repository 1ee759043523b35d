//! Bad places in the world: those of the cache's device and of the stores, and which errors they allow.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use tiermem_base::Rng;
use tiermem_block::disks::{Answer, Asker, Disks, Job, Task, UNIT_BYTES};
use tiermem_block::journal::{Layout, LayoutConfig};
use tiermem_block::nbd::{Context, Contexts};
use tiermem_policy::extents::{Fill, Mode};
use tiermem_tier::block::{BadPlace, Failing, Op, Troubles};

use crate::setup::Setup;
use crate::stamp::{STAMP_BYTES, Stamp, value_of};
use crate::world::{Kind, World};

/// The devices and stores of an engine, for a test to spoil: the cache's first.
pub type Devices = Vec<Arc<Mutex<Troubles>>>;

/// What was spoiled so far of each store: it never counts as whole again.
#[derive(Clone, Debug, Default)]
pub struct Spoiled {
    /// By volume: the places that fail requests of this kind.
    stores: Vec<(usize, Op, Range<u64>)>,
    /// Volumes whose stores have had no room somewhere.
    full: Vec<usize>,
    /// The log may have failed.
    log: bool,
}

impl Spoiled {
    fn touches(&self, volume: usize, ops: &[Op], range: &Range<u64>) -> bool {
        let is_hit = |place: &Range<u64>| place.start < range.end && range.start < place.end;
        self.stores
            .iter()
            .any(|(of, op, place)| *of == volume && ops.contains(op) && (*op == Op::Sync || is_hit(place)))
    }

    /// A bad place on a device or in a store, at random. Mostly where the cache keeps its blocks.
    pub fn add(&mut self, setup: &Setup, devices: &Devices, rng: &mut Rng) {
        let at = if rng.below(4) == 0 { 1 + rng.below(setup.modes.len() as u64) as usize } else { 0 };
        let place = self.draw(setup, at, rng.below(16) == 0, rng);
        devices[at].lock().unwrap().bad_places.add(place);
    }

    /// A bad place on the cache's device (0) or in a store, in the log where there is one or where bytes are.
    fn draw(&mut self, setup: &Setup, at: usize, in_log: bool, rng: &mut Rng) -> BadPlace {
        let data_at = setup.data_at();
        let within = match at {
            0 if !in_log => data_at..setup.cache_bytes,
            0 => 0..data_at.max(UNIT_BYTES),
            _ => 0..setup.volume_bytes,
        };
        let units = (within.end - within.start) / UNIT_BYTES;
        let start = within.start + rng.below(units) * UNIT_BYTES;
        let bytes = start..start + (1 + rng.below(16)) * UNIT_BYTES;
        // A sync that fails is the end of the log.
        let ops = if rng.below(16) == 0 { [Op::Sync; 2] } else { [Op::Read, Op::Write] };
        let op = ops[rng.below(2) as usize];
        let failing = [Failing::Io, Failing::Short, Failing::Full, Failing::ReadOnly][rng.below(4) as usize];
        // What goes to a store waits until it takes it.
        let for_good = rng.below(2) == 0 && (at == 0 || op == Op::Read);
        let times = (!for_good).then(|| 1 + rng.below(3) as u32);
        match at {
            0 => self.log |= setup.durable && (bytes.start < data_at || op == Op::Sync),
            _ => self.stores.push((at - 1, op, bytes.clone())),
        }
        if at > 0 && failing == Failing::Full && op != Op::Read {
            self.full.push(at - 1);
        }
        BadPlace { op, bytes, failing, times }
    }

    /// Another process begins: the devices work again.
    pub fn restart(&mut self) {
        self.log = false;
    }
}

impl Setup {
    /// Where the cache's blocks begin on its device.
    fn data_at(&self) -> u64 {
        let (block_bytes, log_bytes) = (self.sizes_bytes.clone(), Some(self.log_bytes()));
        let config = LayoutConfig { block_bytes, group_bytes: None, log_bytes };
        if self.durable { Layout::plan(self.cache_bytes, &config).unwrap().data_at } else { 0 }
    }
}

/// The whole units of a range.
fn whole(range: &Range<u64>) -> Range<u64> {
    range.start / UNIT_BYTES * UNIT_BYTES..range.end.next_multiple_of(UNIT_BYTES)
}

impl World {
    /// Something breaks.
    pub fn spoil_random(&mut self) {
        let World { spoiled, setup, devices, rng, .. } = self;
        spoiled.add(setup, devices, rng);
    }

    /// What fails on the cache's device while a process takes it up: mostly nothing.
    pub fn spoil_start(&mut self) -> Vec<BadPlace> {
        let World { spoiled, setup, rng, .. } = self;
        let count = if setup.bad_places && rng.below(3) == 0 { 1 + rng.below(3) } else { 0 };
        (0..count).map(|_| spoiled.draw(setup, 0, rng.below(2) == 0, rng)).collect()
    }

    /// The units of each volume, as the present process leaves them, of which there may be no copy, or of which the log does not know
    /// durably that the store has one.
    pub fn those_that_may_be_lost(&mut self) -> Vec<Vec<bool>> {
        let mut of_all = Vec::new();
        for volume in 0..self.setup.modes.len() {
            let mut units = self.dirty_units(volume);
            for (at, unit) in (0..).step_by(UNIT_BYTES as usize).zip(&mut units) {
                *unit |= self.is_gone(volume, &(at..at + UNIT_BYTES));
            }
            of_all.push(units);
        }
        of_all
    }

    /// The units of a volume that the engine takes to be dirty.
    fn dirty_units(&mut self, volume: usize) -> Vec<bool> {
        let size_bytes = self.setup.volume_bytes;
        let asker = Asker { connection: 3, cookie: 0 };
        self.engine.submit(Job {
            asker,
            disk: volume,
            task: Task::Describe(Contexts::none().with(Context::Cache)),
            offset: 0,
            bytes: size_bytes,
            durable: false,
        });
        let mut done = Vec::new();
        self.engine.take(&mut done);
        let described =
            done.into_iter().find(|outcome| outcome.asker == asker).expect("it is answered at once");
        let Ok(Answer::Parts { cache, .. }) = described.result else { panic!("it is described") };
        let mut units = Vec::new();
        for part in cache {
            let count = u64::from(part.len_bytes).div_ceil(UNIT_BYTES) as usize;
            units.extend(std::iter::repeat_n(part.flags & Context::DIRTY != 0, count));
        }
        units
    }

    /// Whether there may be no copy of a range: only the cache had it, and its device does not give it; or both have failed. What a store
    /// took and then failed to flush is not known to be there, nor which part of a block was written that is dirty as a whole.
    fn is_gone(&self, volume: usize, range: &Range<u64>) -> bool {
        let counts = self.engine.counts(volume);
        counts.write_back_failures > 0
            || counts.poisoned_units > 0 && self.setup.fill == Fill::Whole
            || self.was_lost(volume, range)
            || self.is_lacking(volume, range)
            || self.spoiled.touches(volume, &[Op::Read], range)
    }

    /// Whether the store lacks something of the blocks of a range that a client was told to be written, or may have been; or has it, and
    /// was not flushed.
    pub fn is_lacking(&self, volume: usize, range: &Range<u64>) -> bool {
        let (stamps, size_bytes) = (self.stamps(volume), self.setup.volume_bytes);
        let range = self.dirtied_with(range);
        let range = range.start..range.end.min(size_bytes);
        if !self.stores[volume].is_synced(range.clone()) {
            return true;
        }
        self.stores[volume].with_bytes(|bytes| {
            let first = (range.start / STAMP_BYTES) as usize;
            bytes[range.start as usize..range.end as usize]
                .chunks(STAMP_BYTES as usize)
                .zip(&stamps[first..])
                .any(|(stamped, stamp)| is_newer(stamp, stamped))
        })
    }

    /// Whether a request may be refused for want of room. A store that had none some times, with long times between them, is full for those
    /// who would have to wait for it.
    pub fn may_be_full(&self, volume: usize, kind: Kind) -> bool {
        matches!(kind, Kind::Write | Kind::Zero | Kind::Flush) && self.spoiled.full.contains(&volume)
    }

    /// Whether the log has failed, as it may.
    pub fn has_log_failed(&self) -> bool {
        self.spoiled.log && self.engine.status().cache.log.is_some_and(|log| log.failure.is_some())
    }

    /// Whether the cache's device has failed somewhere in this process.
    pub fn has_failed_places(&self) -> bool {
        let status = self.engine.status();
        status.cache.retired_bytes > 0 || status.exports.iter().any(|export| export.counts.poisoned_units > 0)
    }

    /// Whether an error is allowed: there is no copy of what was asked, or no place for what was written.
    pub fn may_fail(
        &self,
        volume: usize,
        kind: Kind,
        range: &Range<u64>,
        (durable, lacked): (bool, bool),
    ) -> bool {
        let (spoiled, log_failed) = (&self.spoiled, self.has_log_failed());
        let units = whole(range);
        let store_fails = |ops: &[Op], range: &Range<u64>| spoiled.touches(volume, ops, range);
        let is_gone = |range: &Range<u64>| lacked || self.is_gone(volume, range);
        // Where nothing in the cache has room for it, a write goes past it.
        let status = self.engine.status();
        let has_lost = status.exports.iter().any(|export| export.counts.poisoned_units > 0);
        let goes_past =
            self.setup.modes[volume] != Mode::WriteBack || status.cache.retired_bytes > 0 || has_lost;
        match kind {
            Kind::Read => is_gone(&units),
            Kind::Prefetch => is_gone(&self.block_of(range)),
            Kind::Write | Kind::Zero if durable && store_fails(&[Op::Sync], &(0..u64::MAX)) => true,
            Kind::Write | Kind::Zero => {
                let edges = [units.start..units.start + UNIT_BYTES, units.end - UNIT_BYTES..units.end];
                let is_edge_gone = *range != units && edges.iter().any(is_gone);
                log_failed
                    || is_edge_gone
                    || goes_past && store_fails(&[Op::Write], range)
                    || self.setup.fetches_around() && is_gone(&self.block_of(range))
            }
            Kind::Flush => log_failed || store_fails(&[Op::Sync], &(0..u64::MAX)),
            Kind::Trim | Kind::Describe => false,
        }
    }

    /// The bytes that are dirty with a range: of a block that is filled as a whole all, what nobody has written among it.
    pub fn dirtied_with(&self, range: &Range<u64>) -> Range<u64> {
        if self.setup.fill == Fill::Whole { self.block_of(range) } else { whole(range) }
    }

    /// The bytes around a range that a write may fetch.
    fn block_of(&self, range: &Range<u64>) -> Range<u64> {
        let largest = *self.setup.sizes_bytes.last().unwrap();
        range.start / largest * largest..range.end.next_multiple_of(largest)
    }
}

/// Whether a client may know of something newer than a store's content.
fn is_newer(stamp: &Stamp, stamped: &[u8]) -> bool {
    // Which of its zeroes a store has is unknown.
    let is_newest = |value: u64| stamp.history.last().is_some_and(|last| last.value == value && value != 0);
    stamp.history.len() > 1 && !value_of(stamped).is_some_and(is_newest)
}
