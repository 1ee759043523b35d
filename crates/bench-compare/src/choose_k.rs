//! Choice of K: the prediction of a cache that chooses its K for each
//! window, compared with its misses (Wang 2024, section 3.2.2, figure 3.4).

use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tiermem_base::{Access, Interner};
use tiermem_model::advisor::Plan;
use tiermem_policy::flat::{Cache, Capacity, Request};
use tiermem_sim::cache::Dlru;

use crate::output::{Cell, Format, Rows, print_rows};
use crate::summary::mean;

const FIELDS: &[&str] = &["trace", "share", "way", "windows", "error_mean", "bias", "error_max"];

const HELP: &str = "\
Fields:
  windows     windows of which enough keys were seen
  error_mean  mean over them of the distance between the miss ratio predicted for the cache's K and the cache's own
  bias        the mean of predicted less own
  error_max   the largest distance";

/// Options of `choose-k`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Trace files, or generators.
    #[arg(required = true)]
    traces: Vec<String>,
    /// Sizes of the cache, in percent of the distinct keys.
    #[arg(long, value_name = "PERCENT,..", value_delimiter = ',', default_values_t = [25, 50, 75])]
    share: Vec<u32>,
    /// Windows that a trace is cut into.
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u64).range(2..))]
    windows: u64,
    /// The share of the keys that is looked at.
    #[arg(long, value_name = "R", default_value_t = 0.1)]
    rate: f64,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let count = (options.traces.len() * options.share.len() * 2) as u64;
    let bar = ProgressBar::new(count);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} caches, {eta} left")?);
    let mut rows = Vec::new();
    for trace in &options.traces {
        let (requests, keys) = read(trace)?;
        for &share in &options.share {
            let capacity = Capacity::Objects((u64::from(keys) * u64::from(share) / 100).max(1));
            for (way, plan) in [("miniature", Plan::dlru()), ("krr", Plan::default())] {
                let window = (requests.len() as u64 / options.windows).max(1);
                let plan = Plan { window, rate: options.rate, thins: false, ..plan };
                let mut cache = Dlru::new(plan, capacity, 1);
                cache.run(&requests, keys);
                let off: Vec<f64> = cache.predictions().iter().map(|it| it.predicted - it.measured).collect();
                let largest = off.iter().map(|off| off.abs()).fold(0.0, f64::max);
                rows.push(vec![
                    Cell::Text(trace.rsplit('/').next().unwrap_or(trace).to_owned()),
                    Cell::Count(share.into()),
                    Cell::Text(way.to_owned()),
                    Cell::Count(off.len() as u64),
                    Cell::Number(mean(off.iter().map(|off| off.abs())), 4),
                    Cell::Number(mean(off.iter().copied()), 4),
                    Cell::Number(largest, 4),
                ]);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    print_rows(options.format, &Rows { fields: FIELDS, rows })?;
    Ok(())
}

/// A trace with its keys as dense numbers, and how many there are.
fn read(trace: &str) -> Result<(Vec<Request>, u32)> {
    let mut keys = Interner::new();
    let mut requests = Vec::new();
    for access in tiermem_trace::open(trace)? {
        let Access { key, size, op, .. } = access?;
        requests.push(Request { key: keys.intern(key).0, size, op });
    }
    if requests.is_empty() {
        bail!("{trace} has no requests");
    }
    Ok((requests, keys.len() as u32))
}
