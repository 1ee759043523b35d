//! Runs under the placements that need no plan, one or several side by side.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitStatus;
use std::str::FromStr;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use tiermem_base::Bytes;
use tiermem_place::capture::Stop;
use tiermem_place::run::compare::{self, Outcome, Series};
use tiermem_place::run::strategy::{Strategy, StrategyError};
use tiermem_place::run::stream_bandwidth::{self, Bandwidth};
use tiermem_place::run::welch::Sample;
use tiermem_place::run::{Cold, RunError};
use tiermem_sys::numa::{self, Topology};

use super::comparisons::{self, Times};
use crate::destination::Destination;
use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::{interrupt, record};

/// How it is used, and the fields of the report.
pub const HELP: &str = "\
Examples:
  tiermem run --place remote -- sort /etc/services
  tiermem run --compare local,remote,default --trials 10 --cpus 0-7 -- llama-cli -m model.gguf -t 8 --temp 0 -n 100
  tiermem run --compare local,remote --cold -- ./pagerank --scale 20
  tiermem run --plan plan.json -- ./hotspot
  tiermem run --dram 2GiB --flash 8GiB -- ./app                         # in less DRAM than it needs

Placements: local (the nodes of the program's processors), remote (the nearest other node), interleave (all nodes in turn),
weighted=3:1 (nodes in turn by weight, in the order of their numbers; sets the machine's weights during the run; needs root),
default (the kernel's own), plan (see --plan).

The program runs as without tiermem: its input, output, terminal and exit code are its own. The report comes after its end, on standard
error or in the file of --report. Signals are passed on to the program; after one, no further run begins, and the finished ones are
reported. A second signal ends the program. Exit code: the program's, or 128 and the signal that ended it; 125 if tiermem itself fails, 126
if the program cannot be run, 127 if there is none.

Fields of the report without a plan:
  start                  warm or cold
  trials                 of each placement
  cpus                   on which the program ran, in all trials
  array_bytes, caches    bytes of each array of the bandwidth test; the same in last-level caches
  ended                  how the last run ended, or stopped
  strategies: one row for each placement, means and standard deviations (sd) over its trials
    strategy, trials
    real_s, real_sd_s, user_s, user_sd_s, system_s, system_sd_s
                         seconds from start to end; processor time in the program, and in the kernel for it
    minor_faults, major_faults
                         page faults answered from memory; page faults that read from disk
    copy_mb_per_s, scale_mb_per_s, add_mb_per_s, triad_mb_per_s
                         memory bandwidth under this placement, 10^6 bytes per second, by the loops of STREAM
  comparisons: a row for each pair of placements and each of real, user and system
    figure, strategy, against
    difference_s, ratio  of the means: first minus second, first over second
    t, freedom, p        Welch's t-test; p is the probability of such a difference by chance
  nodes: where the program's memory was when it had most
    strategy, node, bytes, share
                         mean bytes over the trials that were long enough to be scanned; share of all nodes'
    tier                 the kernel's tier of the node's memory; a larger number is slower";

/// A placement by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    Strategy(Strategy),
    Plan,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "plan" => Ok(Choice::Plan),
            _ => text.parse().map(Choice::Strategy),
        }
    }
}

/// How much of the page cache is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ColdStart {
    /// The whole page cache (needs root, and slows down every program on the machine).
    Whole,
    /// The files that only this program maps.
    Files,
}

/// What concerns placements without a plan.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Placement of the program's memory: local, remote, interleave, weighted=W:W, default or plan.
    #[arg(long, value_name = "PLACEMENT", conflicts_with = "compare")]
    place: Option<Choice>,
    /// Cold start: drop cached files before each run. Without it, a comparison begins with a warm-up run.
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "whole", conflicts_with = "plan")]
    cold: Option<ColdStart>,
    /// Processors for the program, such as 0-3,8 [default: those that this process may use].
    #[arg(long, value_name = "LIST", conflicts_with = "plan")]
    cpus: Option<String>,
    /// Bytes of each of the three arrays of the bandwidth test; 0 skips it [default: 4 times the last-level cache when comparing,
    /// if memory is free].
    #[arg(long, value_name = "SIZE", conflicts_with = "plan")]
    bandwidth: Option<Bytes>,
}

/// Runs of the program side by side: of placements, or of ways of paging.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Placements to compare (or, with --dram, swap,kernel); the program runs under each in turn.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with = "plan")]
    pub compare: Vec<String>,
    /// Number of runs of each [default: 1, or 10 to compare].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), conflicts_with = "plan")]
    pub trials: Option<u32>,
}

/// The trials of each of those that are compared, unless the user says otherwise.
pub const TRIALS_TO_COMPARE: u32 = 10;

impl PlaceArgs {
    /// Whether a plan may say where memory lies: nothing else was asked for.
    pub fn is_by_plan(&self) -> bool {
        self.place.as_ref().is_none_or(|choice| *choice == Choice::Plan)
    }

    /// Whether a plan was asked for by name.
    pub fn names_plan(&self) -> bool {
        self.place == Some(Choice::Plan)
    }

