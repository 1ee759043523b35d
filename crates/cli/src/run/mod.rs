//! `tiermem run`: a program whose memory is placed.

mod planned;

use std::ffi::OsString;

use clap::Args;

use crate::failure::Failure;
use crate::output::Format;

/// What `tiermem run` takes.
#[derive(Debug, Args)]
#[command(after_help = planned::HELP)]
pub struct Options {
    #[command(flatten)]
    planned: planned::PlanArgs,
    /// How to print the report.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The program and its arguments.
    #[arg(value_name = "CMD", required = true, last = true)]
    command: Vec<OsString>,
}

/// Runs the program.
pub fn run(options: Options) -> Result<(), Failure> {
    let Some(file) = options.planned.plan.clone() else {
        return Err(Failure::usage(anyhow::anyhow!("no --plan was given")));
    };
    planned::run(&options.planned, &file, options.command, options.format)
}
