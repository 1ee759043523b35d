//! Keys with their values, to be put into a store: rows of a CSV or Parquet file.
//!
//! Columns are told by their names, in any order; others are not read.
//!
//! | column | |
//! | --- | --- |
//! | `key` | needed: the key |
//! | `value` | needed: the value, or the field's value |
//! | `ttl_s` | seconds to live; empty, null and 0 are for ever |
//! | `field` | a field of the hash `key`; empty or null: the value is a string |
//!
//! CSV is RFC 4180 with a header line: fields may be quoted, and quoted ones may hold line ends. It may be compressed as
//! traces may be. In Parquet `key`, `value` and `field` may be strings, bytes or integers; integers become decimal digits.

mod csv_rows;
mod parquet_rows;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::TraceError;

/// A row: a key with its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// Where it stands: the line of a CSV file (behind one that ends in CRLF, the number of that), the row of a Parquet
    /// file, counted from 1.
    pub number: u64,
    /// The key.
    pub key: Vec<u8>,
    /// The field of the hash; `None` for a string.
    pub field: Option<Vec<u8>>,
    /// The value.
    pub value: Vec<u8>,
    /// Seconds to live.
    pub ttl_s: Option<u64>,
}

/// The form of a file of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairFormat {
    /// Comma-separated values.
    Csv,
    /// Columns.
    Parquet,
}

/// The rows of a file. After an error of one row ([`TraceError::Record`]) the rows go on; after any other they end.
pub struct Pairs {
    rows: Box<dyn Iterator<Item = Result<Pair, TraceError>>>,
    /// Rows of the file, where it says so.
    rows_in_file: Option<u64>,
}

impl Pairs {
    /// Opens a file; without a format it is told by the first bytes.
    ///
    /// # Errors
    /// When it cannot be read, or has no columns `key` and `value`.
    pub fn open(path: &Path, format: Option<PairFormat>) -> Result<Self, TraceError> {
        let failed = |source| TraceError::Open { path: path.to_owned(), source };
        let format = match format {
            Some(format) => format,
            None => {
                let mut start = Vec::new();
                File::open(path).map_err(failed)?.take(4).read_to_end(&mut start).map_err(failed)?;
                if start == b"PAR1" { PairFormat::Parquet } else { PairFormat::Csv }
            }
        };
        Ok(match format {
            PairFormat::Csv => Pairs { rows: Box::new(csv_rows::open(path)?), rows_in_file: None },
            PairFormat::Parquet => {
                let (rows, count) = parquet_rows::open(path)?;
                Pairs { rows: Box::new(rows), rows_in_file: Some(count) }
            }
        })
    }

    /// Rows of the file, where it says so.
    pub fn rows_in_file(&self) -> Option<u64> {
        self.rows_in_file
    }
}

impl Iterator for Pairs {
    type Item = Result<Pair, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.next()
    }
}

/// The four columns.
const KEY: usize = 0;
const VALUE: usize = 1;
const TTL: usize = 2;
const FIELD: usize = 3;
const NAMES: [&str; 4] = ["key", "value", "ttl_s", "field"];

/// Where the columns stand among `names`, by number.
fn columns<'a>(path: &Path, names: impl Iterator<Item = &'a [u8]>) -> Result<[Option<usize>; 4], TraceError> {
    let form = |reason: String| TraceError::Form { path: path.to_owned(), reason };
    let mut places = [None; 4];
    let mut seen = Vec::new();
    for (at, name) in names.enumerate() {
        let name = String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase();
        if let Some(column) = NAMES.iter().position(|known| *known == name)
            && places[column].replace(at).is_some()
        {
            return Err(form(format!("there are two columns `{name}`")));
        }
        seen.push(name);
    }
    match [KEY, VALUE].into_iter().find(|column| places[*column].is_none()) {
        None => Ok(places),
        Some(column) => {
            Err(form(format!("there is no column `{}`; the columns are {}", NAMES[column], seen.join(", "))))
        }
    }
}