    fn strategies(&self, compare: &[String]) -> Result<Vec<Strategy>, Failure> {
        match &self.place {
            Some(Choice::Strategy(strategy)) => Ok(vec![strategy.clone()]),
            _ if compare.is_empty() => Ok(vec![Strategy::Default]),
            _ => {
                let strategies = compare.iter().map(|name| name.parse::<Strategy>());
                strategies.collect::<Result<_, _>>().map_err(|error| {
                    Failure::usage(anyhow!(
                        "--compare: {error} (swap and kernel are compared with --dram SIZE)"
                    ))
                })
            }
        }
    }
}

const RECORD: &[&str] = &["start", "trials", "cpus", "array_bytes", "caches", "ended"];
const STRATEGIES: &[&str] = &[
    "strategy",
    "trials",
    "real_s",
    "real_sd_s",
    "user_s",
    "user_sd_s",
    "system_s",
    "system_sd_s",
    "minor_faults",
    "major_faults",
    "copy_mb_per_s",
    "scale_mb_per_s",
    "add_mb_per_s",
    "triad_mb_per_s",
];
const COMPARISONS: &[&str] = &["figure", "strategy", "against", "difference_s", "ratio", "t", "freedom", "p"];
const NODES: &[&str] = &["strategy", "node", "bytes", "share", "tier"];

/// The arrays of the bandwidth test.
struct Arrays {
    bytes: u64,
    caches: Option<f64>,
}

/// Runs the program, as often and under as many placements as was asked for, and reports.
pub fn run(
    args: PlaceArgs,
    comparison: &CompareArgs,
    command: Vec<OsString>,
    format: Format,
    destination: &Destination,
) -> Result<(), Failure> {
    let strategies = args.strategies(&comparison.compare)?;
    if (1..strategies.len()).any(|at| strategies[..at].contains(&strategies[at])) {
        return Err(Failure::usage(anyhow!("--compare names a placement twice")));
    }
    let asked = args.cpus.as_deref().map(|text| {
        let list = numa::list(text).filter(|cpus| !cpus.is_empty());
        list.ok_or_else(|| Failure::usage(anyhow!("{text:?} is not a list of processors such as 0-3,8")))
    });
    let cpus = compare::usable_cpus(asked.transpose()?.as_deref()).map_err(advise)?;
    let placements = compare::placements(&Topology::read(), &cpus, &strategies).map_err(advise)?;
    let is_comparison = !comparison.compare.is_empty();
    let trials = comparison.trials.unwrap_or(if is_comparison { TRIALS_TO_COMPARE } else { 1 });
    let cold = args.cold.map(|cold| match cold {
        ColdStart::Whole => Cold::Whole,
        ColdStart::Files => Cold::Files,
    });
    let arrays = match args.bandwidth {
        Some(Bytes(0)) => None,
        Some(Bytes(bytes)) => Some(Arrays { bytes, caches: None }),
        None if is_comparison => {
            let (bytes, caches) = stream_bandwidth::array_bytes(&placements, &cpus);
            Some(Arrays { bytes, caches })
        }
        None => None,
    };
    // A single cold start needs no run before, unless the files that it maps are yet to be known.
    let warm_up = cold == Some(Cold::Files) || cold.is_none() && trials > 1;
    let options = compare::Options { command, placements, trials, warm_up, cold, cpus };
    let stop = Stop::default();
    interrupt::pass_on(&stop, Stop::stop, interrupt::Second::EndsProgram);
    let compared = compare::compare(&options, &stop, |_| {});
    let outcome = compared.map_err(advise)?;
    let mut bandwidths = Vec::new();
    for placement in &options.placements {
        let measured = match &arrays {
            Some(arrays) if !stop.is_asked() && outcome.failed.is_none() => {
                Some(stream_bandwidth::measure(placement, &options.cpus, arrays.bytes).map_err(advise)?)
            }
            _ => None,
        };
        bandwidths.push(measured);
    }
    let series = &outcome.series;
    for left in series.iter().flat_map(|series| &series.trials).filter_map(|trial| trial.left.as_ref()) {
        eprintln!("tiermem: {left}");
    }
    let mut lists = vec![("strategies", strategy_rows(series, &bandwidths))];
    if series.len() > 1 {
        let times: Vec<Times> = series.iter().map(times_of).collect();
        lists.push(("comparisons", comparisons::rows(&times, COMPARISONS)));
    }
    lists.push(("nodes", node_rows(series)));
    let record = record_row(&options, arrays.as_ref(), &outcome);
    let written = destination.open().and_then(|mut out| {
        output::write_record(&mut out, format, &record, &lists)?;
        out.flush()
    });
    written.map_err(|error| Failure::writing("the report", error))?;
    match outcome {
        Outcome { failed: Some((strategy, status)), .. } => {
            if is_comparison || trials > 1 {
                eprintln!("tiermem: the program failed under the placement {strategy}: {status}");
            }
            Failure::of_program(status)
        }
        Outcome { stopped: Some(status), .. } if status.success() => {
            Err(Failure::failed(anyhow!("stopped before the last trial had ended")))
        }
        Outcome { stopped: Some(status), .. } => {
            eprintln!("tiermem: stopped before the last trial had ended");
            Failure::of_program(status)
        }
        _ => Ok(()),
    }
}

