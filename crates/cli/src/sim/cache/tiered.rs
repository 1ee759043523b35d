//! `tiermem sim cache --tier`: the store's ladder over a trace, without bytes.

use anyhow::anyhow;
use clap::Args;
use tiermem_base::Access;
use tiermem_base::curve::{Curve, DEFAULT_CURVE};
use tiermem_policy::ladder::{LEVELS_MAX, LadderConfig};
use tiermem_sim::cache::tiered::{TieredCache, TieredConfig};
use tiermem_sim::hindsight::BestPlacement;

use crate::failure::Failure;
use crate::ladder::LadderArgs;
use crate::output::{self, Cell, Format, Rows};
use crate::size::Size;
use crate::source::TraceArgs;

const FIELDS: &[&str] = &[
    "policy",
    "size",
    "requests",
    "misses",
    "miss_ratio",
    "fast_hit_share",
    "charged_ns_per_request",
    "promotions",
    "demotions",
    "evictions",
    "relocations",
    "moved_bytes",
    "acts_max",
    "items",
    "metadata_bytes_per_item",
    "clairvoyant_fast_share",
];
const WINDOW_FIELDS: &[&str] = &[
    "window",
    "requests",
    "misses",
    "miss_ratio",
    "fast_hit_share",
    "charged_ns_per_request",
    "promotions",
    "demotions",
    "evictions",
    "relocations",
    "moved_bytes",
    "acts_max",
];
const TIER_FIELDS: &[&str] =
    &["tier", "capacity_bytes", "hits", "promotions", "demotions", "evictions", "relocations"];
/// What the store keeps with each value: an eight-byte header and a key name of sixteen digits.
const ITEM_OVERHEAD_BYTES: u64 = 24;

/// Which ladder is simulated.
#[derive(Debug, Args)]
pub struct TieredArgs {
    /// Capacity of a tier, or a percentage of the bytes of all items; fastest first; repeat it for a ladder.
    #[arg(long, value_name = "BYTES")]
    tier: Vec<Size>,
    /// The curve of the tiers below the first.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_CURVE)]
    curve: String,
    /// Store every key of the trace before, in order of appearance, so that no look-up misses for want of a write.
    #[arg(long)]
    preload: bool,
    #[command(flatten)]
    ladder: LadderArgs,
}

impl TieredArgs {
    /// Whether no ladder is asked for.
    pub fn is_empty(&self) -> bool {
        self.tier.is_empty()
    }
}

/// Everything that grows while a trace runs.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    requests: u64,
    misses: u64,
    fast_hits: u64,
    charged_ns: f64,
    moves: [u64; 4],
    moved_bytes: u64,
}

impl Totals {
    fn of(cache: &TieredCache) -> Totals {
        let mut moves = [0; 4];
        for level in (0..cache.levels()).map(|tier| cache.level(tier)) {
            for (sum, count) in
                moves.iter_mut().zip([level.promotions, level.demotions, level.evictions, level.relocations])
            {
                *sum += count;
            }
        }
        Totals {
            requests: cache.requests,
            misses: cache.misses,
            fast_hits: cache.level(0).hits,
            charged_ns: cache.charged_ns(),
            moves,
            moved_bytes: cache.moved_bytes(),
        }
    }
}

