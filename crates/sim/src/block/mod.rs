//! Simulation of the block cache, without its bytes: the plans of [`tiermem_policy::extents`] for every request of a trace,
//! carried out and counted.
//!
//! Source: Yang 2024, section 2.3: whole traces through the prototype's own code, hit ratios and I/O volumes. Dirty bytes are
//! written back when their block is evicted, and at the end, or, if asked, in the background ([`cleaner`]).
//!
//! # Requests under way
//!
//! Without cleaning in the background a request is over as soon as it is planned. So no plan is in flight when the next one is
//! made, and no request is [`Verdict::Busy`].
//!
//! With it, requests come at the trace's times and take time, so several are under way at once. As in the live engine, each holds
//! the blocks of its plan until all of its work is done ([`Extents::finish`]), and no other request gets their places before:
//!
//! | moment | what happens |
//! | --- | --- |
//! | planned | The request has come, or tries again. From now on its plan holds its blocks. It reads what it needs: from the cache's device what is not in DRAM, from the store what is not in the cache. |
//! | gathered | The last of these reads is done: at once, or a latency of the slower device later. A read is answered. What the plan fills or writes through is written. |
//! | stored | The last of these writes is done, a latency later. A write is answered. The plan is finished. |
//!
//! A read that stores nothing is over when it is gathered, and one that stores what it fetched holds its blocks for as long as that
//! takes after its answer. (A live cache with a log answers a write when it is gathered. Its plan is finished when it is stored, as
//! here.)
//!
//! A request that cannot begin holds nothing, and tries again when what it waits for has happened. The time until then is a part of its
//! latency.
//!
//! | it waits for | until | counted in [`Counts::waited_requests`] |
//! | --- | --- | --- |
//! | copies of what it writes, which are being written back | the last of them is in memory | no |
//! | room in the log | there is some | no |
//! | dirty bytes: of its own units, of the cache, or of the block that makes way ([`Verdict::Clean`]) | something has become clean | yes |
//! | plans in flight, which hold all that could make way ([`Verdict::Busy`]) | some request or copy is over | no |
//!
//! Requests that come later wait behind it. Those that touch the same bytes do not wait for each other, as they do in the engine.

mod bad_places;
mod cleaner;
mod costs;
mod counts;
mod events;
mod flights;
mod many;
mod troubles;

use std::collections::HashMap;
use std::ops::Range;

use tiermem_base::{Access, Op, Rng};
use tiermem_policy::evict::any_policy::WithPolicy;
use tiermem_policy::evict::{Evict, Named};
use tiermem_policy::extents::admission::AdmissionRules;
use tiermem_policy::extents::cleaner::CleanerRules;
use tiermem_policy::extents::{
    Config, Copies, Extents, Fill, Geometry, GeometryError, Mode, Part, Plan, Request, Share, Sizing,
    UNIT_BYTES, Verdict, Volume,
};

use cleaner::Background;

pub use costs::Costs;
pub use counts::Counts;
pub use many::{BlockError, Outcome, run, working_sets};
pub use troubles::{LogFull, Troubles};

/// Requests between two looks at how much memory the metadata takes.
const METADATA_EVERY: u64 = 1 << 14;

/// The setup of a simulated cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Block sizes, ascending.
    pub sizes_bytes: Vec<u64>,
    /// Size of a group; the largest block unless given.
    pub group_bytes: Option<u64>,
    /// The bytes that a miss brings in.
    pub fill: Fill,
    /// How large its blocks are.
    pub sizing: Sizing,
    /// Where writes go.
    pub mode: Mode,
    /// The rules by which reads are refused a place.
    pub admission: AdmissionRules,
    /// When dirty bytes are written back by the trace's time; `None`: when their block goes, while the request waits that
    /// drives it out (the published prototype).
    pub cleaning: Option<CleanerRules>,
    /// After how many writes to a volume a flush of it is acknowledged; traces tell of none.
    pub flush_every: Option<u64>,
    /// Failures during the run, for the cleaner.
    pub troubles: Troubles,
    /// Tenants with a limit in bytes, each in a share of its own; the other tenants have the rest together.
    pub quotas: Vec<(u32, u64)>,
    /// Order of eviction.
    pub policy: Named,
    /// DRAM for copies of what is read again.
    pub memory_bytes: u64,
    /// Size of the cache.
    pub capacity_bytes: u64,
    /// The costs of the devices in time.
    pub costs: Costs,
}

