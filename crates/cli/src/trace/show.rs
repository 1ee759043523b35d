//! `tiermem trace show`: the records of a trace.

use std::io::{self, BufWriter};

use clap::Args;
use tiermem_trace::OptionalSet;

use super::count;
use super::records::RecordWriter;
use crate::failure::Failure;
use crate::output::Format;
use crate::source::TraceArgs;

/// For the help of `show` and `head`.
pub const FIELDS_HELP: &str = "\
Fields:
  time_ns     nanoseconds since the start of the trace
  op          get, set, del, read, write, load, store or scan
  key         the key, its hash where the trace has names, a byte offset or an address
  size        bytes of the value or of the request
  tenant      a client, a database or a volume; 0 where the trace has none
  key_size    bytes of the key's name; 0 where it is not known
  ttl_s       seconds the value may live; 0 where there is no limit or none is known
and of traces that have them:
  frame       the physical frame of 4096 bytes in which the address lies
  node        the memory node where the page lies; 255 where that is not known
  level       where the access was answered: 0 unknown, 1 cache, 2 local memory, 3 remote memory
  pc          the address of the instruction";

const HELP: &str = "\
Examples:
  tiermem trace show twitter_cluster52.csv.zst --skip 1M --requests 20
  tiermem trace show ycsb-e:objects=100,requests=1000 --format json";

/// Options of `tiermem trace show`.
#[derive(Debug, Args)]
#[command(after_help = format!("{HELP}\n\n{FIELDS_HELP}"))]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    /// Skip this many records at the start; --requests counts from there.
    #[arg(long, value_name = "N", value_parser = count, default_value = "0")]
    skip: u64,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Prints them.
pub fn run(options: Options) -> Result<(), Failure> {
    let limit = options.trace.reading.requests;
    // What is left out has to be read as well.
    let requests = limit.map(|limit| limit.saturating_add(options.skip));
    print(&options.trace.with_requests(requests), options.skip, options.format)
}

/// Prints the records of a trace behind the first `skip`.
pub fn print(trace: &TraceArgs, skip: u64, format: Format) -> Result<(), Failure> {
    let failed = |error| Failure::writing("the records", error);
    let source = trace.open_with(OptionalSet::ALL)?;
    let out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut writer = RecordWriter::new(out, format, source.optional()).map_err(failed)?;
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    for record in source.records().skip(skip) {
        match record {
            Ok(access) => writer.write(&access, &source.optional_row()).map_err(failed)?,
            Err(failure) => {
                // What could be read is printed, and then what could not.
                writer.finish().map_err(failed)?;
                return Err(failure);
            }
        }
    }
    writer.finish().map_err(failed)?;
    source.finish();
    Ok(())
}
