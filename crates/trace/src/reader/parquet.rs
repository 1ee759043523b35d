//! The trace form as Parquet: columns of [`crate::parquet_form`], told by their names.
//!
//! Files of other tools will do as long as they have a column `key` of integers. Columns may stand in any order, be of other
//! integer types, be optional (a null is the default) or be missing; `op` may be a string or a code. Only the columns
//! that are needed are read. Memory holds one page of each.

use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::{ChunkReader, FileReader};
use parquet::file::serialized_reader::SerializedFileReader;
use tiermem_base::{Access, Op};

use super::ReadOptions;
use super::core::info::{FormatInfo, Open, Opened};
use super::core::layout::SIZE_UNKNOWN;
use super::core::source::read_error;
use super::wanted::Addresses;
use crate::optional::{OptionalColumn, OptionalColumns};
use crate::parquet_form::{Column, FRAME_BYTES};
use crate::trace::{Extent, Records};
use crate::{RecordPosition, TraceError};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "parquet",
    about: "the trace form as Parquet: time_ns, op, key, size, tenant, key_size, ttl_s, perhaps frame, node, level, pc",
    file_names: &[],
    open: Open::Columnar { looks: |start| start.starts_with(b"PAR1"), open, open_bytes },
};

/// Records that are decoded at once.
const BATCH_RECORDS: usize = 8 << 10;

fn open(path: &Path, options: &ReadOptions) -> Result<Opened, TraceError> {
    let failed = |source| TraceError::Open { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        let reason = "Parquet is read from its end, so it needs a plain file; a pipe is none".to_owned();
        return Err(TraceError::Form { path: path.to_owned(), reason });
    }
    open_chunks(path, file, options)
}

fn open_bytes(name: &Path, bytes: Vec<u8>, options: &ReadOptions) -> Result<Opened, TraceError> {
    open_chunks(name, Bytes::from(bytes), options)
}

fn open_chunks<C: ChunkReader + 'static>(
    path: &Path,
    chunks: C,
    options: &ReadOptions,
) -> Result<Opened, TraceError> {
    let form = |reason: String| TraceError::Form { path: path.to_owned(), reason };
    let file = SerializedFileReader::new(chunks).map_err(|error| form(error.to_string()))?;
    let places = places(file.metadata(), options).map_err(form)?;
    let found = |wanted| places.iter().any(|(column, _)| *column == Column::Optional(wanted));
    let optional =
        OptionalColumns::with(options.optional.columns().filter(|column| found(*column)).collect());
    let records = u64::try_from(file.metadata().file_metadata().num_rows()).unwrap_or(0);
    let has_size = places.iter().any(|(column, _)| *column == Column::Size);
    let records_of_file = ParquetRecords {
        path: path.to_owned(),
        file,
        places,
        next_group: 0,
        columns: Vec::new(),
        left_in_group: 0,
        records_read: 0,
        size: if has_size { 0 } else { SIZE_UNKNOWN },
        addresses: options.addresses,
        optional,
        finished: false,
    };
    Ok(Opened { records: Box::new(records_of_file), extent: Extent::Records(records) })
}

const FRAME: Column = Column::Optional(OptionalColumn::Frame);

/// Whether the options ask for a column that traces may do without.
fn is_wanted(column: Column, options: &ReadOptions) -> bool {
    match column {
        // A frame is a part of the physical address.
        FRAME if options.addresses == Addresses::Physical => true,
        Column::Optional(column) => options.optional.contains(column),
        _ => true,
    }
}

/// Where the columns stand that are needed and there.
fn places(metadata: &ParquetMetaData, options: &ReadOptions) -> Result<Vec<(Column, usize)>, String> {
    let schema = metadata.file_metadata().schema_descr();
    let mut places = Vec::new();
    for column in Column::ALL {
        let found = (0..schema.num_columns()).find(|at| schema.column(*at).path().string() == column.name());
        match found {
            Some(at) if schema.column(at).max_rep_level() > 0 || schema.column(at).max_def_level() > 1 => {
                return Err(format!("the column `{}` is nested", column.name()));
            }
            Some(_) if !is_wanted(column, options) => {}
            Some(at) if options.fields.contains(column.field()) => places.push((column, at)),
            None if column == FRAME && options.addresses == Addresses::Physical => {
                return Err(Addresses::NO_FRAMES.to_owned());
            }
            None if column == Column::Key => {
                let names: Vec<String> =
                    schema.columns().iter().map(|column| column.path().string()).collect();
                return Err(format!("there is no column `key`; the columns are {}", names.join(", ")));
            }
            _ => {}
        }
    }
    Ok(places)
}

struct ParquetRecords<C: ChunkReader + 'static> {
    path: PathBuf,
    file: SerializedFileReader<C>,
    places: Vec<(Column, usize)>,
    next_group: usize,
    columns: Vec<ColumnState>,
    left_in_group: usize,
    records_read: u64,
    /// The size where no column says it.
    size: u32,
    addresses: Addresses,
    /// Of the records that were read last.
    optional: OptionalColumns,
    finished: bool,
}

