//! `tiermem trace`: access traces generated, converted, measured, shown, split and merged.

mod convert;
mod filter;
mod generate;
mod head;
mod merge;
mod records;
mod show;
mod sink;
mod split;
mod stat;
mod stat_table;

use clap::Subcommand;

use crate::failure::Failure;

/// For `tiermem trace --help`.
pub const EXAMPLES: &str = "\
Examples:
  tiermem trace stat twitter_cluster52.csv.zst
  tiermem trace gen ycsb-b:objects=100k,requests=1M -o ycsb-b.parquet
  tiermem trace filter ycsb-b.parquet --op get --sample 0.1 -o sampled.parquet
  tiermem trace split sampled.parquet --parts 4 -o 'part-{}.parquet'";

/// What to do with traces.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a synthetic trace to a file.
    Gen(generate::Options),
    /// Write a trace in another format.
    Convert(convert::Options),
    /// Measure a trace in one pass: keys, sizes, reuse, popularity, locality.
    Stat(stat::Options),
    /// Print the records of a trace.
    Show(show::Options),
    /// Print the first records of a trace.
    Head(head::Options),
    /// Write the part of a trace that meets conditions.
    Filter(filter::Options),
    /// Write several traces as one, in the order of time.
    Merge(merge::Options),
    /// Write a trace as several files: by tenant, time, count or key.
    Split(split::Options),
}

/// Runs one of them.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Gen(options) => generate::run(options),
        Command::Convert(options) => convert::run(options),
        Command::Stat(options) => stat::run(options),
        Command::Show(options) => show::run(options),
        Command::Head(options) => head::run(options),
        Command::Filter(options) => filter::run(options),
        Command::Merge(options) => merge::run(options),
        Command::Split(options) => split::run(options),
    }
}

/// A count such as `500`, `100k` or `2M`.
pub fn count(text: &str) -> Result<u64, String> {
    let wanted = "a count is a whole number, perhaps with k, M or G behind it, such as 100k";
    tiermem_trace::parse_count(text).ok_or_else(|| wanted.to_owned())
}

/// A count that is not 0.
pub fn positive_count(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("0 is too few".to_owned()),
        count => Ok(count),
    }
}
