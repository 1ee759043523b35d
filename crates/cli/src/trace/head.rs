//! `tiermem trace head`: the first records of a trace.

use clap::Args;

use super::show::{self, FIELDS_HELP};
use crate::failure::Failure;
use crate::output::Format;
use crate::source::TraceArgs;

/// Records printed unless `--requests` says otherwise.
const REQUESTS: u64 = 10;

const HELP: &str = "\
Examples:
  tiermem trace head twitter_cluster52.csv.zst
  tiermem trace head ycsb-f:objects=1000 --requests 3 --format json

Ten records, unless --requests says how many.";

/// Options of `tiermem trace head`.
#[derive(Debug, Args)]
#[command(after_help = format!("{HELP}\n\n{FIELDS_HELP}"))]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Prints them.
pub fn run(options: Options) -> Result<(), Failure> {
    let requests = Some(options.trace.reading.requests.unwrap_or(REQUESTS));
    show::print(&options.trace.with_requests(requests), 0, options.format)
}
