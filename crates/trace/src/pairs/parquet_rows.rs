//! Pairs from Parquet.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::Type;

use super::{FIELD, KEY, NAMES, Pair, TTL, VALUE, columns};
use crate::reader::core::source::read_error;
use crate::{BadRecord, RecordPosition, TraceError};

type Opened = (Rows, u64);

/// Opens a file; also says how many rows it has.
pub(super) fn open(path: &Path) -> Result<Opened, TraceError> {
    let form = |reason: String| TraceError::Form { path: path.to_owned(), reason };
    let file = File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    let reader = SerializedFileReader::new(file).map_err(|error| form(error.to_string()))?;
    let metadata = reader.metadata().file_metadata();
    let rows = u64::try_from(metadata.num_rows()).unwrap_or(0);
    let schema = metadata.schema();
    let fields = schema.get_fields();
    columns(path, fields.iter().map(|field| field.name().as_bytes()))?;
    // Only these are decoded. They keep the order in which they stand in the file.
    let known = |field: &&Arc<Type>| NAMES.contains(&field.name().to_ascii_lowercase().as_str());
    let wanted: Vec<Arc<Type>> = fields.iter().filter(known).cloned().collect();
    if let Some(nested) = wanted.iter().find(|field| !field.is_primitive()) {
        return Err(form(format!("the column `{}` is nested", nested.name())));
    }
    let places = columns(path, wanted.iter().map(|field| field.name().as_bytes()))?;
    let projection = Type::group_type_builder(schema.name())
        .with_fields(wanted)
        .build()
        .map_err(|error| form(error.to_string()))?;
    let rows_in_order = RowIter::from_file_into(Box::new(reader))
        .project(Some(projection))
        .map_err(|error| form(error.to_string()))?;
    Ok((Rows { path: path.to_owned(), rows: rows_in_order, places, number: 0, ended: false }, rows))
}

pub(super) struct Rows {
    path: PathBuf,
    rows: RowIter<'static>,
    places: [Option<usize>; 4],
    number: u64,
    ended: bool,
}

/// A column's value as bytes; `None` for null.
fn bytes(field: &Field, name: &'static str) -> Result<Option<Vec<u8>>, BadRecord> {
    Ok(Some(match field {
        Field::Null => return Ok(None),
        Field::Str(text) => text.as_bytes().to_vec(),
        Field::Bytes(bytes) => bytes.data().to_vec(),
        Field::Byte(number) => number.to_string().into_bytes(),
        Field::Short(number) => number.to_string().into_bytes(),
        Field::Int(number) => number.to_string().into_bytes(),
        Field::Long(number) => number.to_string().into_bytes(),
        Field::UByte(number) => number.to_string().into_bytes(),
        Field::UShort(number) => number.to_string().into_bytes(),
        Field::UInt(number) => number.to_string().into_bytes(),
        Field::ULong(number) => number.to_string().into_bytes(),
        other => {
            let text = format!("`{name}` = {other}").chars().take(64).collect();
            return Err(BadRecord::Malformed { wanted: "a string, bytes or an integer", text });
        }
    }))
}

impl Rows {
    fn pair(&self, row: &Row) -> Result<Pair, BadRecord> {
        let columns: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
        let column = |column: usize| match self.places[column].and_then(|at| columns.get(at)) {
            Some(field) => bytes(field, NAMES[column]),
            None => Ok(None),
        };
        let needed = |it: usize| {
            let missing =
                || BadRecord::Malformed { wanted: "a value", text: format!("`{}` = null", NAMES[it]) };
            column(it)?.ok_or_else(missing)
        };
        let ttl_s = match column(TTL)? {
            None => None,
            Some(digits) => {
                let text = String::from_utf8_lossy(&digits).into_owned();
                Some(text.parse::<u64>().map_err(|_| BadRecord::NotANumber { field: "ttl_s", text })?)
            }
        };
        Ok(Pair {
            number: self.number,
            key: needed(KEY)?,
            field: column(FIELD)?.filter(|field| !field.is_empty()),
            value: needed(VALUE)?,
            ttl_s: ttl_s.filter(|ttl_s| *ttl_s > 0),
        })
    }
}

impl Iterator for Rows {
    type Item = Result<Pair, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let row = match self.rows.next()? {
            Ok(row) => row,
            Err(error) => {
                self.ended = true;
                let error = std::io::Error::other(error.to_string());
                return Some(Err(read_error(&self.path, RecordPosition::Record(self.number), error)));
            }
        };
        self.number += 1;
        let place = RecordPosition::Record(self.number);
        let bad = |reason| TraceError::Record { path: self.path.clone(), place, reason };
        Some(self.pair(&row).map_err(bad))
    }
}
