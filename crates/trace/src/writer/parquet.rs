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
use crate::parquet_form::{Column, KEY_SEED, SCHEMA, SOURCE};

/// Records of a row group: what writer and reader hold in memory, and what a part of a parallel scan is.
const GROUP_RECORDS: usize = 512 << 10;
/// Records of a page: large enough for the work per page not to count, small enough for the processor's cache.
const PAGE_RECORDS: usize = 64 << 10;

pub(super) struct ParquetWriter {
    file: SerializedFileWriter<Output>,
    /// The records of the row group to come.
    group: Vec<Access>,
    operations: [ByteArray; Op::ALL.len()],
}

impl ParquetWriter {
    pub fn create(path: &Path, options: &WriteOptions) -> Result<Self, TraceError> {
        let failed = |error| failed(path, error);
        let schema = Arc::new(parse_message_type(SCHEMA).map_err(failed)?);
        let properties = properties(options).map_err(failed)?;
        let output = Output::create_plain(path)?;
        let file = SerializedFileWriter::new(output, schema, Arc::new(properties)).map_err(failed)?;
        let operations = Op::ALL.map(|op| ByteArray::from(op.name()));
        Ok(ParquetWriter { file, group: Vec::with_capacity(GROUP_RECORDS), operations })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        if self.group.is_empty() {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for column in Column::ALL {
            let Some(mut writer) = group.next_column()? else { break };
            let records = &self.group;
            // Parquet's integers are signed; their logical type says that these are not.
            let signed = |value: u32| value.cast_signed();
            match column {
                Column::Time => put::<Int64Type>(&mut writer, records, |it| it.time_ns.cast_signed())?,
                Column::Op => put::<ByteArrayType>(&mut writer, records, |it| {
                    self.operations[usize::from(it.op.code())].clone()
                })?,
                Column::Key => put::<Int64Type>(&mut writer, records, |it| it.key.cast_signed())?,
                Column::Size => put::<Int32Type>(&mut writer, records, |it| signed(it.size))?,
                Column::Tenant => put::<Int32Type>(&mut writer, records, |it| signed(it.tenant))?,
                Column::KeySize => put::<Int32Type>(&mut writer, records, |it| i32::from(it.key_size))?,
                Column::Ttl => put::<Int32Type>(&mut writer, records, |it| signed(it.ttl_s))?,
            }
            writer.close()?;
        }
        group.close()?;
        self.group.clear();
        Ok(())
    }

    fn path(&self) -> &Path {
        self.file.inner().path()
    }
}

/// Writes one column of a row group.
fn put<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    records: &[Access],
    value: impl Fn(&Access) -> T::T,
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
        .set_column_dictionary_enabled(path(Column::Time), false)
        .set_column_encoding(path(Column::Time), Encoding::DELTA_BINARY_PACKED)
        .build())
}

fn failed(path: &Path, error: ParquetError) -> TraceError {
    write_error(path)(std::io::Error::other(error))
}

impl Writer for ParquetWriter {
    fn write(&mut self, records: &[Access]) -> Result<(), TraceError> {
        let mut rest = records;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(GROUP_RECORDS - self.group.len()));
            self.group.extend_from_slice(part);
            rest = after;
            if self.group.len() == GROUP_RECORDS {
                self.write_group().map_err(|error| failed(self.path(), error))?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), TraceError> {
        let path = self.path().to_owned();
        self.write_group().map_err(|error| failed(&path, error))?;
        self.file.into_inner().map_err(|error| failed(&path, error))?.finish()
    }
}
