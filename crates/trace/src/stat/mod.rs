//! Statistics of a trace in one streaming pass.
//!
//! Counts of operations, sizes, times and spatial locality take constant memory, about 3.5 MiB. What is known per key
//! (unique keys, reuse, popularity) takes at most 100 bytes per key, and what is known per page of a memory trace as
//! much per page; or per sampled key and page: under spatial sampling at rate R, only keys in [`Sample`] are followed,
//! counts of them are divided by R, and so are stack distances (SHARDS, FAST 2015). Everything else stays exact.

mod addresses;
mod columns;
mod distribution;
mod growth;
mod popularity;
mod spatial;

use std::collections::BTreeMap;

use serde::Serialize;
use tiermem_base::hash::{Sample, sample_hash};
use tiermem_base::intern::Interner;
use tiermem_base::recency::Recency;
use tiermem_base::{Access, Op};

use crate::optional::OptionalRow;

pub use addresses::AddressStat;
use addresses::Addresses;
use columns::Columns;
pub use columns::{ColumnStat, ValueStat};
pub use distribution::{Bucket, Distribution, DistributionStat};
use growth::Growth;
pub use growth::GrowthPoint;
pub use popularity::{RankPoint, ZipfFit, fit_zipf};
pub use spatial::{NEAR_BLOCKS, Near, Spatial, SpatialStat, WINDOW};

/// How statistics are taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatOptions {
    /// The share of keys that are followed, above 0 and at most 1.
    pub sample_rate: f64,
    /// Units of the key in a block for spatial locality; see [`Spatial::new`].
    pub block: Option<u64>,
}

impl Default for StatOptions {
    fn default() -> Self {
        StatOptions { sample_rate: 1.0, block: None }
    }
}

/// Statistics of a trace. Names, units and meanings of the fields are stable.
///
/// A key is told by its number alone, as in simulators: equal keys of two tenants are one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceStat {
    /// Accesses of the trace.
    pub requests: u64,
    /// The share of keys that were followed; below 1, fields that need keys are estimates.
    pub sample_rate: f64,
    /// Different keys.
    pub unique_keys: u64,
    /// The sum over all keys of the last size known; a size of 0 does not replace another.
    pub working_set_bytes: u64,
    /// The sum of the sizes of all accesses.
    pub requested_bytes: u64,
    /// Accesses that look something up (get, read, load, scan).
    pub reads: u64,
    /// Accesses that write (set, write, store).
    pub writes: u64,
    /// Accesses that remove (del).
    pub deletes: u64,
    /// Reads over writes; `None` without writes.
    pub read_write_ratio: Option<f64>,
    /// Unique keys over requests: what misses in a cache of any size.
    pub compulsory_miss_ratio: f64,
    /// Keys with a single access.
    pub one_hit_keys: u64,
    /// These over all keys.
    pub one_hit_ratio: f64,
    /// From the earliest to the latest access.
    pub duration_ns: u64,
    /// Requests over the duration; `None` if that is 0.
    pub requests_per_second: Option<f64>,
    /// Accesses that are earlier than the one before them; their inter-arrival time counts as 0.
    pub time_steps_back: u64,
    /// The exponent of popularity; `None` with too few keys that have five accesses.
    pub zipf: Option<ZipfFit>,
    /// Each operation that occurs.
    pub ops: Vec<OpStat>,
    /// Each tenant that occurs.
    pub tenants: Vec<TenantStat>,
    /// Sizes of accesses in bytes.
    pub size_bytes: Option<DistributionStat>,
    /// Times between an access and the next.
    pub inter_arrival_ns: Option<DistributionStat>,
    /// Requests from an access to a key to the next access to it; 1 is the very next.
    pub reuse_time_requests: Option<DistributionStat>,
    /// Temporal locality: the LRU stack distance of accesses that are not their key's first, in keys; see
    /// [`tiermem_base::recency::ReuseDistance`].
    pub stack_distance_keys: Option<DistributionStat>,
    /// Accesses of each key.
    pub accesses_per_key: Option<DistributionStat>,
    /// Accesses by rank of popularity, at ranks that grow by some 5% at a time.
    pub popularity: Vec<RankPoint>,
    /// The working set in up to 128 stretches of the trace that have equally many accesses.
    pub growth: Vec<GrowthPoint>,
    /// Spatial locality.
    pub spatial: SpatialStat,
    /// Footprint and locality of a memory trace, by its loads and stores; `None` without any.
    pub addresses: Option<AddressStat>,
    /// The optional columns that were taken in ([`Collector::observe_columns`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnStat>,
}

