//! `tiermem run`: a program whose memory is placed, by a strategy or by a plan.

mod placed;
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
#[command(after_help = format!("{}\n\n{}", placed::HELP, planned::HELP))]
pub struct Options {
    #[command(flatten)]
    placed: placed::PlaceArgs,
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
    let Options { placed, planned, format, command } = options;
    match (&planned.plan, placed.is_by_plan()) {
        (Some(_), false) => Err(Failure::usage(anyhow!("a plan is a placement of its own: --place plan"))),
        (Some(file), true) => planned::run(&planned, &file.clone(), command, format),
        (None, _) if placed.names_plan() => {
            Err(Failure::usage(anyhow!("--place plan needs the plan: --plan PLAN, made by `tiermem plan`")))
        }
        (None, _) => placed::run(placed, command, format),
    }
}