/// A column of the row group that is being read.
struct ColumnState {
    column: Column,
    values: Values,
    /// Whether values may be null.
    optional: bool,
    levels: Vec<i16>,
}

enum Values {
    Narrow(ColumnReaderImpl<Int32Type>, Vec<i32>),
    Wide(ColumnReaderImpl<Int64Type>, Vec<i64>),
    Text(ColumnReaderImpl<ByteArrayType>, Vec<ByteArray>),
    /// The row group has this operation alone, as its statistics say.
    Always(Op),
}

/// The one operation of a column chunk, if its statistics say that there is but one.
fn only_op(chunk: &ColumnChunkMetaData) -> Option<Op> {
    let statistics = chunk.statistics()?;
    let exact =
        statistics.min_is_exact() && statistics.max_is_exact() && statistics.null_count_opt() == Some(0);
    let (min, max) = (statistics.min_bytes_opt()?, statistics.max_bytes_opt()?);
    if !exact || min != max { None } else { std::str::from_utf8(min).ok()?.parse().ok() }
}

impl<C: ChunkReader + 'static> ParquetRecords<C> {
    /// Makes the next row group the one that is read; false at the end.
    fn open_group(&mut self) -> Result<bool, String> {
        let metadata = self.file.metadata();
        if self.next_group >= metadata.num_row_groups() {
            return Ok(false);
        }
        let group = self.file.get_row_group(self.next_group).map_err(|error| error.to_string())?;
        let rows = metadata.row_group(self.next_group).num_rows();
        self.left_in_group = usize::try_from(rows).map_err(|_| format!("a row group of {rows} records"))?;
        self.next_group += 1;
        self.columns.clear();
        for &(column, at) in &self.places {
            let chunk = group.metadata().column(at);
            let values = match (column, only_op(chunk)) {
                (Column::Op, Some(op)) => Values::Always(op),
                _ => match group.get_column_reader(at).map_err(|error| error.to_string())? {
                    ColumnReader::Int32ColumnReader(reader) => Values::Narrow(reader, Vec::new()),
                    ColumnReader::Int64ColumnReader(reader) => Values::Wide(reader, Vec::new()),
                    ColumnReader::ByteArrayColumnReader(reader) if column == Column::Op => {
                        Values::Text(reader, Vec::new())
                    }
                    _ => {
                        let kind = chunk.column_descr().physical_type();
                        return Err(format!("the column `{}` holds {kind}, not integers", column.name()));
                    }
                },
            };
            let optional = chunk.column_descr().max_def_level() > 0;
            self.columns.push(ColumnState { column, values, optional, levels: Vec::new() });
        }
        Ok(true)
    }
}

impl ColumnState {
    /// The next values of an optional column.
    fn optional(&mut self, count: usize, column: OptionalColumn) -> Result<Vec<u64>, String> {
        let name = column.name();
        let levels = self.optional.then_some(&mut self.levels);
        let unsigned: Vec<u64> = match &mut self.values {
            Values::Narrow(reader, values) => {
                read_column(reader, count, levels, values)?;
                values.iter().map(|value| u64::from(value.cast_unsigned())).collect()
            }
            Values::Wide(reader, values) => {
                read_column(reader, count, levels, values)?;
                values.iter().map(|value| value.cast_unsigned()).collect()
            }
            Values::Text(..) | Values::Always(_) => {
                return Err(format!("the column `{name}` holds no integers"));
            }
        };
        // Other tools make columns of which values may be null. Here a column is there for all records or not at all.
        if unsigned.len() != count {
            return Err(format!(
                "the column `{name}` has nulls; a trace has it for all records or not at all"
            ));
        }
        match unsigned.iter().find(|value| **value > column.max()) {
            Some(value) => Err(format!("the column `{name}` cannot be {value}")),
            None => Ok(unsigned),
        }
    }

