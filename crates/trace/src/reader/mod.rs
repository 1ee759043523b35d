//! Readers of trace files, plain or compressed (gz, zst, xz, bz2): one sibling per format, listed in one table.
//!
//! Every reader streams: it holds one buffer, never the file. A record that its format does not allow is an error with the file,
//! the place and the reason, and the reader stands at the next record afterwards.

mod block;
pub(crate) mod core;
mod csv;
mod csv_columns;
mod format;
mod kv;
mod memory;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "parquet")]
mod recording_journal;
mod wanted;

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

pub use self::core::info::Format;
pub use csv_columns::CsvColumns;
pub use memory::lackey::FETCHES;
pub use wanted::{Addresses, Fields};

use self::core::info::{Open, Opened};
use self::core::lines::Lines;
use self::core::source::{Source, read_error};
use crate::TraceError;
use crate::optional::OptionalSet;
use crate::trace::{Extent, Trace};

/// How a file is to be read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The format; `None` guesses from the name, then from the content.
    pub format: Option<Format>,
    /// How many broken records are passed over, and counted, before one ends the trace.
    pub skip_bad: u64,
    /// What is needed of each record. Formats that store columns apart read no others; what is not asked for may be
    /// filled in or left at its default.
    pub fields: Fields,
    /// Which columns of a text file say what, for the format `csv`; its header says so otherwise. Given, they imply that
    /// format.
    pub columns: Option<CsvColumns>,
    /// Which address of a memory trace is its key. Physical ones are in Parquet files alone; of other traces they are an
    /// error.
    pub addresses: Addresses,
    /// Which of the columns that a trace may have are read; of those it does not have nothing comes.
    pub optional: OptionalSet,
}

/// Opens the trace in the file `path`.
pub fn open_file(path: &Path, options: &ReadOptions) -> Result<Trace, TraceError> {
    let mut source = Source::open(path)?;
    let start =
        source.fill_buf().map_err(|error| read_error(path, crate::RecordPosition::Record(0), error))?;
    if start.is_empty() {
        return Err(TraceError::Empty { path: path.to_owned() });
    }
    let given = options.format.or(options.columns.as_ref().map(|_| Format::CSV));
    let format = given
        .or_else(|| Format::guess(path, start))
        .ok_or_else(|| TraceError::UnknownFormat { path: path.to_owned(), formats: Format::names() })?;
    let opened = open_source(path, source, format, options)?;
    Ok(Trace::of(opened.records, options.skip_bad, opened.extent))
}

/// Reads a trace of a known format from bytes, compressed or not; `name` stands in errors.
pub fn read_bytes(
    name: &Path,
    bytes: Vec<u8>,
    options: &ReadOptions,
    format: Format,
) -> Result<Trace, TraceError> {
    let opened = match format.opener() {
        #[cfg(feature = "parquet")]
        Open::Columnar { open_bytes, .. } => open_bytes(name, bytes, options)?,
        _ => open_source(name, Source::of_bytes(name, bytes)?, format, options)?,
    };
    Ok(Trace::of(opened.records, options.skip_bad, opened.extent))
}

/// Reads a trace of lines while they are written, from a pipe for instance: what it has said so far is handed out before
/// it is asked to wait for more. `name` stands in errors.
pub fn read_stream(
    name: &Path,
    input: impl BufRead + Send + 'static,
    format: Format,
    options: &ReadOptions,
) -> Result<Trace, TraceError> {
    let (Open::Text(make) | Open::TextIf(make, _)) = format.opener() else {
        let reason =
            format!("the format {} is not one of lines, and cannot be read as it is written", format.name());
        return Err(TraceError::Form { path: name.to_owned(), reason });
    };
    let lines = Lines::new(name, input, make(options.columns.as_ref()));
    let extent = Extent::Bytes { total: 0, read: Arc::default() };
    Ok(Trace::of(Box::new(lines), options.skip_bad, extent))
}

fn open_source(
    path: &Path,
    source: Source,
    format: Format,
    options: &ReadOptions,
) -> Result<Opened, TraceError> {
    #[cfg(feature = "parquet")]
    let may_have_frames = format == Format::PARQUET;
    #[cfg(not(feature = "parquet"))]
    let may_have_frames = false;
    if options.addresses == Addresses::Physical && !may_have_frames {
        return Err(TraceError::Form { path: path.to_owned(), reason: Addresses::NO_FRAMES.to_owned() });
    }
    match format.opener() {
        Open::Text(make) | Open::TextIf(make, _) => {
            let extent = Extent::Bytes { total: source.file_bytes(), read: source.counter() };
            Ok(Opened { records: Box::new(Lines::new(path, source, make(options.columns.as_ref()))), extent })
        }
        Open::Binary { open, .. } => Ok(open(path, source)),
        #[cfg(feature = "parquet")]
        Open::Columnar { open, .. } => open(path, options),
    }
}