/// A trace that no block cache can be simulated on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockTraceError {
    /// It is no trace of blocks.
    #[error("record {record} is a {op}: a block cache takes traces of reads and writes of byte ranges")]
    Op {
        /// Counted from 1.
        record: u64,
        /// The operation.
        op: Op,
    },
    /// It has too many volumes.
    #[error("the trace has more than {0} volumes")]
    Volumes(u16),
    /// A request lies too far out.
    #[error(
        "record {record} reaches byte {end}, and volumes of more than {limit} bytes cannot be cached with blocks this small"
    )]
    TooFar {
        /// Counted from 1.
        record: u64,
        /// The first byte behind it.
        end: u64,
        /// The largest volume.
        limit: u64,
    },
}

/// A cache under simulation.
pub trait Cache: Send {
    /// Runs over the next records.
    fn run(&mut self, records: &[Access]) -> Result<(), BlockTraceError>;
    /// A flush of a volume is acknowledged at a time, as [`Self::run`] gets that of records: what is written from then on reaches the store
    /// behind what is dirty now.
    fn flush(&mut self, tenant: u32, time_ns: u64) -> Result<(), BlockTraceError>;
    /// Counts from now on only.
    fn forget_counts(&mut self);
    /// Writes back what is dirty, and tells the counts of each volume, in the order of their first requests.
    fn finish(&mut self) -> Vec<(u32, Counts)>;
}

impl Setup {
    /// Owners of space: those with a quota, and the others as one.
    fn shares(&self) -> u16 {
        u16::try_from(1 + self.quotas.len()).unwrap_or(u16::MAX)
    }

    /// An empty cache; `seed` is for policies that draw.
    pub fn build(&self, seed: u64) -> Result<Box<dyn Cache>, GeometryError> {
        let geometry = Geometry::new(&self.sizes_bytes, self.group_bytes, self.capacity_bytes)?;
        let domains = Extents::<tiermem_policy::evict::Lru>::domains(self.shares());
        Ok(self.policy.build(domains, 0, Build { setup: self, geometry, seed }))
    }
}

struct Build<'a> {
    setup: &'a Setup,
    geometry: Geometry,
    seed: u64,
}

impl WithPolicy for Build<'_> {
    type Output = Box<dyn Cache>;

    fn with<E: Evict + Send + std::fmt::Debug + 'static>(self, order: E) -> Box<dyn Cache> {
        let Setup { fill, sizing, mode, admission, cleaning, costs, .. } = *self.setup;
        let config = Config { fill, sizing, shares: self.setup.shares() };
        let (piece_bytes, capacity_bytes) = (self.geometry.piece_bytes(), self.geometry.capacity_bytes());
        let mut extents = Extents::new(self.geometry, config, order, Rng::seeded(self.seed));
        extents.set_admission(admission);
        if let Some(rules) = cleaning {
            extents.sizer_mut().clean_by(rules);
        }
        for (share, (_, bytes)) in (1..self.setup.shares()).map(Share).zip(&self.setup.quotas) {
            extents.shares_mut().set_limit(share, *bytes);
        }
        Box::new(Simulation {
            piece_bytes,
            contents: Contents { extents, copies: Copies::new(self.setup.memory_bytes), counts: Vec::new() },
            cleaner: cleaning
                .map(|rules| Background::new(rules, capacity_bytes, &costs, self.setup.troubles.clone())),
            mode,
            costs,
            flush_every: self.setup.flush_every,
            unflushed_writes: Vec::new(),
            bad_places: self.setup.troubles.bad_places.clone(),
            quotas: self.setup.quotas.clone(),
            plan: Plan::default(),
            volumes: HashMap::new(),
            requests: 0,
        })
    }
}

