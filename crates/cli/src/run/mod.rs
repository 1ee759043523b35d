//! `tiermem run`: a program whose memory is placed, by a strategy or by a plan.

mod compare;
mod planned;

use std::ffi::OsString;

use anyhow::anyhow;
use clap::Args;
use tiermem_place::capture::Stop;
use tiermem_place::run::{self, Resolved, Strategy};
use tiermem_sys::affinity;
use tiermem_sys::numa::{Topology, Weights};

use crate::failure::Failure;
use crate::output::Format;
use crate::{interrupt, record};

const HELP: &str = "\
Examples:
  tiermem run --plan app.plan.json -- ./app
  tiermem run --plan app.plan.json --follow first-touch -- ./app    # the same without moves: what the plan is held against
  tiermem run --place interleave -- ./app
  tiermem run --compare local,remote,default --trials 10 -- ./app
  tiermem run --compare local,remote --cold --stream -- ./app

The program's output goes to standard error.

Strategies:
  default       the kernel's: from the node of the processor that touches a page first, others when it is full
  local         from the node of the program's processors alone
  remote        from the nearest other node alone
  interleave    from all nodes in turn
  weighted=3:1  from all nodes in turn, so many pages from each (Linux 6.9 or newer, root: the weights are the machine's, and are
                put back in the end)

A comparison runs the strategies in turns, on the same processors. With --cold the page cache is dropped before each run; a
restart of the machine, as in the work that this follows, cools everything else as well.

Fields of a comparison, a row for each strategy:
  strategy, trials
  real_s, real_sd        mean and standard deviation of the time from start to end
  user_s, user_sd, system_s, system_sd
                         processor time of the program, and of the kernel for it
  p                      the chance that the real times of the first strategy and of this one differ so much by accident (Welch's
                         t-test); empty for the first
  far_share              of the program's pages, those that lay on another node than its processors
  copy_bytes_per_s, scale_bytes_per_s, add_bytes_per_s, triad_bytes_per_s
                         with --stream: bandwidth of one thread under the strategy";

/// What `tiermem run` takes.
#[derive(Debug, Args)]
#[command(after_help = format!("{HELP}\n{}", planned::HELP))]
pub struct Options {
    #[command(flatten)]
    planned: planned::PlanArgs,
    /// Where memory comes from.
    #[arg(long, value_name = "STRATEGY", conflicts_with_all = ["plan", "compare"])]
    place: Option<Strategy>,
    /// Strategies to compare, with commas between them.
    #[arg(long, value_name = "STRATEGIES", value_delimiter = ',', conflicts_with = "plan")]
    compare: Vec<Strategy>,
    #[command(flatten)]
    trials: compare::TrialArgs,
    /// Processors that the program runs on, such as 0-3,8 [default: those of this command].
    #[arg(long, value_name = "CPUS", value_parser = cpus, conflicts_with = "plan")]
    cpus: Option<Cpus>,
    /// How to print the report.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The program and its arguments.
    #[arg(value_name = "CMD", required = true, last = true)]
    command: Vec<OsString>,
}

/// Processors.
#[derive(Clone, Debug)]
struct Cpus(Vec<u32>);

fn cpus(text: &str) -> Result<Cpus, String> {
    let list = tiermem_sys::numa::list(text).filter(|list| !list.is_empty());
    list.map(Cpus).ok_or_else(|| "this is a list of processors such as 0-3,8".to_owned())
}

/// Runs the program.
pub fn run(options: Options) -> Result<(), Failure> {
    if let Some(file) = options.planned.plan.clone() {
        return planned::run(&options.planned, &file, options.command, options.format);
    }
    let cpus = match options.cpus {
        Some(Cpus(cpus)) => cpus,
        None => affinity::thread_cores()
            .map_err(|error| Failure::failed(anyhow!("cannot tell which processors may be used: {error}")))?,
    };
    if !options.compare.is_empty() {
        let command = options.command;
        return compare::run(&options.compare, &options.trials, &cpus, &command, options.format);
    }
    let strategy = options.place.ok_or_else(|| {
        Failure::usage(anyhow!(
            "nothing says where memory is to come from: give --place, --compare or --plan"
        ))
    })?;
    let resolved = resolve(&strategy, &cpus)?;
    let _weights = weights(&resolved)?;
    let stop = stop();
    let trial = run::run(&options.command, &resolved.policy, &cpus, &stop).map_err(record::advise)?;
    if !trial.status.success() && !stop.is_asked() {
        return Err(Failure::failed(anyhow!("the program ended with {}", trial.status)));
    }
    Ok(())
}

/// A request to stop that Ctrl-C makes.
fn stop() -> Stop {
    let stop = Stop::default();
    let stopped = stop.clone();
    interrupt::then(move || stopped.stop());
    stop
}

/// What a strategy is here, if the kernel takes it.
fn resolve(strategy: &Strategy, cpus: &[u32]) -> Result<Resolved, Failure> {
    let resolved = strategy
        .resolve(&Topology::read(), cpus)
        .map_err(|unavailable| Failure::failed(anyhow!(unavailable)))?;
    resolved.policy.check().map_err(|error| {
        Failure::failed(anyhow!(
            "the kernel does not take the strategy {strategy} from this process: {error}"
        ))
    })?;
    Ok(resolved)
}

/// Sets the weights that a strategy needs, until the result goes.
fn weights(resolved: &Resolved) -> Result<Option<Weights>, Failure> {
    if resolved.weights.is_empty() {
        return Ok(None);
    }
    Weights::set(&resolved.weights).map(Some).map_err(|error| Failure::failed(anyhow!(error)))
}
