//! Pairs from comma-separated values.

use std::path::{Path, PathBuf};

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use super::{FIELD, KEY, Pair, TTL, VALUE, columns};
use crate::reader::core::source::{Source, read_error};
use crate::{BadRecord, RecordPosition, TraceError};

/// Opens a file and reads its header.
pub(super) fn open(
    path: &Path,
) -> Result<impl Iterator<Item = Result<Pair, TraceError>> + use<>, TraceError> {
    let input = Source::open(path)?.into_input();
    let mut reader = ReaderBuilder::new().flexible(true).from_reader(input);
    let header = reader.byte_headers().map_err(|error| failed(path, RecordPosition::Line(1), error))?.clone();
    if header.is_empty() {
        return Err(TraceError::Empty { path: path.to_owned() });
    }
    let mark = b"\xef\xbb\xbf";
    let names = header.iter().map(|name| name.strip_prefix(mark).unwrap_or(name));
    let places = columns(path, names)?;
    Ok(Rows {
        path: path.to_owned(),
        reader,
        places,
        fields: header.len(),
        record: ByteRecord::new(),
        ended: false,
    })
}

struct Rows<R> {
    path: PathBuf,
    reader: Reader<R>,
    places: [Option<usize>; 4],
    fields: usize,
    record: ByteRecord,
    ended: bool,
}

fn failed(path: &Path, place: RecordPosition, error: csv::Error) -> TraceError {
    let source = match error.into_kind() {
        ErrorKind::Io(error) => error,
        other => std::io::Error::other(format!("{other:?}")),
    };
    read_error(path, place, source)
}

impl<R: std::io::Read> Rows<R> {
    fn pair(&self, line: u64) -> Result<Pair, BadRecord> {
        if self.record.len() != self.fields {
            return Err(BadRecord::Fields { found: self.record.len(), wanted: self.fields });
        }
        let text = |column: usize| self.places[column].and_then(|at| self.record.get(at)).unwrap_or_default();
        let ttl_s = match text(TTL).trim_ascii() {
            b"" => None,
            digits => {
                let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
                let shown = digits[..digits.len().min(32)].escape_ascii().to_string();
                Some(number.ok_or(BadRecord::NotANumber { field: "ttl_s", text: shown })?)
            }
        };
        Ok(Pair {
            number: line,
            key: text(KEY).to_vec(),
            field: Some(text(FIELD)).filter(|field| !field.is_empty()).map(<[u8]>::to_vec),
            value: text(VALUE).to_vec(),
            ttl_s: ttl_s.filter(|ttl_s| *ttl_s > 0),
        })
    }
}

impl<R: std::io::Read> Iterator for Rows<R> {
    type Item = Result<Pair, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let before = self.reader.position().line();
        match self.reader.read_byte_record(&mut self.record) {
            Ok(true) => {}
            Ok(false) => {
                self.ended = true;
                return None;
            }
            Err(error) => {
                self.ended = true;
                return Some(Err(failed(&self.path, RecordPosition::Line(before), error)));
            }
        }
        let line = self.record.position().map_or(before, csv::Position::line);
        let bad = |reason| TraceError::Record {
            path: self.path.clone(),
            place: RecordPosition::Line(line),
            reason,
        };
        Some(self.pair(line).map_err(bad))
    }
}
