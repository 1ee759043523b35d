//! `tiermem sim cache`: hits and misses of a trace.

use anyhow::anyhow;
use clap::Args;
use tiermem_base::{Access, Bytes};
use tiermem_policy::evict::Lru;
use tiermem_policy::evict::lru::Bump;
use tiermem_policy::ladder::{LadderConfig, Reactive};
use tiermem_policy::promote::Promotion;
use tiermem_sim::cache::tiered::{TieredCache, TieredConfig};
use tiermem_sim::cache::{Capacity, FlatCache};

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::source::TraceArgs;

const FIELDS: &[&str] = &["policy", "size", "requests", "misses", "miss_ratio"];
const TIER_FIELDS: &[&str] = &["tier", "capacity_bytes", "hits", "promotions", "demotions", "evictions"];
/// What the store keeps with each value: an eight-byte header and a key name of sixteen digits.
const ITEM_OVERHEAD_BYTES: u64 = 24;

const HELP: &str = "\
Examples:
  tiermem sim cache twitter_cluster52.csv.zst --size 1000 --size 10000
  tiermem sim cache twitter_cluster52.csv.zst --size 4MiB --bytes
  tiermem sim cache zipf:objects=1M,requests=10M --tier 64MiB --tier 256MiB --promotion naive

Without --tier: one tier of --size objects (with --bytes: bytes of values), exact LRU.
With --tier: the store's own ladder, fastest tier first, its slots and size classes included.

Fields:
  policy, size     what was simulated; the size of a ladder is that of all its tiers
  requests         look-ups and writes of the trace
  misses           those that did not find their key
  miss_ratio       misses over requests
For a ladder also, for each tier: tier, capacity_bytes, hits, promotions, demotions, evictions";

/// What `tiermem sim cache` takes.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    /// A cache size; repeat it for several in one pass.
    #[arg(long, value_name = "N", required_unless_present = "tier", conflicts_with = "tier")]
    size: Vec<Bytes>,
    /// Count sizes in bytes of values instead of objects.
    #[arg(long)]
    bytes: bool,
    /// Capacity of a tier, fastest first; repeat it for a ladder.
    #[arg(long, value_name = "BYTES")]
    tier: Vec<Bytes>,
    /// How items are promoted: reuse-time, reuse-time-scan, naive or none.
    #[arg(long, default_value = "reuse-time")]
    promotion: Promotion,
    /// What a full fast tier does at an admission: demote or drop.
    #[arg(long, default_value = "demote")]
    reactive: Reactive,
    /// Switch the background demotion and eviction between watermarks off.
    #[arg(long)]
    no_watermarks: bool,
    /// Where new items enter a tier's lists, as a share from the tail: one value for all tiers.
    #[arg(long, value_name = "SHARE")]
    insertion_point: Option<f64>,
    /// When a hit moves an item to the head of its list: always, lower-only or at-tail.
    #[arg(long, default_value = "at-tail")]
    bump: Bump,
    /// Take metadata out of the first tier's capacity, as the store does.
    #[arg(long)]
    charge_metadata: bool,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Simulates and prints.
pub fn run(options: Options) -> Result<(), Failure> {
    if options.tier.is_empty() { run_flat(&options) } else { run_tiered(&options) }
}

fn run_flat(options: &Options) -> Result<(), Failure> {
    let cache = |size: &Bytes| {
        let capacity = if options.bytes { Capacity::Bytes(size.0) } else { Capacity::Objects(size.0) };
        FlatCache::new(Lru::new([1.0], Bump::Always), capacity)
    };
    let mut caches: Vec<_> = options.size.iter().map(cache).collect();
    each_record(&options.trace, |access| {
        for cache in &mut caches {
            cache.access(access);
        }
    })?;
    let row = |(size, cache): (&Bytes, &FlatCache<Lru>)| record("lru", size.0, cache.requests, cache.misses);
    let rows = options.size.iter().zip(&caches).map(row).collect();
    output::print_rows(options.format, &Rows { fields: FIELDS, rows }).map_err(Failure::failed)
}

fn run_tiered(options: &Options) -> Result<(), Failure> {
    let capacities: Vec<u64> = options.tier.iter().map(|tier| tier.0).collect();
    if capacities.len() > tiermem_policy::ladder::LEVELS_MAX {
        return Err(Failure::usage(anyhow!(
            "a ladder has at most {} tiers",
            tiermem_policy::ladder::LEVELS_MAX
        )));
    }
    let mut ladder = LadderConfig::with_capacities(&capacities);
    ladder.promotion = options.promotion;
    ladder.reactive = options.reactive;
    ladder.charge_metadata = options.charge_metadata;
    if options.no_watermarks {
        ladder.watermarks = None;
    }
    ladder.bump = options.bump;
    if let Some(point) = options.insertion_point {
        ladder.levels.iter_mut().for_each(|level| level.insertion_point = point);
    }
    let mut cache = TieredCache::new(TieredConfig { ladder, overhead_bytes: ITEM_OVERHEAD_BYTES, seed: 0 });
    each_record(&options.trace, |access| {
        cache.access(access);
    })?;
    let size = capacities.iter().sum();
    let total = Rows { fields: FIELDS, rows: vec![record("ladder", size, cache.requests, cache.misses)] };
    let tier = |(at, &capacity): (usize, &u64)| {
        let level = cache.level(at);
        vec![
            Cell::Count(at as u64),
            Cell::Count(capacity),
            Cell::Count(level.hits),
            Cell::Count(level.promotions),
            Cell::Count(level.demotions),
            Cell::Count(level.evictions),
        ]
    };
    let tiers = Rows { fields: TIER_FIELDS, rows: capacities.iter().enumerate().map(tier).collect() };
    output::print_record(options.format, &total, &[("tiers", tiers)]).map_err(Failure::failed)
}

fn each_record(trace: &TraceArgs, mut visit: impl FnMut(&Access)) -> Result<(), Failure> {
    let source = trace.open()?;
    for record in source.records() {
        visit(&record?);
    }
    source.finish();
    Ok(())
}

fn record(policy: &str, size: u64, requests: u64, misses: u64) -> Vec<Cell> {
    let miss_ratio = misses as f64 / requests.max(1) as f64;
    vec![
        Cell::Text(policy.to_owned()),
        Cell::Count(size),
        Cell::Count(requests),
        Cell::Count(misses),
        Cell::Number(miss_ratio, 6),
    ]
}
