//! `tiermem store bench`: the engine in process, without sockets, as CacheBench drives CacheLib.
//!
//! Several systems hold the same data and answer the same slices of one trace in turn, so that a machine whose
//! speed drifts drifts for all of them; the result is each system's speed relative to the first in the same round.

mod system;

use std::collections::HashSet;

use anyhow::anyhow;
use clap::Args;
use indicatif::ProgressBar;
use tiermem_base::latency_curve::{Curve, DEFAULT_CURVE};
use tiermem_base::{Bytes, Rng};
use tiermem_model::advisor::Plan;
use tiermem_sim::hindsight::BestPlacement;
use tiermem_store::engine::DATABASES;

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::source::{TraceArgs, sample_rate};
use system::{ITEM_OVERHEAD_BYTES, Measured, Record, System, SystemKind};

const FIELDS: &[&str] = &[
    "system",
    "requests",
    "hit_ratio",
    "requests_per_second",
    "relative_speed",
    "relative_low",
    "relative_high",
    "fast_hit_share",
    "promotions",
    "demotions",
    "evictions",
    "charged_ns_per_request",
    "p50_ns",
    "p99_ns",
    "p999_ns",
];
const SETTING_FIELDS: &[&str] = &[
    "keys",
    "item_bytes",
    "fast_fraction",
    "fast_fraction_with_metadata",
    "curve",
    "rounds",
    "clairvoyant_fast_share",
];

const HELP: &str = "\
Examples:
  tiermem store bench zipf:alpha=0.99,objects=1M,requests=6M,size=300 --preload
  tiermem store bench twitter_cluster52.csv.zst --value-scale 70 --fast-fraction 0.2
  tiermem store bench zipf:objects=1M,requests=6M --systems all-dram,tiermem,no-watermarks,head-insertion,reactive-drop,plain-lru,demotion-only

The slow tier is emulated: its bytes lie in DRAM, and each contiguous range that is accessed waits for the difference between the
curve and local DRAM.

equal-tenants and divided-tenants separate the tenants of the trace (at most sixteen). Each gets an equal share of the fast tier, or
a share by what it gains, decided at run time; the time of deciding counts as request time here.

Fields, for each system (all-dram, naive, tiermem, all-cxl, ...):
  requests                look-ups measured; a miss is followed by a set
  hit_ratio               hits in any tier over look-ups
  requests_per_second     over the thread's processor time, waits for emulated memory included
  relative_speed          against the first system in the same round: median over the rounds, with the lowest
                          (relative_low) and the highest (relative_high)
  fast_hit_share          hits in tier 0 over look-ups
  promotions ... evictions  items moved during the measurement
  charged_ns_per_request  emulated cost, moves included
  p50_ns ... p999_ns      latency of a look-up: its own time plus its emulated charge, whenever that was waited off;
                          every 17th look-up is timed
And for the setting:
  fast_fraction                tier 0 as a share of the bytes of all items
  fast_fraction_with_metadata  DRAM as a share of all memory, index and nodes included
  clairvoyant_fast_share       fast_hit_share of the best static placement in hindsight";

