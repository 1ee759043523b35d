//! The trace form as Parquet: columns of [`crate::parquet_form`], Zstandard within.
//!
//! Keys are plain: hashes do not repeat enough for a dictionary to pay, and plain numbers are read fastest. Times are
//! deltas. The other columns have few values, and dictionaries for them.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use tiermem_base::hash::TRACE_KEY_SEED;
use tiermem_base::{Access, Op};

use super::output::{Output, write_error};
use super::{WriteOptions, Writer};
use crate::TraceError;
use crate::optional::{OptionalColumn, OptionalColumns, OptionalSet};
use crate::parquet_form::{Column, KEY_SEED, SOURCE, schema};

/// Records of a row group: what writer and reader hold in memory, and what a part of a parallel scan is.
const GROUP_RECORDS: usize = 512 << 10;
/// Records of a page: large enough for the work per page not to count, small enough for the processor's cache.
const PAGE_RECORDS: usize = 64 << 10;

pub(super) struct ParquetWriter {
    file: SerializedFileWriter<Output>,
    /// The records of the row group to come.
    group: Vec<Access>,
    /// The optional columns that the file has.
    optional: OptionalColumns,
    operations: [ByteArray; Op::ALL.len()],
}

impl ParquetWriter {
    pub fn create(path: &Path, options: &WriteOptions) -> Result<Self, TraceError> {
        let failed = |error| failed(path, error);
        let schema = Arc::new(parse_message_type(&schema(options.optional)).map_err(failed)?);
        let properties = properties(options).map_err(failed)?;
        let output = Output::create_plain(path)?;
        let file = SerializedFileWriter::new(output, schema, Arc::new(properties)).map_err(failed)?;
        let operations = Op::ALL.map(|op| ByteArray::from(op.name()));
        let optional = OptionalColumns::with(options.optional);
        Ok(ParquetWriter { file, group: Vec::with_capacity(GROUP_RECORDS), optional, operations })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        if self.group.is_empty() {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        let has = |column: &Column| match column {
            Column::Optional(column) => self.optional.get(*column).is_some(),
            _ => true,
        };
        for column in Column::ALL.into_iter().filter(has) {
            let Some(mut writer) = group.next_column()? else { break };
            let records = &self.group;
            // Parquet's integers are signed; their logical type says that these are not.
            let signed = |value: u32| value.cast_signed();
            match column {
                Column::Time => put::<Int64Type, _>(&mut writer, records, |it| it.time_ns.cast_signed())?,
                Column::Op => put::<ByteArrayType, _>(&mut writer, records, |it| {
                    self.operations[usize::from(it.op.code())].clone()
                })?,
                Column::Key => put::<Int64Type, _>(&mut writer, records, |it| it.key.cast_signed())?,
                Column::Size => put::<Int32Type, _>(&mut writer, records, |it| signed(it.size))?,
                Column::Tenant => put::<Int32Type, _>(&mut writer, records, |it| signed(it.tenant))?,
                Column::KeySize => put::<Int32Type, _>(&mut writer, records, |it| i32::from(it.key_size))?,
                Column::Ttl => put::<Int32Type, _>(&mut writer, records, |it| signed(it.ttl_s))?,
                Column::Optional(column) => {
                    let values = self.optional.get(column).unwrap_or_default();
                    match column.max() {
                        u64::MAX => put::<Int64Type, _>(&mut writer, values, |value| value.cast_signed())?,
                        _ => put::<Int32Type, _>(&mut writer, values, |value| *value as i32)?,
                    }
                }
            }
            writer.close()?;
        }
        group.close()?;
        self.group.clear();
        self.optional.clear();
        Ok(())
    }

    /// Takes records in, with the optional columns that the file has.
    fn take(&mut self, records: &[Access], columns: &OptionalColumns) -> Result<(), TraceError> {
        let mut at = 0;
        while at < records.len() {
            let room = GROUP_RECORDS - self.group.len();
            let end = records.len().min(at + room);
            self.group.extend_from_slice(&records[at..end]);
            self.optional.extend_from(columns, at..end);
            at = end;
            if self.group.len() == GROUP_RECORDS {
                self.write_group().map_err(|error| failed(self.path(), error))?;
            }
        }
        Ok(())
    }

    fn misused(&self, what: String) -> TraceError {
        write_error(self.path())(std::io::Error::other(what))
    }

    fn path(&self) -> &Path {
        self.file.inner().path()
    }
}

/// Writes one column of a row group.
fn put<T: DataType, V>(
    writer: &mut SerializedColumnWriter<'_>,
    records: &[V],
    value: impl Fn(&V) -> T::T,
) -> Result<(), ParquetError> {
    let mut values = Vec::with_capacity(PAGE_RECORDS.min(records.len()));
    for part in records.chunks(PAGE_RECORDS) {
        values.clear();
        values.extend(part.iter().map(&value));
        writer.typed::<T>().write_batch(&values, None, None)?;
    }
    Ok(())
}

fn properties(options: &WriteOptions) -> Result<WriterProperties, ParquetError> {
    let metadata = vec![
        KeyValue::new(KEY_SEED.to_owned(), format!("{TRACE_KEY_SEED:#018x}")),
        KeyValue::new(SOURCE.to_owned(), options.source.clone()),
    ];
    let path = |column: Column| ColumnPath::from(column.name());
    Ok(WriterProperties::builder()
        .set_created_by(format!("tiermem {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(metadata))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_data_page_row_count_limit(PAGE_RECORDS)
        .set_write_batch_size(PAGE_RECORDS)
        .set_column_dictionary_enabled(path(Column::Key), false)
        .set_column_encoding(path(Column::Key), Encoding::PLAIN)
        // Frames repeat within a page's lines and hardly otherwise, which Zstandard sees as well as a dictionary.
        .set_column_dictionary_enabled(path(Column::Optional(OptionalColumn::Frame)), false)
        .set_column_encoding(path(Column::Optional(OptionalColumn::Frame)), Encoding::PLAIN)
        .set_column_dictionary_enabled(path(Column::Time), false)
        .set_column_encoding(path(Column::Time), Encoding::DELTA_BINARY_PACKED)
        .build())
}

fn failed(path: &Path, error: ParquetError) -> TraceError {
    write_error(path)(std::io::Error::other(error))
}

impl Writer for ParquetWriter {
    fn write(&mut self, records: &[Access]) -> Result<(), TraceError> {
        self.write_with(records, &OptionalColumns::default())
    }

    fn write_with(&mut self, records: &[Access], columns: &OptionalColumns) -> Result<(), TraceError> {
        let (begun, given) = (self.optional.set(), columns.set());
        if begun != given {
            let text = |set: OptionalSet| if set.is_empty() { "none".to_owned() } else { set.to_string() };
            let what = format!(
                "the file was begun with the columns: {}; these records have: {}",
                text(begun),
                text(given)
            );
            return Err(self.misused(what));
        }
        if !columns.are_of(records.len()) {
            return Err(self.misused(format!("the columns {given} do not fit the {} records", records.len())));
        }
        self.take(records, columns)
    }

    fn finish(mut self: Box<Self>) -> Result<(), TraceError> {
        let path = self.path().to_owned();
        self.write_group().map_err(|error| failed(&path, error))?;
        self.file.into_inner().map_err(|error| failed(&path, error))?.finish()
    }
}