/// Failure for an error, and how to fix it.
fn advise(error: RunError) -> Failure {
    let advice = match &error {
        RunError::Program(_) => {
            let RunError::Program(error) = error else { return Failure::failed(error) };
            return record::advise(error);
        }
        RunError::Cpus { .. } => return Failure::usage(error),
        RunError::Strategy(StrategyError::OneNode { .. }) => {
            "; the memory of another socket is one, or that of a CXL device that is online (daxctl online-memory)"
        }
        RunError::Policy { .. } => "; a cpuset may keep this process from the node (cpuset.mems)",
        RunError::Cold { .. } => "; run as root outside of a container, or with --cold=files",
        RunError::Bandwidth(_) => {
            "; --bandwidth SIZE takes smaller arrays, --bandwidth 0 leaves the test out"
        }
        RunError::Weights(_) | RunError::Strategy(_) => "",
    };
    Failure::failed(anyhow!("{error}{advice}"))
}

fn record_row(options: &compare::Options, arrays: Option<&Arrays>, outcome: &Outcome) -> Rows {
    let cpus: Vec<_> = options.cpus.iter().map(u32::to_string).collect();
    let last =
        outcome.series.iter().flat_map(|series| series.trials.last()).map(|trial| trial.status).next_back();
    let failed = outcome.failed.as_ref().map(|(_, status)| *status);
    let row = vec![
        Cell::Text(if options.cold.is_some() { "cold" } else { "warm" }.to_owned()),
        Cell::Count(u64::from(options.trials)),
        Cell::Text(cpus.join(",")),
        arrays.map_or(Cell::Number(f64::NAN, 0), |arrays| Cell::Count(arrays.bytes)),
        Cell::Number(arrays.and_then(|arrays| arrays.caches).unwrap_or(f64::NAN), 2),
        Cell::Text(match outcome.stopped {
            Some(_) => "stopped".to_owned(),
            None => failed.or(last).as_ref().map_or_else(String::new, ExitStatus::to_string),
        }),
    ];
    Rows { fields: RECORD, rows: vec![row] }
}

fn strategy_rows(all: &[Series], bandwidths: &[Option<Bandwidth>]) -> Rows {
    let row = |(series, bandwidth): (&Series, &Option<Bandwidth>)| {
        let seconds = |sample: Sample| [Cell::Number(sample.mean, 4), Cell::Number(sample.deviation, 4)];
        let rate = |rate: fn(&Bandwidth) -> f64| Cell::Number(bandwidth.as_ref().map_or(f64::NAN, rate), 1);
        let faults = |sample: Sample| Cell::Number(sample.mean, 1);
        let mut row =
            vec![Cell::Text(series.placement.strategy.to_string()), Cell::Count(series.trials.len() as u64)];
        row.extend([series.real_s(), series.user_s(), series.system_s()].into_iter().flat_map(seconds));
        row.push(faults(series.of(|trial| trial.usage.minor_faults as f64)));
        row.push(faults(series.of(|trial| trial.usage.major_faults as f64)));
        row.extend([rate(|it| it.copy), rate(|it| it.scale), rate(|it| it.add), rate(|it| it.triad)]);
        row
    };
    Rows { fields: STRATEGIES, rows: all.iter().zip(bandwidths).map(row).collect() }
}

fn times_of(series: &Series) -> Times {
    let name = series.placement.strategy.to_string();
    Times { name, real: series.real_s(), user: series.user_s(), system: series.system_s() }
}

fn node_rows(all: &[Series]) -> Rows {
    let memory = Topology::read().with_memory();
    let mut rows = Vec::new();
    for series in all {
        let seen = || series.trials.iter().filter(|trial| trial.residency.total() > 0);
        let mean = |node| {
            Sample::of(
                seen().map(|trial| trial.residency.bytes.get(&node).map_or(0.0, |bytes| *bytes as f64)),
            )
            .mean
        };
        let total = Sample::of(seen().map(|trial| trial.residency.total() as f64)).mean;
        for &node in memory.iter().filter(|_| seen().next().is_some()) {
            rows.push(vec![
                Cell::Text(series.placement.strategy.to_string()),
                Cell::Count(u64::from(node)),
                Cell::Number(mean(node), 0),
                Cell::Number(mean(node) / total, 4),
                numa::tier_of(node).map_or(Cell::Number(f64::NAN, 0), |tier| Cell::Count(u64::from(tier))),
            ]);
        }
    }
    Rows { fields: NODES, rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_chosen_by_name() {
        assert_eq!("plan".parse(), Ok(Choice::Plan));
        assert_eq!("weighted=3:1".parse(), Ok(Choice::Strategy(Strategy::Weighted(vec![3, 1]))));
        assert!("far".parse::<Choice>().is_err());
    }
}
