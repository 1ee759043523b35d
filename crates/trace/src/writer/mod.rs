//! Writers of trace files: one sibling per format.
//!
//! A file is written under a temporary name beside its own and gets its name when it is complete, so that no reader finds half a
//! trace. A pipe or a device is written to as it is. The ending tells the compression: `.gz`, `.zst`, or none.

mod csv;
mod oracle_general;
pub(crate) mod output;
#[cfg(feature = "parquet")]
mod parquet;

use std::path::Path;

use tiermem_base::Access;

use crate::optional::{OptionalColumns, OptionalSet};
use crate::{Format, TraceError};

/// Takes the records of one trace, in order.
///
/// [`Self::finish`] must be called: a writer that is dropped without it leaves no file behind.
pub trait Writer {
    /// Writes `records` behind those before. After an error the writer is of no more use.
    fn write(&mut self, records: &[Access]) -> Result<(), TraceError>;

    /// Writes `records` with their optional columns, each as long as there are records. A file takes the columns that it was
    /// begun with ([`WriteOptions::optional`]), all of them and no others.
    fn write_with(&mut self, records: &[Access], columns: &OptionalColumns) -> Result<(), TraceError>;

    /// Completes the file and gives it its name.
    fn finish(self: Box<Self>) -> Result<(), TraceError>;
}

/// How a trace is to be written.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// The format; `None`: by the file's name: `.parquet`, `oracleGeneral`, else csv.
    pub format: Option<Format>,
    /// The source of the trace, such as the TRACE argument; formats with room for it keep it.
    pub source: String,
    /// The optional columns that each record comes with ([`Writer::write_with`]). Only Parquet has room for them.
    pub optional: OptionalSet,
}

/// Whether [`create`] can write the format.
pub fn can_write(format: Format) -> bool {
    #[cfg(feature = "parquet")]
    if format == Format::PARQUET {
        return true;
    }
    format == Format::CSV || format == Format::ORACLE_GENERAL
}

/// The names of the formats that can be written, with commas between them.
pub fn names() -> String {
    Format::all().filter(|format| can_write(*format)).map(Format::name).collect::<Vec<_>>().join(", ")
}

/// Starts a trace file at `path`.
///
/// Formats keep what they have room for: `csv` and `parquet` all fields of a record, `oracle-general` the time in whole
/// seconds, the key and the size, and it adds the next access. Fails if the file cannot be made or the format cannot
/// be written.
///
/// ```
/// use tiermem_trace::writer::{WriteOptions, create};
/// # fn main() -> Result<(), tiermem_trace::TraceError> {
/// # let dir = std::env::temp_dir().join(format!("tiermem-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// let path = dir.join("zipf.csv.zst");
/// let mut trace = tiermem_trace::open("zipf:alpha=0.99,objects=1000,requests=10000")?;
/// let mut writer = create(&path, &WriteOptions::default())?;
/// let mut batch = Vec::new();
/// while trace.next_batch(&mut batch, 4096)? > 0 {
///     writer.write(&batch)?;
///     batch.clear();
/// }
/// writer.finish()?;
/// assert_eq!(tiermem_trace::open(path.to_str().unwrap())?.count(), 10000);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
pub fn create(path: &Path, options: &WriteOptions) -> Result<Box<dyn Writer>, TraceError> {
    let format = options.format.unwrap_or_else(|| format_of_name(path));
    if !can_write(format) {
        let reason = format!("the format {} can only be read; those to write are {}", format.name(), names());
        return Err(TraceError::Form { path: path.to_owned(), reason });
    }
    #[cfg(feature = "parquet")]
    if format == Format::PARQUET {
        return Ok(Box::new(parquet::ParquetWriter::create(path, options)?));
    }
    if !options.optional.is_empty() {
        let (name, columns) = (format.name(), options.optional);
        let reason = format!("the format {name} has no room for the columns {columns}; parquet has");
        return Err(TraceError::Form { path: path.to_owned(), reason });
    }
    if format == Format::ORACLE_GENERAL {
        return Ok(Box::new(oracle_general::OracleGeneralWriter::create(path)?));
    }
    Ok(Box::new(csv::CsvWriter::create(path)?))
}

/// Whether a file of this format, or else of this name, has room for optional columns.
pub fn has_room_for(format: Option<Format>, path: &Path) -> bool {
    format.unwrap_or_else(|| format_of_name(path)).has_optional_columns()
}

/// For formats without room for optional columns: [`create`] has refused to begin such a file with them.
fn without_columns(path: &Path, columns: &OptionalColumns) -> Result<(), TraceError> {
    match columns.set() {
        none if none.is_empty() => Ok(()),
        some => {
            let what = format!("the file was begun without the columns {some}");
            Err(output::write_error(path)(std::io::Error::other(what)))
        }
    }
}

fn format_of_name(path: &Path) -> Format {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    #[cfg(feature = "parquet")]
    if name.ends_with(".parquet") {
        return Format::PARQUET;
    }
    if name.contains("oraclegeneral") { Format::ORACLE_GENERAL } else { Format::CSV }
}
