//! Curves of small samples of the keys: their error, whether their own estimate of it holds, and their cost.

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tiermem_base::hash::sample_hash;
use tiermem_base::{Access, Op};
use tiermem_model::mrc::{Curve, Kind, Online, Survey, Unit};

use crate::output::{Cell, Format, Rows, print_rows};
use crate::summary::{mean, median};

const FIELDS: &[&str] = &[
    "policy",
    "keys_sampled",
    "error_mean",
    "error_max",
    "shards_error_mean",
    "shards_error_max",
    "coverage",
    "gather_ns",
    "curve_s",
];

const HELP: &str = "\
Fields:
  error_mean, error_max  mean absolute error over the sizes against the curve of all keys: mean and maximum over the seeds
  shards_error_*         the same of the curve with the correction of SHARDS
  coverage               the share of points and seeds where the truth is within the curve's error
  gather_ns              median time per request of the trace to take it in, read beforehand
  curve_s                median time for the curve and its errors after that";

/// Options of `sampling`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// A trace file, or a generator.
    trace: String,
    /// Number of requests.
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// The share of keys that is looked at.
    #[arg(long, value_name = "R", default_value_t = 0.01)]
    rate: f64,
    /// The policies.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', default_values = ["lru", "klru:5", "krr:5"])]
    policy: Vec<Kind>,
    /// Number of cache sizes to evaluate, evenly spaced up to the working set.
    #[arg(long, value_name = "COUNT", default_value_t = 25)]
    sizes: usize,
    /// Number of samples to draw, each of other keys.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let limit = options.requests.unwrap_or(usize::MAX);
    let accesses: Vec<Access> = tiermem_trace::open(&options.trace)?.take(limit).collect::<Result<_, _>>()?;
    if accesses.iter().all(|access| access.op == Op::Del) {
        bail!("{} has no requests", options.trace);
    }
    let whole = gather(&accesses, 1.0, 0);
    let sizes = whole.even_sizes(Unit::Objects, options.sizes);
    let bar = ProgressBar::new(options.seeds * options.policy.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} curves, {eta} left")?);
    let mut rows = Vec::new();
    for &kind in &options.policy {
        // KRR approximates what klru computes; its error is against that.
        let truth = match kind {
            Kind::Krr { k } => whole.curve(Kind::KLru { k }, Unit::Objects, &sizes),
            Kind::Aet => whole.curve(Kind::Lru, Unit::Objects, &sizes),
            kind => whole.curve(kind, Unit::Objects, &sizes),
        };
        let (mut errors, mut shards_errors, mut gather_ns, mut curve_s) = (vec![], vec![], vec![], vec![]);
        let (mut keys, mut held, mut points) = (0, 0, 0);
        for seed in 1..=options.seeds {
            let start = Instant::now();
            let sample = gather(&accesses, options.rate, seed);
            gather_ns.push(start.elapsed().as_secs_f64() * 1e9 / accesses.len() as f64);
            keys += sample.keys_sampled();
            let start = Instant::now();
            let curve = sample.curve(kind, Unit::Objects, &sizes);
            curve_s.push(start.elapsed().as_secs_f64());
            errors.push(curve.mean_absolute_error(&truth));
            shards_errors
                .push(with_shards(&accesses, kind, &sizes, options.rate, seed).mean_absolute_error(&truth));
            for (point, truth) in curve.points.iter().zip(&truth.points) {
                points += 1;
                held += u32::from((point.miss_ratio - truth.miss_ratio).abs() <= point.error);
            }
            bar.inc(1);
        }
        let max = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        rows.push(vec![
            Cell::Text(kind.to_string()),
            Cell::Count((keys as u64).div_ceil(options.seeds)),
            Cell::Number(mean(errors.iter().copied()), 5),
            Cell::Number(max(&errors), 5),
            Cell::Number(mean(shards_errors.iter().copied()), 5),
            Cell::Number(max(&shards_errors), 5),
            Cell::Number(f64::from(held) / f64::from(points), 3),
            Cell::Number(median(gather_ns), 1),
            Cell::Number(median(curve_s), 4),
        ]);
    }
    bar.finish_and_clear();
    print_rows(options.format, &Rows { fields: FIELDS, rows })?;
    Ok(())
}

fn gather(accesses: &[Access], rate: f64, seed: u64) -> Survey {
    let mut survey = Survey::new(rate, seed);
    accesses.iter().for_each(|access| _ = survey.access(access));
    survey
}

/// The curve on line, which relates misses to the requests that were to be expected. Another choice of keys is made by
/// giving them other names.
fn with_shards(accesses: &[Access], kind: Kind, sizes: &[u64], rate: f64, seed: u64) -> Curve {
    let mut online = Online::with_rate(kind, Unit::Objects, sizes, rate);
    let salt = sample_hash(seed);
    for access in accesses {
        match access.op {
            Op::Del => online.remove(access.key ^ salt),
            _ => online.access(access.key ^ salt, access.size),
        }
    }
    online.curve()
}
