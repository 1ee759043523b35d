//! `tiermem trace split`: one trace as several files.

use std::collections::BTreeMap;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::Nanos;
use tiermem_trace::OptionalSet;
use tiermem_trace::filter::Splitter;

use super::positive_count;
use super::sink::{self, FormatArgs, Sink};
use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::source::TraceArgs;

/// Files that may be open at a time: well below what a process is allowed.
const OPEN_MAX: usize = 256;
const FIELDS: &[&str] = &["part", "requests", "file"];

const HELP: &str = "\
Examples:
  tiermem trace split twitter_cluster52.csv.zst --parts 4 -o 'part-{}.parquet'
  tiermem trace split mix.csv --by-tenant -o 'tenant-{}.parquet'
  tiermem trace split twitter_cluster52.csv.zst --window 60s -o 'minute-{}.parquet'
  tiermem trace split twitter_cluster52.csv.zst --chunk 1M -o 'chunk-{}.parquet'

--parts divides the keys by their hash: all accesses of a key are in one part, and each part is a spatial sample of
the keys. So parts can be analysed separately (on several machines) and their curves averaged. It is the hash of
`tiermem trace filter --part`.

Parquet keeps the times of parts as they are, so that `tiermem trace merge --keep-tenants` undoes a split; text formats
are read with the first record at time 0.

Fields:
  part, file  the number of the part and its file
  requests    how many accesses it has";

/// Options of `tiermem trace split`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    by: By,
    /// The files to write, with {} where the number of the part goes.
    #[arg(short, long, value_name = "PATTERN", value_parser = pattern)]
    output: String,
    #[command(flatten)]
    output_format: FormatArgs,
    /// Output format of the list of files.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct By {
    /// One file per tenant.
    #[arg(long)]
    by_tenant: bool,
    /// One file per time window of this length, such as 60s.
    #[arg(long, value_name = "TIME", value_parser = window)]
    window: Option<Nanos>,
    /// One file per this many accesses.
    #[arg(long, value_name = "N", value_parser = positive_count)]
    chunk: Option<u64>,
    /// This many files, by the hash of the key.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=OPEN_MAX as u64))]
    parts: Option<u64>,
}

impl By {
    fn splitter(&self) -> Splitter {
        match (self.window, self.chunk, self.parts) {
            (Some(window), ..) => Splitter::Time(window.0),
            (_, Some(chunk), _) => Splitter::Count(chunk),
            (_, _, Some(parts)) => Splitter::Key(parts),
            _ => Splitter::Tenant,
        }
    }
}

fn pattern(text: &str) -> Result<String, String> {
    match text.matches("{}").count() {
        1 => Ok(text.to_owned()),
        _ => {
            Err("the output needs {} once, where the number of the part goes, such as part-{}.csv".to_owned())
        }
    }
}

fn window(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(Nanos(0)) => Err("a window is longer than 0".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// The files written so far.
struct Parts<'a> {
    options: &'a Options,
    optional: OptionalSet,
    open: BTreeMap<u64, Sink>,
    requests: BTreeMap<u64, u64>,
}

impl Parts<'_> {
    fn file(&self, part: u64) -> String {
        self.options.output.replace("{}", &part.to_string())
    }

    /// The open file of a part, made if there was none.
    fn sink(&mut self, part: u64) -> Result<&mut Sink, Failure> {
        if !self.open.contains_key(&part) {
            if self.requests.contains_key(&part) {
                return Err(Failure::failed(anyhow!(
                    "time goes back to part {part}, which is complete; sort the trace by time, or split it by --chunk"
                )));
            }
            if self.open.len() == OPEN_MAX {
                return Err(Failure::failed(anyhow!(
                    "there are more than {OPEN_MAX} parts; split by --parts N, or choose tenants with `tiermem trace filter --tenant`"
                )));
            }
            let (format, trace) = (&self.options.output_format, &self.options.trace.trace);
            let sink = Sink::create(&self.file(part), format, trace, self.optional)?;
            self.open.insert(part, sink);
        }
        *self.requests.entry(part).or_insert(0) += 1;
        self.open.get_mut(&part).ok_or_else(|| Failure::failed(anyhow!("part {part} is not open")))
    }

    /// Completes all open files.
    fn close(&mut self) -> Result<(), Failure> {
        while let Some((_, sink)) = self.open.pop_first() {
            sink.finish()?;
        }
        Ok(())
    }
}

/// Writes the parts and prints what they are.
pub fn run(options: Options) -> Result<(), Failure> {
    let splitter = options.by.splitter();
    let source = options.trace.open_with(OptionalSet::ALL)?;
    let optional = sink::kept(&options.output, &options.output_format, source.optional());
    let mut parts = Parts { options: &options, optional, open: BTreeMap::new(), requests: BTreeMap::new() };
    for (record, number) in source.records().zip(0u64..) {
        let access = record?;
        let part = splitter.part(number, &access);
        if splitter.is_in_order() && !parts.open.contains_key(&part) {
            parts.close()?;
        }
        parts.sink(part)?.write(&access, &source.optional_row())?;
    }
    parts.close()?;
    source.finish();
    let row = |(part, requests): (&u64, &u64)| {
        vec![Cell::Count(*part), Cell::Count(*requests), Cell::Text(parts.file(*part))]
    };
    let rows = parts.requests.iter().map(row).collect();
    output::print_rows(options.format, &Rows { fields: FIELDS, rows }).map_err(Failure::failed)
}
