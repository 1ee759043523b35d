//! `tiermem mrc`: miss-ratio curve, the miss ratio of a cache at each size.

use anyhow::anyhow;
use clap::Args;
use tiermem_model::mrc::{Curve, Kind, Survey, Unit, curves_in_parallel};

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::size::{self, Size};
use crate::source::{TraceArgs, positive_k, sample_rate, steps_bar};

const FIELDS: &[&str] = &["policy", "k", "size", "miss_ratio", "error", "window"];

const HELP: &str = "\
Examples:
  tiermem mrc twitter_cluster52.csv.zst
  tiermem mrc twitter_cluster52.csv.zst --policy klru --k 1 --k 5 --k 16 --lowest
  tiermem mrc big.parquet --sample 0.01 --bytes --sizes 50
  tiermem mrc zipf:objects=1M,requests=10M --policy s3-fifo --size 10000 --size 100000

Policies:
  lru      exact stack distances
  aet      LRU from reuse times: cheapest; assumes a steady state
  klru     evicts the oldest of K random keys, as Redis does without its pool; K is any number from 1
  redis    the same with Redis's eviction pool
  krr      klru by a stack (KRR): all sizes at once; inexact for loops
  others   every policy of `tiermem sim cache`, simulated at each size (mini-NAME: simulated although there is a model)

Fields:
  policy, k    the policy, and its K (0: none)
  size         cache size, in objects or, with --bytes, in bytes of values
  miss_ratio   misses over requests
  error        the true miss ratio is within +- error for 95 of 100 samples (0: not sampled)
  window       number of the window of the trace (0: the first or only one)";

/// Options of `tiermem mrc`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    /// Eviction policy or model; repeat it for several.
    #[arg(long, value_name = "NAME", default_value = "lru")]
    policy: Vec<String>,
    /// Sample size K of klru, redis and krr; repeat it for several.
    #[arg(long, value_name = "K", default_value = "5", value_parser = positive_k)]
    k: Vec<f64>,
    /// Number of cache sizes to evaluate, evenly spaced up to the working set.
    #[arg(long, value_name = "COUNT", default_value_t = 25, conflicts_with = "size", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sizes: u32,
    /// Cache size, or a percentage of the working set; repeat it for several.
    #[arg(long, value_name = "N")]
    size: Vec<Size>,
    /// Follow only a share R of the keys (spatial sampling).
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = sample_rate)]
    sample: f64,
    /// Follow at most N keys (all of them if there are fewer).
    #[arg(long, value_name = "N", conflicts_with = "sample", value_parser = crate::trace::positive_count)]
    sample_keys: Option<u64>,
    /// Seed of the choice of keys.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Count sizes in bytes of values instead of objects.
    #[arg(long)]
    bytes: bool,
    /// One curve per N requests of the trace; caches stay warm.
    #[arg(long, value_name = "N", value_parser = crate::trace::positive_count)]
    window: Option<u64>,
    /// At each size, print only the policy with the lowest miss ratio.
    #[arg(long)]
    lowest: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Models and prints.
pub fn run(options: &Options) -> Result<(), Failure> {
    let kinds = kinds(options)?;
    let survey = survey(options)?;
    if survey.requests() == 0 {
        return Err(Failure::failed(anyhow!("the trace has no look-ups or writes, so nothing can miss")));
    }
    let unit = if options.bytes { Unit::Bytes } else { Unit::Objects };
    let asked: Vec<Size> =
        if options.size.is_empty() { size::evenly(options.sizes).collect() } else { options.size.clone() };
    let working_set = survey.working_set(unit);
    let mut sizes: Vec<u64> = asked.iter().map(|size| size.units(working_set)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.first() == Some(&0) {
        return Err(Failure::usage(anyhow!("a cache of size 0 misses everything; sizes start at 1")));
    }
    let bar = steps_bar(kinds.len() as u64, "curves");
    let curves = curves_in_parallel(&survey, &kinds, unit, &sizes, &|done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let rows = if options.lowest { lowest_rows(&kinds, &curves) } else { rows(&kinds, &curves) };
    output::print_rows(options.format, &Rows { fields: FIELDS, rows }).map_err(Failure::failed)
}

/// Each policy with each K, or alone.
fn kinds(options: &Options) -> Result<Vec<Kind>, Failure> {
    let mut kinds: Vec<Kind> = Vec::new();
    for name in &options.policy {
        // Parsed once for the message that names what there is.
        let with_default: Kind = name.parse().map_err(|error: String| Failure::usage(anyhow!(error)))?;
        let with_k = options.k.iter().filter_map(|&k| Kind::with_name(name, k));
        if with_default.k().is_some() && !name.contains(':') {
            kinds.extend(with_k)
        } else {
            kinds.push(with_default)
        }
    }
    let mut unique: Vec<Kind> = Vec::with_capacity(kinds.len());
    kinds.into_iter().for_each(|kind| {
        if !unique.contains(&kind) {
            unique.push(kind)
        }
    });
    Ok(unique)
}

fn survey(options: &Options) -> Result<Survey, Failure> {
    let source = options.trace.open()?;
    let mut survey = match options.sample_keys {
        Some(keys) => Survey::with_keys(keys as usize, options.seed),
        None => Survey::new(options.sample, options.seed),
    };
    for record in source.records() {
        if !survey.access(&record?) {
            return Err(Failure::failed(anyhow!(
                "the sample has more than 2^30 keys; a smaller --sample R holds fewer"
            )));
        }
        if options.window.is_some_and(|window| survey.requests().is_multiple_of(window)) {
            survey.end_window();
        }
    }
    source.finish();
    Ok(survey)
}

fn rows(kinds: &[Kind], curves: &[Vec<Curve>]) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for (kind, windows) in kinds.iter().zip(curves) {
        for (window, curve) in windows.iter().enumerate() {
            rows.extend(curve.points.iter().map(|point| row(*kind, point, window)));
        }
    }
    rows
}

fn lowest_rows(kinds: &[Kind], curves: &[Vec<Curve>]) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for window in 0..curves.first().map_or(0, Vec::len) {
        let of_window: Vec<Curve> =
            curves.iter().filter_map(|windows| windows.get(window).cloned()).collect();
        let Some((envelope, chosen)) = Curve::lower_envelope(&of_window) else { continue };
        rows.extend(envelope.points.iter().zip(chosen).map(|(point, kind)| row(kinds[kind], point, window)));
    }
    rows
}

fn row(kind: Kind, point: &tiermem_model::mrc::Point, window: usize) -> Vec<Cell> {
    let k = kind.k().unwrap_or(0.0);
    let decimals = if k.fract() == 0.0 { 0 } else { 2 };
    vec![
        Cell::Text(kind.name()),
        Cell::Number(k, decimals),
        Cell::Count(point.size),
        Cell::Number(point.miss_ratio, 6),
        Cell::Number(point.error, 6),
        Cell::Count(window as u64),
    ]
}