/// A simulated cache: its contents and its counts.
struct Contents<O> {
    extents: Extents<O>,
    /// Units that are in DRAM as well.
    copies: Copies,
    counts: Vec<(u32, Counts)>,
}

/// The units of a part, in the cache.
fn units_at(part: &Part) -> Range<u64> {
    part.at / UNIT_BYTES..(part.at + part.bytes) / UNIT_BYTES
}

struct Simulation<O> {
    contents: Contents<O>,
    cleaner: Option<Background>,
    piece_bytes: u64,
    mode: Mode,
    costs: Costs,
    flush_every: Option<u64>,
    /// Writes to each volume since its last flush.
    unflushed_writes: Vec<u64>,
    bad_places: Vec<Range<u64>>,
    quotas: Vec<(u32, u64)>,
    plan: Plan,
    /// The number of each tenant's volume.
    volumes: HashMap<u32, Volume>,
    requests: u64,
}

impl<O: Evict + Send> Cache for Simulation<O> {
    fn run(&mut self, records: &[Access]) -> Result<(), BlockTraceError> {
        records.iter().try_for_each(|record| self.request(record))
    }

    fn flush(&mut self, tenant: u32, time_ns: u64) -> Result<(), BlockTraceError> {
        let volume = self.volume(tenant)?;
        self.flush_volume(volume, time_ns);
        Ok(())
    }

    fn forget_counts(&mut self) {
        self.contents.counts.iter_mut().for_each(|(_, counts)| *counts = Counts::default());
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.forget_counts();
        }
    }

    fn finish(&mut self) -> Vec<(u32, Counts)> {
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.finish(&mut self.contents);
        }
        let mut dirty = Vec::new();
        let Contents { extents, counts, .. } = &mut self.contents;
        extents.visit_dirty(|volume, part| {
            let counts = &mut counts[usize::from(volume.0)].1;
            counts.write_back(std::slice::from_ref(&part));
            counts.dirty_at_end_bytes += part.bytes;
            dirty.push(part);
        });
        extents.units_mut().cleaned(&dirty);
        self.note_metadata();
        std::mem::take(&mut self.contents.counts)
    }
}

