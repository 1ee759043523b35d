//! Parquet output of rows, for Python and other readers of columns.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use crate::output::{Cell, Rows};

/// A column's type: what its cells are; a column with numbers and counts holds numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Count,
    Number,
}

/// Writes rows under a temporary name beside `path`, which gets its name when it is complete.
pub fn write(path: &Path, rows: &Rows) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".partial");
    let file = File::create(&temporary)?;
    write_file(file, rows).map_err(io::Error::other)?;
    std::fs::rename(&temporary, path)
}

fn write_file(file: File, rows: &Rows) -> Result<(), ParquetError> {
    let kinds: Vec<Kind> = (0..rows.fields.len()).map(|column| kind(rows, column)).collect();
    let columns = rows.fields.iter().zip(&kinds).map(|(name, kind)| schema(name, *kind).map(Arc::new));
    let schema = Type::group_type_builder("rows").with_fields(columns.collect::<Result<_, _>>()?).build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(format!("tiermem {}", env!("CARGO_PKG_VERSION")))
        .build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (column, kind) in kinds.iter().enumerate() {
        let cells = rows.rows.iter().map(|row| &row[column]);
        match kind {
            Kind::Text => put::<ByteArrayType>(
                &mut group,
                cells.map(|cell| match cell {
                    Cell::Text(text) => Some(ByteArray::from(text.as_str())),
                    _ => None,
                }),
            )?,
            Kind::Count => put::<Int64Type>(
                &mut group,
                cells.map(|cell| match cell {
                    Cell::Count(count) | Cell::Bytes(count) => Some(count.cast_signed()),
                    _ => None,
                }),
            )?,
            Kind::Number => put::<DoubleType>(
                &mut group,
                cells.map(|cell| match cell {
                    Cell::Number(number, _) if number.is_finite() => Some(*number),
                    Cell::Count(count) | Cell::Bytes(count) => Some(*count as f64),
                    _ => None,
                }),
            )?,
        }
    }
    group.close()?;
    writer.close().map(drop)
}

fn kind(rows: &Rows, column: usize) -> Kind {
    let mut kind = Kind::Count;
    for row in &rows.rows {
        match row[column] {
            Cell::Text(_) => return Kind::Text,
            Cell::Number(..) | Cell::Power(_) => kind = Kind::Number,
            Cell::Count(_) | Cell::Bytes(_) => {}
        }
    }
    kind
}

fn schema(name: &str, kind: Kind) -> Result<Type, ParquetError> {
    let (physical, logical) = match kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Count => (Physical::INT64, None),
        Kind::Number => (Physical::DOUBLE, None),
    };
    Type::primitive_type_builder(name, physical)
        .with_logical_type(logical)
        .with_repetition(Repetition::OPTIONAL)
        .build()
}

/// Writes a column; missing cells become null.
fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    cells: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for cell in cells {
        levels.push(i16::from(cell.is_some()));
        values.extend(cell);
    }
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(&values, Some(&levels), None)?;
        column.close()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    #[test]
    fn columns_are_read_back() {
        let rows = Rows {
            fields: &["name", "count", "share"],
            rows: vec![
                vec![Cell::Text("a".into()), Cell::Count(u64::from(u32::MAX)), Cell::Number(0.5, 1)],
                vec![Cell::Text("b".into()), Cell::Count(0), Cell::Number(f64::NAN, 1)],
            ],
        };
        let path = std::env::temp_dir().join(format!("tiermem-rows-{}.parquet", std::process::id()));
        write(&path, &rows).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let lines: Vec<String> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            lines,
            ["{name: \"a\", count: 4294967295, share: 0.5}", "{name: \"b\", count: 0, share: null}"]
        );
        assert_eq!(reader.num_row_groups(), 1);
    }
}
