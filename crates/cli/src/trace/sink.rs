//! Sink of records: a file or standard output, and the loop that writes them there.

use std::io::{self, BufWriter, StdoutLock};
use std::path::Path;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::Access;
use tiermem_trace::filter::Verdict;
use tiermem_trace::writer::{self, WriteOptions, Writer};
use tiermem_trace::{Format as TraceFormat, OptionalColumns, OptionalRow, OptionalSet, TraceError};

use super::records::RecordWriter;
use crate::failure::Failure;
use crate::output::Format;
use crate::source::TraceArgs;

/// Records that are handed to a writer at once.
const BATCH_RECORDS: usize = 4096;

/// Where to.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// The file to write; - writes csv to standard output. Compressed if it ends in .gz or .zst.
    #[arg(short, long, value_name = "FILE")]
    pub output: String,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// In which format.
#[derive(Debug, Args)]
pub struct FormatArgs {
    /// Format to write [default: by the file's name, otherwise csv].
    #[arg(long, value_name = "FORMAT", value_parser = output_format, long_help = format_help())]
    pub output_format: Option<TraceFormat>,
}

fn output_format(text: &str) -> Result<TraceFormat, String> {
    let format: TraceFormat = text.parse()?;
    match writer::can_write(format) {
        true => Ok(format),
        false => Err(format!("{text} can only be read; the formats to write are {}", writer::names())),
    }
}

fn format_help() -> String {
    format!(
        "The format to write: {}. Without it, the file's name decides, and if it is silent, csv",
        writer::names()
    )
}

/// An open output.
pub enum Sink {
    /// Standard output, as csv.
    Printed(RecordWriter<BufWriter<StdoutLock<'static>>>),
    /// A file, which appears when it is complete.
    File {
        /// Its writer.
        writer: Box<dyn Writer>,
        /// Records that it has not been given yet.
        batch: Vec<Access>,
        /// The optional columns that the file has.
        columns: OptionalColumns,
    },
}

impl Sink {
    /// Opens the file, or standard output for `-`. `source` is the origin of the records, `optional`
    /// their columns beside the standard fields; only those that are [`kept`] are written.
    pub fn create(
        name: &str,
        format: &FormatArgs,
        source: &str,
        optional: OptionalSet,
    ) -> Result<Sink, Failure> {
        if name != "-" {
            let options = WriteOptions { format: format.output_format, source: source.to_owned(), optional };
            let writer = writer::create(Path::new(name), &options).map_err(write_failure)?;
            let batch = Vec::with_capacity(BATCH_RECORDS);
            return Ok(Sink::File { writer, batch, columns: OptionalColumns::with(optional) });
        }
        if format.output_format.is_some_and(|format| format != TraceFormat::CSV) {
            return Err(Failure::usage(anyhow!(
                "standard output takes csv only; name a file for other formats"
            )));
        }
        let out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        RecordWriter::new(out, Format::Csv, OptionalSet::NONE).map(Sink::Printed).map_err(print_failure)
    }

    /// Writes a record, and of `row` the columns that it was opened with.
    #[inline]
    pub fn write(&mut self, access: &Access, row: &OptionalRow) -> Result<(), Failure> {
        match self {
            Sink::Printed(writer) => writer.write(access, row).map_err(print_failure),
            Sink::File { writer, batch, columns } => {
                batch.push(*access);
                columns.push(row);
                if batch.len() < BATCH_RECORDS {
                    return Ok(());
                }
                let written = writer.write_with(batch, columns).map_err(write_failure);
                batch.clear();
                columns.clear();
                written
            }
        }
    }

    /// Completes the output.
    pub fn finish(self) -> Result<(), Failure> {
        match self {
            Sink::Printed(writer) => writer.finish().map_err(print_failure),
            Sink::File { mut writer, batch, columns } => {
                writer.write_with(&batch, &columns).and_then(|()| writer.finish()).map_err(write_failure)
            }
        }
    }
}

fn print_failure(error: io::Error) -> Failure {
    Failure::writing("the trace", error)
}

fn write_failure(error: TraceError) -> Failure {
    match error {
        TraceError::Write { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => Failure::ReaderGone,
        error => Failure::failed(error),
    }
}

/// The optional columns for which an output has room. Dropped columns are reported.
pub fn kept(name: &str, format: &FormatArgs, optional: OptionalSet) -> OptionalSet {
    if optional.is_empty() || name != "-" && writer::has_room_for(format.output_format, Path::new(name)) {
        return optional;
    }
    eprintln!(
        "tiermem: {name} has no room for the columns {optional}, which are left out; a .parquet file has"
    );
    OptionalSet::NONE
}

/// Writes what `judge` keeps of a trace.
pub fn copy(
    trace: &TraceArgs,
    output: &OutputArgs,
    mut judge: impl FnMut(&Access) -> Verdict,
) -> Result<(), Failure> {
    let source = trace.open_with(OptionalSet::ALL)?;
    let optional = kept(&output.output, &output.format, source.optional());
    let mut sink = Sink::create(&output.output, &output.format, &trace.trace, optional)?;
    for record in source.records() {
        let access = record?;
        match judge(&access) {
            Verdict::Keep => sink.write(&access, &source.optional_row())?,
            Verdict::Drop => (),
            Verdict::End => break,
        }
    }
    sink.finish()?;
    source.finish();
    Ok(())
}