impl<O: Evict> Simulation<O> {
    fn volume(&mut self, tenant: u32) -> Result<Volume, BlockTraceError> {
        if let Some(volume) = self.volumes.get(&tenant) {
            return Ok(*volume);
        }
        let number =
            u16::try_from(self.contents.counts.len()).ok().filter(|number| *number < Volume::COUNT_MAX);
        let volume = Volume(number.ok_or(BlockTraceError::Volumes(Volume::COUNT_MAX))?);
        self.volumes.insert(tenant, volume);
        if let Some(at) = self.quotas.iter().position(|(of, _)| *of == tenant) {
            self.contents.extents.shares_mut().assign(volume, Share(at as u16 + 1));
        }
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.add(volume, tenant);
        }
        self.contents.counts.push((tenant, Counts::default()));
        self.unflushed_writes.push(0);
        Ok(volume)
    }

    fn flush_volume(&mut self, volume: Volume, time_ns: u64) {
        self.unflushed_writes[usize::from(volume.0)] = 0;
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.run_until(time_ns, &mut self.contents);
            cleaner.flush(volume, &mut self.contents);
        }
    }

    fn request(&mut self, record: &Access) -> Result<(), BlockTraceError> {
        self.requests += 1;
        let write = match record.op {
            Op::Read | Op::Load => None,
            Op::Write | Op::Store => Some(self.mode),
            op => return Err(BlockTraceError::Op { record: self.requests, op }),
        };
        // A request of nothing is none.
        if record.size == 0 {
            return Ok(());
        }
        let bytes = u64::from(record.size);
        let end = record.key.saturating_add(bytes);
        let limit = Volume::bytes_max(self.piece_bytes);
        if end > limit {
            return Err(BlockTraceError::TooFar { record: self.requests, end, limit });
        }
        let volume = self.volume(record.tenant)?;
        let write = write.map(|mode| self.contents.extents.write_mode(volume, record.key..end, mode));
        let request = Request { volume, offset: record.key, bytes, write, bypass: false };
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.run_until(record.time_ns, &mut self.contents);
        }
        let (waited_ns, waited) = self.plan(request);
        let memory_bytes = self.read_copies(volume);
        self.contents.fail(&self.bad_places, volume, &self.plan);
        let latency_ns = self.costs.latency_ns(&request, &self.plan, memory_bytes);
        let Contents { extents, counts, .. } = &mut self.contents;
        let counts = &mut counts[usize::from(volume.0)].1;
        counts.add(&request, &self.plan, waited_ns + latency_ns);
        counts.waited_requests += u64::from(waited);
        let fetch = self.costs.fetch(&self.plan);
        match &mut self.cleaner {
            None => {
                extents.finish(&mut self.plan);
                if let Some(fetch) = fetch {
                    extents.sizer_mut().measured(volume, fetch);
                }
            }
            Some(cleaner) => {
                let steps = (self.costs.gather(&self.plan, memory_bytes), self.costs.store(&self.plan));
                cleaner.begin(&request, &mut self.plan, steps, fetch, &mut self.contents);
            }
        }
        self.contents.extents.sizer_mut().observe(usize::MAX);
        let unflushed = &mut self.unflushed_writes[usize::from(volume.0)];
        *unflushed += u64::from(write.is_some());
        if self.flush_every.is_some_and(|every| *unflushed >= every) {
            self.flush_volume(volume, record.time_ns);
        }
        if self.requests.is_multiple_of(METADATA_EVERY) {
            self.note_metadata();
        }
        Ok(())
    }

    /// Plans a request; for how long it waits before, in nanoseconds, and whether that is for something else to be written back.
    fn plan(&mut self, mut request: Request) -> (u64, bool) {
        let Simulation { contents, plan, cleaner, costs, .. } = self;
        if let Some(cleaner) = cleaner {
            return cleaner.plan(&mut request, plan, contents);
        }
        let Contents { extents, counts, .. } = contents;
        let (mut waited_ns, mut bytes) = (0, 0);
        // It is never busy: no other plan is in flight.
        while extents.plan(&request, plan) == Verdict::Clean {
            for (part, volume) in plan.clean.iter().zip(&plan.clean_volumes) {
                counts[usize::from(volume.0)].1.write_back(std::slice::from_ref(part));
            }
            extents.units_mut().cleaned(&plan.clean);
            bytes += plan.clean.iter().map(|part: &Part| part.bytes).sum::<u64>();
            waited_ns = costs.write_back_ns(bytes);
            plan.again = true;
        }
        (waited_ns, bytes > 0)
    }

    /// Reads what a plan names out of DRAM as far as it is there, and has the rest copied there. Returns how many bytes are.
    fn read_copies(&mut self, volume: Volume) -> u64 {
        let Contents { copies, counts, .. } = &mut self.contents;
        if copies.is_none() {
            return 0;
        }
        let counts = &mut counts[usize::from(volume.0)].1;
        let mut memory_bytes = 0;
        for part in &self.plan.cached {
            if copies.read(units_at(part), |_| {}) {
                counts.spared(part.bytes);
                memory_bytes += part.bytes;
            }
        }
        // All are asked for before any arrives.
        let is_missed = |part: &&Part| !units_at(part).all(|unit| copies.place(unit).is_some());
        let missed: Vec<_> = self.plan.cached.iter().filter(is_missed).map(units_at).collect();
        for units in missed {
            match &mut self.cleaner {
                Some(cleaner) => cleaner.reads(units),
                None => copies.insert(units, |_| {}),
            }
        }
        memory_bytes
    }

    /// Every volume is told what all of them take together.
    fn note_metadata(&mut self) {
        let Contents { extents, counts, .. } = &mut self.contents;
        let (growing, flat) = extents.metadata_bytes();
        let blocks = extents.map().blocks().iter().sum::<u64>();
        for (_, counts) in counts {
            counts.note_metadata(growing + flat, blocks);
        }
    }
}
