//! Binary `tiermem`: one subcommand per file.
#![forbid(unsafe_code)]

mod block;
mod columns;
mod destination;
mod doctor;
mod failure;
mod heatmap;
mod interrupt;
mod ladder;
mod mrc;
mod numa_nodes;
mod numbers;
mod output;
mod pager;
mod partition;
mod plan;
mod pool;
mod print_lines;
mod print_text;
mod probe;
mod process_choice;
mod record;
mod report;
mod run;
mod serving;
mod sim;
mod size;
mod source;
mod store;
mod tiers;
mod trace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Large allocations go back to the system, and small ones cost little.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: &str = "\
Examples:
  tiermem store serve
  tiermem store replay zipf:objects=100k,requests=1M --to 127.0.0.1:7379
  tiermem block replay volume.csv --to nbd://localhost/disk --verify
  tiermem trace stat zipf:objects=100k,requests=1M
  tiermem mrc zipf:objects=100k,requests=1M --policy klru --k 1 --k 5
  tiermem doctor
  tiermem record -o app.rec -- ./app
  tiermem heatmap app.rec -o app.html
  tiermem plan app.rec --fast 2GiB -o app.plan.json
  tiermem heatmap sort.parquet -o sort.html
  tiermem report zipf:objects=100k,requests=1M -o report.html
  tiermem sim cache zipf:objects=100k,requests=1M --size 10000";

/// Memory larger than DRAM: finds out which bytes are hot and puts each into the tier where it belongs.
#[derive(Debug, Parser)]
#[command(name = "tiermem", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Redis-compatible store over several tiers of memory: serve, load, replay, benchmark.
    #[command(subcommand, after_help = store::EXAMPLE)]
    Store(store::Command),
    /// Block cache in front of slow volumes, served over NBD.
    #[command(subcommand, after_help = block::EXAMPLE)]
    Block(block::Command),
    /// Access traces: generate, convert, measure, show, filter, split and merge.
    #[command(subcommand, after_help = trace::EXAMPLES)]
    Trace(trace::Command),
    /// Miss-ratio curves: the miss ratio of a cache at each size.
    Mrc(mrc::Options),
    /// Compute how to divide memory among tenants.
    Partition(partition::Options),
    /// One HTML page about a trace: curves, working set, prices.
    Report(report::Options),
    /// Simulators that run the live engines' decisions: caches, block cache, page faults, placement, CXL flash.
    #[command(subcommand, after_help = sim::EXAMPLE)]
    Sim(sim::Command),
    /// Record how a program uses its memory.
    Record(Box<record::Options>),
    /// Draw a recording: a picture, an interactive page or a table of how often memory was accessed.
    Heatmap(Box<heatmap::Options>),
    /// Plan which parts of a recorded program's memory belong in fast memory, and when.
    Plan(plan::Options),
    /// Run a program in less DRAM than it needs, or with its memory placed on chosen nodes or by a plan; compare placements.
    Run(Box<run::Options>),
    /// Programs that run in less DRAM than they need: list them.
    #[command(subcommand, after_help = pager::EXAMPLE)]
    Pager(pager::Command),
    /// Check what this machine supports, and what each missing part needs.
    Doctor(doctor::Options),
    /// Measure how closely an emulated tier follows its curve on this machine.
    Probe(probe::Options),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // What cannot be printed has no reader.
            let _ = error.print();
            let runs_a_program =
                std::env::args_os().nth(1).is_some_and(|word| word == "record" || word == "run");
            let is_wrong = error.use_stderr();
            return if is_wrong { failure::parse_code(runs_a_program).into() } else { ExitCode::SUCCESS };
        }
    };
    let result = match cli.command {
        Command::Store(command) => store::run(command),
        Command::Block(command) => block::run(command),
        Command::Trace(command) => trace::run(command),
        Command::Mrc(options) => mrc::run(&options),
        Command::Partition(options) => partition::run(&options),
        Command::Report(options) => report::run(&options),
        Command::Sim(command) => sim::run(command),
        Command::Record(options) => record::run(*options),
        Command::Heatmap(options) => heatmap::run(&options),
        Command::Plan(options) => plan::run(&options),
        Command::Run(options) => run::run(*options),
        Command::Pager(command) => pager::run(command),
        Command::Doctor(options) => doctor::run(&options),
        Command::Probe(options) => probe::run(options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
