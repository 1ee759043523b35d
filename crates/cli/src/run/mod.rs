//! `tiermem run`: runs a program with its memory limited or placed.

mod comparisons;
pub mod memory_tiers;
pub mod paged;
mod paged_compare;
mod paged_more_dram;
mod paged_policies;
pub mod paged_report;
mod placed;
mod planned;
pub mod references;
mod required;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use tiermem_sys::inherited::forgo_huge_pages;

use crate::destination::Destination;
use crate::failure::Failure;
use crate::output::Format;

/// Options of `tiermem run`.
#[derive(Debug, Args)]
#[command(after_help = format!("{}\n\n{}\n\n{}\n\n{}", placed::HELP, paged::HELP, paged_compare::HELP, planned::HELP))]
pub struct Options {
    #[command(flatten)]
    placed: placed::PlaceArgs,
    #[command(flatten)]
    comparison: placed::CompareArgs,
    #[command(flatten)]
    paged: paged::PagedArgs,
    #[command(flatten)]
    planned: planned::PlanArgs,
    /// Format of the report.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Write the report to FILE; with --dram, FILE.html is a page and FILE.json has all figures [default: standard error, after the
    /// program's end].
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(value_name = "CMD", required = true, last = true)]
    command: Vec<OsString>,
}

/// Runs the program.
pub fn run(options: Options) -> Result<(), Failure> {
    place(options).map_err(Failure::with_program)
}

fn place(options: Options) -> Result<(), Failure> {
    let Options { placed, comparison, paged, planned, format, report, command } = options;
    let destination = Destination::of_report(report.as_deref(), true);
    forgo_huge_pages();
    if paged.is_asked() {
        return paged::run(&paged, &comparison, planned.of_pages()?, command, format, &destination);
    }
    if let Some(option) = paged.without_limit() {
        return Err(Failure::usage(anyhow!("{option} needs a limit of DRAM: --dram 2GiB")));
    }
    match (&planned.plan, placed.is_by_plan()) {
        (Some(_), false) => Err(Failure::usage(anyhow!("a plan is a placement of its own: --place plan"))),
        (Some(file), true) => planned::run(&planned, file, command, format, &destination),
        (None, _) if placed.names_plan() => {
            Err(Failure::usage(anyhow!("--place plan needs the plan: --plan PLAN, made by `tiermem plan`")))
        }
        (None, _) => placed::run(placed, &comparison, command, format, &destination),
    }
}