/// Options of `tiermem store bench`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    /// Systems to run; the first is the baseline of relative speeds.
    #[arg(long, value_delimiter = ',', default_value = "all-dram,naive,tiermem,all-cxl")]
    systems: Vec<SystemKind>,
    /// Tier 0 as a share of the bytes of all items.
    #[arg(long, value_name = "SHARE", default_value_t = 0.2)]
    fast_fraction: f64,
    /// The curve of the slow tier.
    #[arg(long, default_value = DEFAULT_CURVE)]
    curve: String,
    /// Store every key of the trace first, in random order, so that no look-up misses. In order of appearance, popular keys
    /// would be adjacent in memory, unlike in a store that has run for a while.
    #[arg(long)]
    preload: bool,
    /// Share of the trace that is run before measuring starts.
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    warmup: f64,
    /// divided-tenants: look-ups between two divisions of memory.
    #[arg(long, value_name = "N", default_value = "1M", value_parser = crate::trace::positive_count)]
    tenant_window: u64,
    /// divided-tenants: share of the keys that is sampled.
    #[arg(long, value_name = "R", default_value_t = 0.01, value_parser = sample_rate)]
    tenant_sample: f64,
    /// Number of slices in which the rest of the trace is measured.
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: usize,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Measures and prints.
pub fn run(options: Options) -> Result<(), Failure> {
    Curve::named(&options.curve).map_err(|error| Failure::usage(anyhow!("{error}")))?;
    if !(0.0..1.0).contains(&options.warmup) || !(0.001..=1.0).contains(&options.fast_fraction) {
        return Err(Failure::usage(anyhow!("--warmup lies in [0, 1) and --fast-fraction in [0.001, 1]")));
    }
    let (trace, best) = load(&options.trace)?;
    let item_bytes = best.working_set_bytes(ITEM_OVERHEAD_BYTES);
    let fast_bytes = (item_bytes as f64 * options.fast_fraction) as u64;
    let warm = (trace.len() as f64 * options.warmup) as usize;
    let slice = (trace.len() - warm) / options.rounds.max(1);
    if slice == 0 || options.systems.is_empty() {
        return Err(Failure::usage(anyhow!("the trace is too short for {} rounds", options.rounds)));
    }

    let plan = Plan { window: options.tenant_window, rate: options.tenant_sample, ..Plan::default() };
    let sizes = (Bytes(fast_bytes), Bytes(item_bytes));
    let build = |&kind: &SystemKind| System::new(kind, sizes, &options.curve, &plan);
    let mut systems =
        options.systems.iter().map(build).collect::<Result<Vec<_>, _>>().map_err(Failure::failed)?;
    let bar = ProgressBar::new((systems.len() * (options.rounds + 1)) as u64);
    let preloaded = if options.preload { in_any_order(&trace) } else { Vec::new() };
    for system in &mut systems {
        system.preload(&preloaded);
        system.warm(&trace[..warm]);
        bar.inc(1);
    }
    // results[system][round]
    let mut results: Vec<Vec<Measured>> = vec![Vec::new(); systems.len()];
    for round in 0..options.rounds {
        let part = &trace[warm + round * slice..warm + (round + 1) * slice];
        for turn in 0..systems.len() {
            // Each round begins with another system, so that none always runs behind the same one.
            let at = (turn + round) % systems.len();
            results[at].push(systems[at].measure(part));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    print(&options, &systems, &results, &best, item_bytes, fast_bytes).map_err(Failure::failed)
}

fn load(args: &TraceArgs) -> Result<(Vec<Record>, BestPlacement), Failure> {
    let source = args.open()?;
    let mut best = BestPlacement::default();
    let mut trace = Vec::new();
    for record in source.records() {
        let access = record?;
        best.note(&access);
        // Sixteen databases; only systems with tenants look at them.
        trace.push(Record { key: access.key, size: access.size, db: access.tenant as u8 % DATABASES });
    }
    source.finish();
    Ok((trace, best))
}

/// Each key once, with its first size.
fn in_any_order(trace: &[Record]) -> Vec<Record> {
    let mut seen = HashSet::new();
    let mut records: Vec<Record> = trace.iter().filter(|record| seen.insert(record.key)).copied().collect();
    let mut rng = Rng::seeded(1);
    for last in (1..records.len()).rev() {
        records.swap(last, rng.below(last as u64 + 1) as usize);
    }
    records
}

fn print(
    options: &Options,
    systems: &[System],
    results: &[Vec<Measured>],
    best: &BestPlacement,
    item_bytes: u64,
    fast_bytes: u64,
) -> std::io::Result<()> {
    let speed = |at: usize, round: usize| results[at][round].requests_per_second();
    let rows = systems.iter().zip(results).enumerate().map(|(at, (system, rounds))| {
        let total = rounds.iter().fold(Measured::default(), |sum, round| sum + *round);
        let mut relative: Vec<f64> =
            (0..rounds.len()).map(|round| speed(at, round) / speed(0, round)).collect();
        relative.sort_by(f64::total_cmp);
        let per_request = |count: f64| count / total.requests.max(1) as f64;
        vec![
            Cell::Text(system.name()),
            Cell::Count(total.requests),
            Cell::Number(per_request(total.hits as f64), 4),
            Cell::Number(total.requests_per_second(), 0),
            Cell::Number(relative[relative.len() / 2], 4),
            Cell::Number(relative[0], 4),
            Cell::Number(relative[relative.len() - 1], 4),
            Cell::Number(per_request(total.fast_hits as f64), 4),
            Cell::Count(total.promotions),
            Cell::Count(total.demotions),
            Cell::Count(total.evictions),
            Cell::Number(per_request(total.charged_ns), 1),
            Cell::Count(system.latency_ns(0.5)),
            Cell::Count(system.latency_ns(0.99)),
            Cell::Count(system.latency_ns(0.999)),
        ]
    });
    let table = Rows { fields: FIELDS, rows: rows.collect() };
    // The tiered systems have the same metadata; the last of them represents all.
    let metadata = systems.iter().rev().find(|system| system.is_tiered()).map_or(0, System::metadata_bytes);
    let with_metadata = (fast_bytes + metadata) as f64 / (item_bytes + metadata) as f64;
    let setting = Rows {
        fields: SETTING_FIELDS,
        rows: vec![vec![
            Cell::Count(best.keys()),
            Cell::Count(item_bytes),
            Cell::Number(options.fast_fraction, 4),
            Cell::Number(with_metadata, 4),
            Cell::Text(options.curve.clone()),
            Cell::Count(options.rounds as u64),
            Cell::Number(best.fast_share(fast_bytes, ITEM_OVERHEAD_BYTES, !options.preload), 4),
        ]],
    };
    output::print_record(options.format, &setting, &[("systems", table)])
}
