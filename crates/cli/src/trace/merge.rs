//! `tiermem trace merge`: several traces as one, in the order of time.

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use tiermem_trace::filter::{KeySpaces, Merge, MergeError, MergeOptions};
use tiermem_trace::{OptionalRow, OptionalSet, ReadOptions, Trace};

use super::sink::{OutputArgs, Sink};
use crate::failure::Failure;
use crate::source::{CountingBar, advise_on_trace, trace_argument};

const HELP: &str = "\
Examples:
  tiermem trace merge tenant-a.csv tenant-b.csv -o both.csv
  tiermem trace merge volume0.csv volume1.csv --key-spaces prefixed -o array.csv
  tiermem trace merge part-*.csv --keep-tenants -o whole.csv

Accesses of equal time come in the order of the inputs. The tenant becomes the number of the input, from 0.";

/// Options of `tiermem trace merge`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// The traces: files or generators.
    #[arg(value_name = "TRACE", required = true, value_parser = trace_argument)]
    traces: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
    /// Keep the tenants that the inputs have.
    #[arg(long)]
    keep_tenants: bool,
    /// How to treat equal keys of different inputs.
    #[arg(long, value_enum, default_value_t = Spaces::Shared)]
    key_spaces: Spaces,
    /// Skip up to N broken records of each trace.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_bad: u64,
    /// Format of all trace files, if it is not detected.
    #[arg(long, value_name = "FORMAT")]
    trace_format: Option<tiermem_trace::Format>,
    /// Address that is the key of memory traces: virtual, or physical if `tiermem record --physical` wrote it.
    #[arg(long, value_name = "WHICH", default_value = "virtual")]
    addresses: tiermem_trace::Addresses,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Spaces {
    /// They are the same key.
    Shared,
    /// The input's number is in the highest 16 bits; for keys below 2^48.
    Prefixed,
    /// Keys are hashed with the input's number; for any keys, but neighbours are lost.
    Hashed,
}

/// Writes it.
pub fn run(options: Options) -> Result<(), Failure> {
    let read = ReadOptions {
        format: options.trace_format,
        skip_bad: options.skip_bad,
        addresses: options.addresses,
        ..ReadOptions::default()
    };
    let open =
        |trace: &String| tiermem_trace::open_with(trace, &read).map_err(|error| advise_on_trace(&error));
    let traces = options.traces.iter().map(open).collect::<Result<Vec<Trace>, Failure>>()?;
    let bar = CountingBar::new(traces.iter().map(Trace::len_hint).sum());
    let keys = match options.key_spaces {
        Spaces::Shared => KeySpaces::Shared,
        Spaces::Prefixed => KeySpaces::Prefixed,
        Spaces::Hashed => KeySpaces::Hashed,
    };
    let explain = |error: MergeError| match error {
        MergeError::Trace(error) => advise_on_trace(&error),
        MergeError::Key { input, key } => Failure::failed(anyhow!(
            "{} has the key {key}, which leaves no room for the number of the input; use --key-spaces hashed",
            options.traces.get(input).map_or("an input", String::as_str)
        )),
        error @ MergeError::Inputs { .. } => Failure::usage(error),
    };
    let mut merge =
        Merge::new(traces, MergeOptions { keep_tenants: options.keep_tenants, keys }).map_err(explain)?;
    let mut sink = Sink::create(
        &options.output.output,
        &options.output.format,
        &options.traces.join(" "),
        OptionalSet::NONE,
    )?;
    for (access, number) in merge.by_ref().zip(0u64..) {
        sink.write(&access.map_err(explain)?, &OptionalRow::default())?;
        bar.moved_to(number);
    }
    sink.finish()?;
    bar.finish(merge.skipped());
    Ok(())
}