/// Simulates and prints. `spans`: requests before anything is counted, and requests of a window.
pub fn run(
    trace: &TraceArgs,
    args: &TieredArgs,
    (warmup, window): (u64, Option<u64>),
    format: Format,
) -> Result<(), Failure> {
    if args.tier.len() > LEVELS_MAX {
        return Err(Failure::usage(anyhow!("a ladder has at most {LEVELS_MAX} tiers")));
    }
    let slow = Curve::named(&args.curve).map_err(|error| Failure::usage(anyhow!("{error}")))?;
    let mut best = BestPlacement::default();
    if args.tier.iter().any(|size| matches!(size, Size::Share(_))) {
        each_record(trace, |access| best.note(access))?;
    }
    let item_bytes = best.working_set_bytes(ITEM_OVERHEAD_BYTES);
    let capacities: Vec<u64> = args.tier.iter().map(|size| size.units(item_bytes)).collect();
    let mut ladder = LadderConfig::with_capacities(&capacities);
    args.ladder.apply(&mut ladder).map_err(|error| Failure::usage(anyhow!("{error}")))?;
    let clairvoyant = best.fast_share(capacities[0], ITEM_OVERHEAD_BYTES, !args.preload);
    let mut cache =
        TieredCache::new(TieredConfig { ladder, overhead_bytes: ITEM_OVERHEAD_BYTES, slow, seed: 0 });
    if args.preload {
        each_record(trace, |access| cache.preload(access))?;
    }

    let mut rows = Vec::new();
    let mut start = Totals::of(&cache);
    let mut before = start;
    let (mut seen, mut counted, mut acts_max) = (0, 0, 0);
    cache.take_acts_max();
    each_record(trace, |access| {
        if seen == warmup {
            start = Totals::of(&cache);
            (before, counted, acts_max) = (start, 0, 0);
            cache.take_acts_max();
        } else if window.is_some_and(|window| counted == window) && seen > warmup {
            let after = Totals::of(&cache);
            let acts = cache.take_acts_max();
            let mut cells = vec![Cell::Count(rows.len() as u64)];
            cells.extend(since(&before, &after, acts));
            rows.push(cells);
            (before, counted, acts_max) = (after, 0, acts_max.max(acts));
        }
        seen += 1;
        counted += 1;
        cache.access(access);
    })?;
    let (after, acts) = (Totals::of(&cache), cache.take_acts_max());
    if window.is_some() {
        let mut cells = vec![Cell::Count(rows.len() as u64)];
        cells.extend(since(&before, &after, acts));
        rows.push(cells);
    }
    let mut total = vec![Cell::Text("ladder".to_owned()), Cell::Count(capacities.iter().sum())];
    total.extend(since(&start, &after, acts_max.max(acts)));
    total.push(Cell::Count(cache.items()));
    total.push(Cell::Number(cache.metadata_bytes() as f64 / cache.items().max(1) as f64, 2));
    total.push(Cell::Number(clairvoyant, 6));
    let tier = |(at, &capacity): (usize, &u64)| {
        let level = cache.level(at);
        let counts = [level.hits, level.promotions, level.demotions, level.evictions, level.relocations];
        let mut cells = vec![Cell::Count(at as u64), Cell::Count(capacity)];
        cells.extend(counts.map(Cell::Count));
        cells
    };
    let tiers = Rows { fields: TIER_FIELDS, rows: capacities.iter().enumerate().map(tier).collect() };
    let windows = Rows { fields: WINDOW_FIELDS, rows };
    let lists = match window {
        Some(_) => vec![("tiers", tiers), ("windows", windows)],
        None => vec![("tiers", tiers)],
    };
    let total = Rows { fields: FIELDS, rows: vec![total] };
    output::print_record(format, &total, &lists).map_err(Failure::failed)
}

/// What has happened between two moments.
fn since(before: &Totals, after: &Totals, acts_max: usize) -> Vec<Cell> {
    let requests = after.requests - before.requests;
    let per_request = |count: f64| count / requests.max(1) as f64;
    let misses = after.misses - before.misses;
    let mut cells = vec![
        Cell::Count(requests),
        Cell::Count(misses),
        Cell::Number(per_request(misses as f64), 6),
        Cell::Number(per_request((after.fast_hits - before.fast_hits) as f64), 6),
        Cell::Number(per_request(after.charged_ns - before.charged_ns), 2),
    ];
    cells.extend(after.moves.iter().zip(before.moves).map(|(after, before)| Cell::Count(after - before)));
    cells.push(Cell::Count(after.moved_bytes - before.moved_bytes));
    cells.push(Cell::Count(acts_max as u64));
    cells
}

fn each_record(trace: &TraceArgs, mut visit: impl FnMut(&Access)) -> Result<(), Failure> {
    let source = trace.open()?;
    for record in source.records() {
        visit(&record?);
    }
    source.finish();
    Ok(())
}
