//! `tiermem trace convert`: the same trace in another format.

use clap::Args;
use tiermem_trace::filter::Verdict;

use super::sink::{self, OutputArgs};
use crate::failure::Failure;
use crate::source::TraceArgs;

const HELP: &str = "\
Examples:
  tiermem trace convert msr-slice-rw20.trace -o rw20.csv.zst
  tiermem trace convert twitter_cluster52.csv.zst -o cluster52.oracleGeneral.bin
  tiermem trace convert log.txt --columns key=2,size=3,time=1,unit=ms -o log.csv
  tiermem trace convert cloudPhysicsIO.oracleGeneral.bin --requests 1000 -o -

The formats to read are those of --trace-format, those to write of --output-format. A file appears when it is complete.";

/// Options of `tiermem trace convert`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Writes it.
pub fn run(options: Options) -> Result<(), Failure> {
    sink::copy(&options.trace, &options.output, |_| Verdict::Keep)
}
