//! Strategies compared over several trials.

use std::ffi::OsString;

use anyhow::anyhow;
use clap::Args;
use tiermem_place::run::statistics::{Summary, welch};
use tiermem_place::run::{self, Strategy, Trial, stream};
use tiermem_sys::numa::Topology;

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::record;
use crate::source::steps_bar;

const FIELDS: &[&str] = &[
    "strategy",
    "trials",
    "real_s",
    "real_sd",
    "user_s",
    "user_sd",
    "system_s",
    "system_sd",
    "p",
    "far_share",
    "copy_bytes_per_s",
    "scale_bytes_per_s",
    "add_bytes_per_s",
    "triad_bytes_per_s",
];

/// How strategies are compared.
#[derive(Debug, Args)]
pub struct TrialArgs {
    /// How often the program runs under each strategy.
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=10_000), requires = "compare")]
    trials: u32,
    /// Drop the page cache before each run; needs root.
    #[arg(long, requires = "compare")]
    cold: bool,
    /// Measure the bandwidth of memory under each strategy as well.
    #[arg(long, requires = "compare")]
    stream: bool,
}

/// Runs the trials, one strategy after the other in turns, and prints the comparison.
pub fn run(
    strategies: &[Strategy],
    args: &TrialArgs,
    cpus: &[u32],
    command: &[OsString],
    format: Format,
) -> Result<(), Failure> {
    let resolved = strategies
        .iter()
        .map(|strategy| super::resolve(strategy, cpus))
        .collect::<Result<Vec<_>, Failure>>()?;
    let stop = super::stop();
    let mut trials: Vec<Vec<Trial>> = vec![Vec::new(); strategies.len()];
    let bar = steps_bar(u64::from(args.trials) * strategies.len() as u64, "trials");
    for _ in 0..args.trials {
        for (resolved, trials) in resolved.iter().zip(&mut trials) {
            if args.cold {
                run::drop_page_cache().map_err(|error| {
                    Failure::failed(anyhow!(
                        "the page cache cannot be dropped ({error}); run as root, or without --cold"
                    ))
                })?;
            }
            let _weights = super::weights(resolved)?;
            let trial = run::run(command, &resolved.policy, cpus, &stop).map_err(record::advise)?;
            if stop.is_asked() {
                bar.finish_and_clear();
                return Err(Failure::failed(anyhow!("stopped before all trials were done")));
            }
            if !trial.status.success() {
                bar.finish_and_clear();
                return Err(Failure::failed(anyhow!("the program ended with {}", trial.status)));
            }
            trials.push(trial);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let streams = match args.stream {
        false => vec![None; strategies.len()],
        true => resolved
            .iter()
            .map(|resolved| {
                let _weights = super::weights(resolved)?;
                let measured = stream::measure(&resolved.policy, cpus);
                measured
                    .map(Some)
                    .map_err(|error| Failure::failed(anyhow!("bandwidth cannot be measured: {error}")))
            })
            .collect::<Result<Vec<_>, Failure>>()?,
    };
    let topology = Topology::read();
    let own = cpus.first().and_then(|cpu| topology.node_of_cpu(*cpu)).unwrap_or(0);
    let first = trials.first().map(|trials| summary(trials, |trial| trial.real_s)).unwrap_or_default();
    let rows = strategies
        .iter()
        .zip(&trials)
        .zip(streams)
        .enumerate()
        .map(|(number, ((strategy, trials), stream))| row(number, strategy, trials, stream, own, &first))
        .collect();
    output::print_rows(format, &Rows { fields: FIELDS, rows })
        .map_err(|error| Failure::writing("the comparison", error))
}

fn summary(trials: &[Trial], value: impl Fn(&Trial) -> f64) -> Summary {
    Summary::of(&trials.iter().map(value).collect::<Vec<f64>>())
}

fn row(
    number: usize,
    strategy: &Strategy,
    trials: &[Trial],
    stream: Option<[f64; 4]>,
    own: u32,
    first: &Summary,
) -> Vec<Cell> {
    let real = summary(trials, |trial| trial.real_s);
    let mut row = vec![Cell::Text(strategy.to_string()), Cell::Count(trials.len() as u64)];
    for summary in [real, summary(trials, |trial| trial.user_s), summary(trials, |trial| trial.system_s)] {
        row.extend([Cell::Number(summary.mean, 4), Cell::Number(summary.deviation, 4)]);
    }
    let p = if number == 0 { None } else { welch(first, &real) };
    row.push(p.map_or(Cell::Text(String::new()), |p| Cell::Text(format!("{p:.3e}"))));
    let (mut far, mut all) = (0, 0);
    for (node, pages) in trials.iter().flat_map(|trial| &trial.pages) {
        all += pages;
        far += if *node == own { 0 } else { *pages };
    }
    row.push(if all == 0 { Cell::Text(String::new()) } else { Cell::Number(far as f64 / all as f64, 4) });
    match stream {
        Some(figures) => row.extend(figures.map(|bytes_per_s| Cell::Number(bytes_per_s, 0))),
        None => row.extend([(); stream::KERNELS.len()].map(|()| Cell::Text(String::new()))),
    }
    row
}
