//! Readers of trace files: plain or Zstandard-compressed, one sibling per format.
//!
//! Every reader streams: it holds one buffer, never the file. What a record of the format cannot be is an error
//! with the file, the place and the reason, and the reader stands at the next record afterwards.

mod oracle_general;
mod source;
mod twitter;

use std::io::BufRead;
use std::path::Path;
use std::str::FromStr;

pub use oracle_general::{OracleGeneral, RECORD_BYTES};
pub use source::Source;
pub use twitter::{LINE_BYTES_MAX, Twitter};

use crate::TraceError;
use crate::trace::{Extent, Trace};

/// The format of a trace file, apart from its compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text lines `time, object, size, next access` as cluster 52 of Twitter's cache traces is passed around.
    Twitter,
    /// libCacheSim's packed binary records.
    OracleGeneral,
}

impl Format {
    /// The names that [`FromStr`] takes.
    pub const NAMES: &'static str = "twitter, oracle-general";

    /// The format that a file's name speaks of, if any.
    fn from_name(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".zst").unwrap_or(&name);
        if name.contains("oraclegeneral") {
            Some(Format::OracleGeneral)
        } else if name.ends_with(".csv") {
            Some(Format::Twitter)
        } else {
            None
        }
    }

    /// The format that the first bytes of a file look like, if any.
    fn from_content(start: &[u8]) -> Option<Format> {
        let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_text = |byte: &u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t' | b'\r');
        if !line.is_empty() && line.len() <= LINE_BYTES_MAX && line.iter().all(is_text) {
            return Some(Format::Twitter);
        }
        // The size and the high half of the next access leave zero bytes in nearly every binary record.
        let records = start.chunks_exact(RECORD_BYTES).take(64);
        let plausible = |record: &[u8]| record[12..16].contains(&0);
        (records.len() > 0 && records.clone().all(plausible)).then_some(Format::OracleGeneral)
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "twitter" => Ok(Format::Twitter),
            "oracle-general" => Ok(Format::OracleGeneral),
            _ => Err(format!("there is no trace format `{text}`; the formats are {}", Format::NAMES)),
        }
    }
}

/// How a file is to be read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The format; `None` guesses from the name, then from the content.
    pub format: Option<Format>,
    /// How many broken records are passed over, and counted, before one ends the trace.
    pub skip_bad: u64,
}

/// Opens the trace in the file `path`.
pub fn open_file(path: &Path, options: &ReadOptions) -> Result<Trace, TraceError> {
    let mut source = Source::open(path)?;
    let start =
        source.fill_buf().map_err(|error| source::read_error(path, crate::Place::Record(0), error))?;
    if start.is_empty() {
        return Err(TraceError::Empty { path: path.to_owned() });
    }
    let format = options
        .format
        .or_else(|| Format::from_name(path))
        .or_else(|| Format::from_content(start))
        .ok_or_else(|| TraceError::UnknownFormat { path: path.to_owned() })?;
    let bytes = Extent::Bytes { total: source.file_bytes(), read: source.counter() };
    Ok(match format {
        Format::Twitter => Trace::new(Box::new(Twitter::new(path, source)), options.skip_bad, bytes),
        Format::OracleGeneral => {
            let extent = match source.is_compressed() || source.file_bytes() == 0 {
                true => bytes,
                false => Extent::Records(source.file_bytes() / RECORD_BYTES as u64),
            };
            Trace::new(Box::new(OracleGeneral::new(path, source)), options.skip_bad, extent)
        }
    })
}
