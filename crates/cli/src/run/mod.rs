//! `tiermem run`: runs a program with its memory placed.

mod placed;
mod planned;

use std::ffi::OsString;

use anyhow::anyhow;
use clap::Args;

use crate::failure::Failure;
use crate::output::Format;

/// Options of `tiermem run`.
#[derive(Debug, Args)]
#[command(after_help = format!("{}\n\n{}", placed::HELP, planned::HELP))]
pub struct Options {
    #[command(flatten)]
    placed: placed::PlaceArgs,
    #[command(flatten)]
    planned: planned::PlanArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The program and its arguments.
    #[arg(value_name = "CMD", required = true, last = true)]
    command: Vec<OsString>,
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
