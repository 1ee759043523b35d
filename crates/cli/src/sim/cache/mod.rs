//! `tiermem sim cache`: hits and misses of a trace.

mod flat;
mod tiered;

use clap::Args;

use crate::failure::Failure;
use crate::output::Format;
use crate::source::TraceArgs;

const HELP: &str = "\
Examples:
  tiermem sim cache twitter_cluster52.csv.zst --size 1000 --size 10%
  tiermem sim cache twitter_cluster52.csv.zst --policy lru --policy s3-fifo --policy klru --k 5 --k 16 --sizes 25
  tiermem sim cache twitter_cluster52.csv.zst --size 4MiB --bytes --window 100000 --warmup 200000
  tiermem sim cache zipf:objects=1M,requests=10M --tier 64MiB --tier 256MiB --promotion naive
  tiermem sim cache zipf:objects=1M,requests=10M,size=1000 --tier dram=64MiB --tier flash=512MiB --flash-segment 1MiB
  tiermem sim cache zipf:objects=1M,requests=10M --config store.toml    # tiers and policy of that store
  tiermem sim cache zipf:objects=1M,requests=10M --tier 256MiB --shards 4   # as `store serve` with shards = 4

Without --tier and --config: one tier for each --policy and size, all in one pass over the trace.
  A miss inserts the object, unless it is larger than the cache. An object has the size of the access that inserted it,
  and then of each write. A deletion is not counted as a request.
  Percentages, --sizes and belady need the whole trace first: it is held in memory, 12 bytes per request
  (belady: 16). The working set is all distinct objects, each with its largest size.
With --tier or --config: the store's own chain of tiers, size classes included. flash=BYTES as the last tier is the store's log on a
  device without delays: its journal and checkpoints take their room, and are not written. --tenants HOW divides the tiers among the
  trace's tenants. --shards N divides tiers and keys as `store serve` does, and moves memory between shards by the same rule.

Policies: fifo, clock, clock2, lru, lru-lazy (the store's), slru, s4lru, klru, redis (klru with its eviction pool), random,
  lfu, lfu-da, arc, 2q, s3-fifo, sieve, lhd, hyperbolic, cflru, belady, dlru (K-LRU that chooses its K by miniature caches),
  dlru-krr (the same by KRR's curves). docs/policies.md describes them.

Fields:
  policy, k        what was simulated; k of klru and redis, 0 for others
  size             objects, or with --bytes bytes of values
  requests         look-ups and writes of the window
  misses           those that did not find their key
  miss_ratio       misses over requests
  byte_miss_ratio  bytes of missed values over bytes of requested values
  window           number of the window, from 0; without --window there is one, after the warm-up
With --tier, one record, then counts per tier, and with --window a row per window:
  policy, size           ladder, and the bytes of all tiers
  requests, misses, miss_ratio  as above
  fast_hit_share         look-ups that found their key in the first tier, over look-ups
  charged_ns_per_request time that slow tiers take beyond local DRAM, moves included, per request: simulated, from the
                         curve
  promotions, demotions, evictions, relocations  items moved up, down, out, and within a tier to empty a page
  moved_bytes            bytes of items moved
  acts_max               most moves and evictions that one request or step waited for
  items, metadata_bytes_per_item  items held, and bytes of index, nodes, lists and tables per item
  clairvoyant_fast_share fast_hit_share of the best static placement in hindsight; only if a tier is a percentage
  flash_hits, flash_promotions, flash_evictions, flash_admitted_bytes, flash_written_bytes  as below; 0 without flash
for each tier: tier, capacity_bytes, hits, promotions, demotions, evictions, relocations
with --tenants, for each tenant and tier at the end: tenant, tier, items, bytes, share_bytes, k, evictions,
  trespasses (evictions for another tenant although this one was not above its share)
  items that move to flash count as demoted
flash, if there is one:
  capacity_bytes, items  bytes of its segments, and items in them
  hits, reads            look-ups that found their key there, and those that read the device for it
  promotions             items copied into memory
  evictions              live items dropped for lack of room
  admitted, admitted_bytes, rejected, refused, unindexed  items admitted from memory, and their bytes; items not admitted to
                         spare the device, because it was behind, and for lack of memory for index entries
  unchanged              items that left memory and were still on flash: not written again
  kept, segments_emptied items rewritten because their segment was emptied, and the number of such segments
  waits                  steps of the log's work that writers waited for
  written_bytes          bytes of segments written, without the store's journal and checkpoints (docs/store.md)
  write_amplification    written_bytes over admitted_bytes
  lifetime_years         with --flash-endurance: years until that much is written, at the trace's rate";

/// Options of `tiermem sim cache`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    flat: flat::FlatArgs,
    #[command(flatten)]
    tiered: tiered::TieredArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Simulates and prints.
pub fn run(options: Options) -> Result<(), Failure> {
    if options.tiered.is_empty() {
        options.tiered.check_unused()?;
        flat::run(&options.trace, &options.flat, options.format)
    } else {
        tiered::run(&options.trace, &options.tiered, options.flat.spans(), options.format)
    }
}
