//! `tiermem trace gen`: a synthetic trace as a file.

use clap::Args;
use tiermem_trace::Spec;
use tiermem_trace::filter::Verdict;

use super::sink::{self, OutputArgs};
use crate::failure::Failure;
use crate::source::{GENERATORS_HELP, TraceArgs};

const HELP: &str = "\
Examples:
  tiermem trace gen zipf:alpha=0.9,objects=1M,requests=10M -o zipf.parquet
  tiermem trace gen ycsb-e:objects=100k,requests=1M,seed=7 -o ycsb-e.csv.zst
  tiermem trace gen 'mix:0.7*zipf(objects=1M)+0.3*loop(objects=10k),requests=5M' -o mix.csv
  tiermem trace gen 'uniform:objects=1k,requests=1k,size=lognormal(300,1.2)' -o -

A generator stands for its trace wherever a command takes a TRACE: a file is only needed for other programs.";

/// Options of `tiermem trace gen`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// The generator, such as zipf:alpha=0.99,objects=1M.
    #[arg(value_name = "SPEC", long_help = GENERATORS_HELP)]
    spec: Spec,
    #[command(flatten)]
    output: OutputArgs,
}

/// Writes it.
pub fn run(options: Options) -> Result<(), Failure> {
    let trace = TraceArgs::of(options.spec.to_string());
    sink::copy(&trace, &options.output, |_| Verdict::Keep)
}
