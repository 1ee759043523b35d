//! `tiermem sim cache`: hits and misses of a trace.

mod flat;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::{Access, Bytes};
use tiermem_policy::evict::lru::Bump;
use tiermem_policy::ladder::{LadderConfig, Order, Reactive};
use tiermem_policy::promote::Promotion;
use tiermem_sim::cache::tiered::{TieredCache, TieredConfig};

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::source::TraceArgs;

const FIELDS: &[&str] = &["policy", "size", "requests", "misses", "miss_ratio"];
const TIER_FIELDS: &[&str] = &["tier", "capacity_bytes", "hits", "promotions", "demotions", "evictions"];
/// What the store keeps with each value: an eight-byte header and a key name of sixteen digits.
const ITEM_OVERHEAD_BYTES: u64 = 24;

const HELP: &str = "\
Examples:
  tiermem sim cache twitter_cluster52.csv.zst --size 1000 --size 10%
  tiermem sim cache twitter_cluster52.csv.zst --policy lru --policy s3-fifo --policy klru --k 5 --k 16 --sizes 25
  tiermem sim cache twitter_cluster52.csv.zst --size 4MiB --bytes --window 100000 --warmup 200000
  tiermem sim cache zipf:objects=1M,requests=10M --tier 64MiB --tier 256MiB --promotion naive

Without --tier: one tier for each --policy and size, all in one pass over the trace.
  A miss brings the object in, unless it is larger than the cache. The size of an object is that of its first access
  since it came in, and then of each write; a deletion is no request.
  A percentage, --sizes and the policy belady need the whole trace first: it is held in memory, 12 bytes a request
  (belady: 16). The working set is all distinct objects, each with its largest size.
With --tier: the store's own ladder, fastest tier first, its slots and size classes included.

Policies: fifo, clock, clock2, lru, lru-lazy (the store's), slru, s4lru, klru, redis (klru with its eviction pool), random,
  lfu, lfu-da, arc, 2q, s3-fifo, sieve, lhd, hyperbolic, cflru, belady. docs/policies.md says what each is.

Fields:
  policy, k        what was simulated; k of klru and redis, 0 for others
  size             objects, or with --bytes bytes of values
  requests         look-ups and writes of the window
  misses           those that did not find their key
  miss_ratio       misses over requests
  byte_miss_ratio  bytes of the values missed over bytes of the values asked for
  window           the number of the window, from 0; without --window all requests after the warm-up are one
For a ladder policy, size, requests, misses, miss_ratio and for each tier: tier, capacity_bytes, hits, promotions,
  demotions, evictions; the size of a ladder is that of all its tiers";

/// What `tiermem sim cache` takes.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    flat: flat::FlatArgs,
    /// Capacity of a tier, fastest first; repeat it for a ladder.
    #[arg(long, value_name = "BYTES")]
    tier: Vec<Bytes>,
    /// How items are promoted: reuse-time, reuse-time-scan, naive or none.
    #[arg(long, default_value = "reuse-time")]
    promotion: Promotion,
    /// Who goes first from a tier: lru, klru:K, klfu:K or kttl:K.
    #[arg(long, default_value = "lru")]
    order: Order,
    /// The same for the slower tiers [default: as --order].
    #[arg(long, value_name = "ORDER")]
    order_slow: Option<Order>,
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
    if options.tier.is_empty() {
        flat::run(&options.trace, &options.flat, options.format)
    } else {
        run_tiered(&options)
    }
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
    for (tier, level) in ladder.levels.iter_mut().enumerate() {
        level.order = options.order_slow.filter(|_| tier > 0).unwrap_or(options.order);
    }
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
