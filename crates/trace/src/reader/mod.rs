//! Readers of trace files, plain or compressed (gz, zst, xz, bz2): one sibling per format, listed in one table.
//!
//! Every reader streams: it holds one buffer, never the file. What a record of the format cannot be is an error
//! with the file, the place and the reason, and the reader stands at the next record afterwards.

mod block;
mod core;
mod csv;
mod format;
mod kv;
mod memory;
#[cfg(feature = "parquet")]
mod parquet;

use std::io::BufRead;
use std::ops::BitOr;
use std::path::Path;

pub use csv::CsvColumns;
pub use format::Format;

use self::core::fixed::{Fixed, FixedFormat};
use self::core::lines::Lines;
use self::core::source::{Source, read_error};
use crate::TraceError;
use crate::trace::{Extent, Records, Trace};
use format::Open;

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
}

/// Fields of [`tiermem_base::Access`] that a consumer needs; the key always belongs to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields(u8);

impl Fields {
    /// The key alone.
    pub const KEY: Fields = Fields(0);
    /// The time.
    pub const TIME: Fields = Fields(1);
    /// The operation.
    pub const OP: Fields = Fields(2);
    /// The size.
    pub const SIZE: Fields = Fields(4);
    /// The tenant.
    pub const TENANT: Fields = Fields(8);
    /// The time to live.
    pub const TTL: Fields = Fields(16);
    /// The key's size.
    pub const KEY_SIZE: Fields = Fields(32);
    /// Everything.
    pub const ALL: Fields = Fields(63);

    /// Whether all of `other` are among these.
    pub const fn contains(self, other: Fields) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Default for Fields {
    fn default() -> Self {
        Fields::ALL
    }
}

impl BitOr for Fields {
    type Output = Fields;

    fn bitor(self, other: Fields) -> Fields {
        Fields(self.0 | other.0)
    }
}

/// Opens the trace in the file `path`.
pub fn open_file(path: &Path, options: &ReadOptions) -> Result<Trace, TraceError> {
    let mut source = Source::open(path)?;
    let start = source.fill_buf().map_err(|error| read_error(path, crate::Place::Record(0), error))?;
    if start.is_empty() {
        return Err(TraceError::Empty { path: path.to_owned() });
    }
    let given = options.format.or(options.columns.as_ref().map(|_| Format::CSV));
    let format = given
        .or_else(|| Format::guess(path, start))
        .ok_or_else(|| TraceError::UnknownFormat { path: path.to_owned() })?;
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

fn open_source(
    path: &Path,
    source: Source,
    format: Format,
    options: &ReadOptions,
) -> Result<Opened, TraceError> {
    match format.opener() {
        Open::Text(make) | Open::TextIf(make, _) => {
            let extent = Extent::Bytes { total: source.file_bytes(), read: source.counter() };
            Ok(Opened { records: Box::new(Lines::new(path, source, make(options))), extent })
        }
        Open::Binary { open, .. } => Ok(open(path, source)),
        #[cfg(feature = "parquet")]
        Open::Columnar { open, .. } => open(path, options),
    }
}

/// An opened file.
pub(crate) struct Opened {
    pub records: Box<dyn Records>,
    pub extent: Extent,
}

/// Opens a file of records of `N` bytes, whose number follows from its length if it is plain.
fn open_fixed<F: FixedFormat<N> + 'static, const N: usize>(path: &Path, source: Source, format: F) -> Opened {
    let extent = match source.is_compressed() || source.file_bytes() == 0 {
        true => Extent::Bytes { total: source.file_bytes(), read: source.counter() },
        false => Extent::Records(source.file_bytes() / N as u64),
    };
    Opened { records: Box::new(Fixed::new(path, source, format)), extent }
}