impl TraceStat {
    /// The distributions by the names of their fields.
    pub fn distributions(&self) -> [(&'static str, &Option<DistributionStat>); 5] {
        [
            ("size_bytes", &self.size_bytes),
            ("inter_arrival_ns", &self.inter_arrival_ns),
            ("reuse_time_requests", &self.reuse_time_requests),
            ("stack_distance_keys", &self.stack_distance_keys),
            ("accesses_per_key", &self.accesses_per_key),
        ]
    }
}

/// Statistics of an operation. Fields are stable.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OpStat {
    /// Its name.
    pub op: &'static str,
    /// Its accesses.
    pub requests: u64,
    /// These over all accesses.
    pub share: f64,
    /// The sum of their sizes.
    pub requested_bytes: u64,
}

/// Statistics of a tenant. Fields are stable.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TenantStat {
    /// Its number.
    pub tenant: u32,
    /// Its accesses.
    pub requests: u64,
    /// These over all accesses.
    pub share: f64,
    /// The sum of their sizes.
    pub requested_bytes: u64,
    /// Keys that it was the first to access.
    pub unique_keys: u64,
    /// The sum of the last known sizes of these.
    pub working_set_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct KeyState {
    /// The number of the last access.
    last: u64,
    accesses: u32,
    size: u32,
    /// The tenant's place in the list of tenants.
    owner: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    requests: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, access: &Access) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(u64::from(access.size));
    }
}

/// Gathers statistics: [`Self::observe`] every access, then [`Self::finish`].
#[derive(Clone, Debug)]
pub struct Collector {
    sample: Sample,
    rate: f64,
    requests: u64,
    ops: [Sum; Op::ALL.len()],
    /// In the order of first sight, with the place of each number, and the place of the last access's tenant.
    tenants: Vec<(u32, Sum)>,
    tenant_places: BTreeMap<u32, u32>,
    tenant: usize,
    sizes: Distribution,
    inter_arrivals: Distribution,
    reuse_times: Distribution,
    stack_distances: Distribution,
    spatial: Spatial,
    addresses: Addresses,
    growth: Growth,
    times_ns: Option<(u64, u64)>,
    last_time_ns: u64,
    time_steps_back: u64,
    interner: Interner,
    keys: Vec<KeyState>,
    recency: Recency,
    columns: Columns,
}

impl Collector {
    /// Empty statistics. Without a sample rate every key is taken.
    pub fn new(options: StatOptions) -> Self {
        let valid = options.sample_rate > 0.0 && options.sample_rate <= 1.0;
        let rate = if valid { options.sample_rate } else { 1.0 };
        Collector {
            sample: Sample::with_rate(rate),
            rate,
            requests: 0,
            ops: [Sum::default(); Op::ALL.len()],
            tenants: Vec::new(),
            tenant_places: BTreeMap::new(),
            tenant: 0,
            sizes: Distribution::new(),
            inter_arrivals: Distribution::new(),
            reuse_times: Distribution::new(),
            stack_distances: Distribution::new(),
            spatial: Spatial::new(options.block),
            addresses: Addresses::new(rate),
            growth: Growth::new(),
            times_ns: None,
            last_time_ns: 0,
            time_steps_back: 0,
            interner: Interner::new(),
            keys: Vec::new(),
            recency: Recency::of_objects(),
            columns: Columns::default(),
        }
    }

    /// Takes the next access in.
    pub fn observe(&mut self, access: &Access) {
        self.ops[usize::from(access.op.code())].add(access);
        self.sizes.record(u64::from(access.size));
        self.spatial.observe(access);
        self.addresses.observe(access);
        self.observe_time(access.time_ns);
        self.observe_tenant(access);
        self.growth.access(access.time_ns);
        if self.rate == 1.0 || self.sample.holds(sample_hash(access.key)) {
            self.observe_key(access);
        }
        self.requests += 1;
    }

    /// Takes the optional columns of an access in.
    pub fn observe_columns(&mut self, row: &OptionalRow) {
        self.columns.observe(row);
    }

    fn observe_time(&mut self, time_ns: u64) {
        match &mut self.times_ns {
            Some((min, max)) => {
                self.inter_arrivals.record(time_ns.saturating_sub(self.last_time_ns));
                self.time_steps_back += u64::from(time_ns < self.last_time_ns);
                *min = time_ns.min(*min);
                *max = time_ns.max(*max);
            }
            None => self.times_ns = Some((time_ns, time_ns)),
        }
        self.last_time_ns = time_ns;
    }

    fn observe_tenant(&mut self, access: &Access) {
        // Most traces have one tenant, and others come in runs.
        if self.tenants.get(self.tenant).is_none_or(|(tenant, _)| *tenant != access.tenant) {
            let tenants = &mut self.tenants;
            let place = self.tenant_places.entry(access.tenant).or_insert_with(|| {
                tenants.push((access.tenant, Sum::default()));
                tenants.len() as u32 - 1
            });
            self.tenant = *place as usize;
        }
        self.tenants[self.tenant].1.add(access);
    }