    /// Puts the next values into `records`.
    fn fill(&mut self, records: &mut [Access]) -> Result<(), String> {
        let column = self.column;
        let misfit =
            |value: &dyn std::fmt::Display| format!("the column `{}` cannot be {value}", column.name());
        let levels = self.optional.then_some(&mut self.levels);
        match &mut self.values {
            Values::Always(op) => records.iter_mut().for_each(|record| record.op = *op),
            Values::Narrow(reader, values) => {
                read_column(reader, records.len(), levels, values)?;
                // A column of 32 bits is unsigned in this form; as a code or a key size it is small anyhow.
                each(&self.levels, self.optional, values, records, |record, value| {
                    put(column, record, u64::from(value.cast_unsigned())).ok_or_else(|| misfit(value))
                })?;
            }
            Values::Wide(reader, values) => {
                read_column(reader, records.len(), levels, values)?;
                if column == Column::Key && !self.optional {
                    for (record, value) in records.iter_mut().zip(values.iter()) {
                        record.key = value.cast_unsigned();
                    }
                    return Ok(());
                }
                each(&self.levels, self.optional, values, records, |record, value| {
                    put(column, record, value.cast_unsigned()).ok_or_else(|| misfit(value))
                })?;
            }
            Values::Text(reader, values) => {
                read_column(reader, records.len(), levels, values)?;
                each(&self.levels, self.optional, values, records, |record, value| {
                    record.op = op_of(value.data())
                        .ok_or_else(|| misfit(&format_args!("\"{}\"", value.data().escape_ascii())))?;
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

fn op_of(name: &[u8]) -> Option<Op> {
    Op::ALL.into_iter().find(|op| op.name().as_bytes() == name)
}

/// Reads exactly `count` values, nulls among them counted.
fn read_column<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    count: usize,
    mut levels: Option<&mut Vec<i16>>,
    values: &mut Vec<T::T>,
) -> Result<(), String> {
    values.clear();
    if let Some(levels) = &mut levels {
        levels.clear();
    }
    let mut read = 0;
    while read < count {
        let result = reader.read_records(count - read, levels.as_deref_mut(), None, values);
        match result.map_err(|error: ParquetError| error.to_string())? {
            (0, _, _) => return Err("a column ends before its row group".to_owned()),
            (records, _, _) => read += records,
        }
    }
    Ok(())
}

/// Gives each record its value; a null leaves the default.
fn each<V>(
    levels: &[i16],
    optional: bool,
    values: &[V],
    records: &mut [Access],
    mut put: impl FnMut(&mut Access, &V) -> Result<(), String>,
) -> Result<(), String> {
    if !optional {
        return records.iter_mut().zip(values).try_for_each(|(record, value)| put(record, value));
    }
    let mut values = values.iter();
    for (record, _) in records.iter_mut().zip(levels).filter(|(_, level)| **level > 0) {
        let value = values.next().ok_or_else(|| "a column has fewer values than it says".to_owned())?;
        put(record, value)?;
    }
    Ok(())
}

/// The physical address of a virtual one.
fn physical(frame: u64, address: u64) -> Result<u64, String> {
    let start = frame.checked_mul(FRAME_BYTES);
    start
        .map(|start| start + address % FRAME_BYTES)
        .ok_or_else(|| format!("the column `frame` cannot be {frame}"))
}

/// Sets the field of `column`; `None` if the value does not fit it.
fn put(column: Column, record: &mut Access, value: u64) -> Option<()> {
    match column {
        Column::Time => record.time_ns = value,
        Column::Key => record.key = value,
        Column::Op => record.op = Op::from_code(u8::try_from(value).ok()?)?,
        Column::Size => record.size = u32::try_from(value).ok()?,
        Column::Tenant => record.tenant = u32::try_from(value).ok()?,
        Column::KeySize => record.key_size = u16::try_from(value).ok()?,
        Column::Ttl => record.ttl_s = u32::try_from(value).ok()?,
        // These are no fields of a record: see `optional`.
        Column::Optional(_) => return None,
    }
    Some(())
}

impl<C: ChunkReader + 'static> Records for ParquetRecords<C> {
    fn read(&mut self, out: &mut Vec<Access>, max: usize) -> Result<(), TraceError> {
        // They are those of this call's records, of which there may be none.
        self.optional.clear();
        // A row group may be empty.
        while self.left_in_group == 0 && !self.finished {
            let opened = self.open_group();
            self.finished = !matches!(opened, Ok(true));
            opened.map_err(|reason| self.failed(reason))?;
        }
        let count = max.min(self.left_in_group).min(BATCH_RECORDS);
        if self.finished || count == 0 {
            return Ok(());
        }
        let start = out.len();
        out.resize(start + count, Access::get(0, 0, self.size));
        if let Err(reason) = self.fill(&mut out[start..]) {
            // Columns stand at different records now, so there is no going on.
            out.truncate(start);
            self.optional.clear();
            self.finished = true;
            return Err(self.failed(reason));
        }
        self.left_in_group -= count;
        self.records_read += count as u64;
        Ok(())
    }

    fn optional(&self) -> Option<&OptionalColumns> {
        Some(&self.optional)
    }
}

impl<C: ChunkReader + 'static> ParquetRecords<C> {
    /// Gives the records the next values of all columns.
    fn fill(&mut self, records: &mut [Access]) -> Result<(), String> {
        for state in &mut self.columns {
            let Column::Optional(column) = state.column else {
                state.fill(records)?;
                continue;
            };
            let values = state.optional(records.len(), column)?;
            // The keys were put before: see the order of the columns.
            if column == OptionalColumn::Frame && self.addresses == Addresses::Physical {
                for (record, frame) in records.iter_mut().zip(&values) {
                    record.key = physical(*frame, record.key)?;
                }
            }
            if let Some(kept) = self.optional.get_mut(column) {
                *kept = values;
            }
        }
        Ok(())
    }

    fn failed(&self, reason: String) -> TraceError {
        read_error(&self.path, RecordPosition::Record(self.records_read), std::io::Error::other(reason))
    }
}