    fn observe_key(&mut self, access: &Access) {
        let (id, is_new) = self.interner.intern(access.key);
        let distance = self.recency.access(id, 1).map(|found| found.distance);
        self.growth.key((!is_new).then(|| self.keys[id as usize].last), access.size);
        if is_new {
            let owner = self.tenant as u32;
            self.keys.push(KeyState { last: self.requests, accesses: 1, size: access.size, owner });
            return;
        }
        let key = &mut self.keys[id as usize];
        self.reuse_times.record(self.requests - key.last);
        key.last = self.requests;
        key.accesses = key.accesses.saturating_add(1);
        if access.size > 0 {
            key.size = access.size;
        }
        if let Some(distance) = distance {
            let scaled =
                if self.rate == 1.0 { distance } else { (distance as f64 / self.rate).round() as u64 };
            self.stack_distances.record(scaled);
        }
    }

    /// The result. Sorts the accesses per key: O(M log M).
    pub fn finish(self) -> TraceStat {
        let scaled =
            |count: u64| if self.rate == 1.0 { count } else { (count as f64 / self.rate).round() as u64 };
        let of = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let mut owned = vec![(0u64, 0u64); self.tenants.len()];
        let mut accesses_per_key = Distribution::new();
        let mut one_hit_keys = 0;
        for key in &self.keys {
            let (keys, bytes) = &mut owned[key.owner as usize];
            *keys += 1;
            *bytes += u64::from(key.size);
            one_hit_keys += u64::from(key.accesses == 1);
            accesses_per_key.record(u64::from(key.accesses));
        }
        let mut counts: Vec<u32> = self.keys.iter().map(|key| key.accesses).collect();
        let sum = |is: fn(Op) -> bool| {
            self.ops.iter().zip(Op::ALL).filter(|(_, op)| is(*op)).map(|(sum, _)| sum.requests).sum::<u64>()
        };
        let (reads, writes) = (sum(Op::is_lookup), sum(Op::is_write));
        let unique_keys = scaled(self.keys.len() as u64);
        let duration_ns = self.times_ns.map_or(0, |(min, max)| max - min);
        let mut tenants: Vec<TenantStat> = self
            .tenants
            .iter()
            .zip(&owned)
            .map(|((tenant, sum), (keys, bytes))| TenantStat {
                tenant: *tenant,
                requests: sum.requests,
                share: of(sum.requests, self.requests),
                requested_bytes: sum.bytes,
                unique_keys: scaled(*keys),
                working_set_bytes: scaled(*bytes),
            })
            .collect();
        tenants.sort_by_key(|tenant| tenant.tenant);
        let zipf = fit_zipf(&mut counts, self.rate == 1.0);
        let op_stat = |(sum, op): (&Sum, Op)| OpStat {
            op: op.name(),
            requests: sum.requests,
            share: of(sum.requests, self.requests),
            requested_bytes: sum.bytes,
        };
        TraceStat {
            requests: self.requests,
            sample_rate: self.rate,
            unique_keys,
            working_set_bytes: scaled(owned.iter().map(|(_, bytes)| bytes).sum()),
            requested_bytes: self.ops.iter().fold(0, |sum, op| sum.saturating_add(op.bytes)),
            reads,
            writes,
            deletes: sum(|op| op == Op::Del),
            read_write_ratio: (writes > 0).then(|| reads as f64 / writes as f64),
            compulsory_miss_ratio: of(unique_keys, self.requests),
            one_hit_keys: scaled(one_hit_keys),
            one_hit_ratio: of(one_hit_keys, self.keys.len() as u64),
            duration_ns,
            requests_per_second: (duration_ns > 0).then(|| self.requests as f64 / (duration_ns as f64 / 1e9)),
            time_steps_back: self.time_steps_back,
            zipf,
            popularity: popularity::by_rank(&counts, self.rate),
            growth: self.growth.points(self.rate),
            ops: self.ops.iter().zip(Op::ALL).filter(|(sum, _)| sum.requests > 0).map(op_stat).collect(),
            tenants,
            size_bytes: self.sizes.stat(1.0),
            inter_arrival_ns: self.inter_arrivals.stat(1.0),
            reuse_time_requests: self.reuse_times.stat(self.rate),
            stack_distance_keys: self.stack_distances.stat(self.rate),
            accesses_per_key: accesses_per_key.stat(self.rate),
            spatial: self.spatial.stat(),
            addresses: self.addresses.stat(),
            columns: self.columns.stat(),
        }
    }
}

/// Statistics of all accesses of an iterator.
pub fn collect<'a>(accesses: impl IntoIterator<Item = &'a Access>, options: StatOptions) -> TraceStat {
    let mut collector = Collector::new(options);
    accesses.into_iter().for_each(|access| collector.observe(access));
    collector.finish()
}
