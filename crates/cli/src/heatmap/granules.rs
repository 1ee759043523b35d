//! Granules as rows for machines.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use tiermem_report::heatmap::{AccessClass, Field};

use super::asked::Asked;

const FIELDS: &str =
    "region,name,granule,offset,slice,accesses,loads,stores,local,remote,cached,granule_bytes";
/// With `--absolute`.
const ADDRESS_FIELD: &str = ",address";
const SCHEMA: &str = "message tiermem_heatmap {
    REQUIRED INT64 region;
    REQUIRED BYTE_ARRAY name (STRING);
    REQUIRED INT64 granule;
    REQUIRED INT64 offset;
    REQUIRED INT64 slice;
    REQUIRED DOUBLE accesses;
    REQUIRED DOUBLE loads;
    REQUIRED DOUBLE stores;
    REQUIRED DOUBLE local;
    REQUIRED DOUBLE remote;
    REQUIRED DOUBLE cached;
    REQUIRED INT64 granule_bytes;
";
const ADDRESS_COLUMN: &str = "    REQUIRED INT64 address (INTEGER(64,false));
";

/// Calls `take` for each slice of each granule that was accessed in it: the granule, the slice's row, and the parts' counts.
fn each(field: &Field, mut take: impl FnMut(usize, usize, [f32; 6]) -> io::Result<()>) -> io::Result<()> {
    for row in 0..field.slices.len() {
        let rows = AccessClass::ALL.map(|part| field.heat_of(part).map_or(&[][..], |heat| heat.row(row)));
        for granule in 0..field.granules() {
            let counts = rows.map(|row| row.get(granule).copied().unwrap_or(0.0));
            if counts[0] > 0.0 {
                take(granule, row, counts)?;
            }
        }
    }
    Ok(())
}

/// Writes granules as CSV.
pub fn write_csv(file: File, asked: &Asked, fields: &[Field]) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    let absolute = asked.options.absolute;
    writeln!(out, "{FIELDS}{}", if absolute { ADDRESS_FIELD } else { "" })?;
    for field in fields {
        let region = &asked.recording.head.regions[field.window.region];
        let name = crate::output::quote_csv(&region.name);
        each(field, |granule, row, [accesses, loads, stores, local, remote, cached]| {
            write!(
                out,
                "{},{name},{},{},{},{accesses},{loads},{stores},{local},{remote},{cached},{}",
                field.window.region,
                field.first_granule + granule as u64,
                field.offset(granule),
                field.slices[row],
                field.window.granule_bytes
            )?;
            if absolute {
                write!(out, ",{:#x}", region.start.saturating_add(field.offset(granule)))?;
            }
            writeln!(out)
        })?;
    }
    out.flush()
}

/// Writes granules as Parquet, a row group for each region.
pub fn write_parquet(file: File, asked: &Asked, fields: &[Field]) -> io::Result<()> {
    write_groups(file, asked, fields).map_err(io::Error::other)
}

fn write_groups(file: File, asked: &Asked, fields: &[Field]) -> Result<(), ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(format!("tiermem {}", env!("CARGO_PKG_VERSION")))
        .build();
    let absolute = asked.options.absolute;
    let columns = if absolute { [SCHEMA, ADDRESS_COLUMN].concat() } else { SCHEMA.to_owned() };
    let schema = Arc::new(parse_message_type(&format!("{columns}}}"))?);
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    for field in fields {
        let (mut places, mut counts): ([Vec<i64>; 3], [Vec<f64>; 6]) = Default::default();
        let taken = each(field, |granule, row, values| {
            let place =
                [field.first_granule + granule as u64, field.offset(granule), field.slices[row] as u64];
            places.iter_mut().zip(place).for_each(|(column, value)| column.push(value.cast_signed()));
            counts.iter_mut().zip(values).for_each(|(column, value)| column.push(f64::from(value)));
            Ok(())
        });
        taken.map_err(|error| ParquetError::External(error.into()))?;
        let rows = places[0].len();
        if rows == 0 {
            continue;
        }
        let region = &asked.recording.head.regions[field.window.region];
        let mut group = writer.next_row_group()?;
        put::<Int64Type>(&mut group, &vec![field.window.region as i64; rows])?;
        put::<ByteArrayType>(&mut group, &vec![ByteArray::from(region.name.as_str()); rows])?;
        places.iter().try_for_each(|column| put::<Int64Type>(&mut group, column))?;
        counts.iter().try_for_each(|column| put::<DoubleType>(&mut group, column))?;
        put::<Int64Type>(&mut group, &vec![field.window.granule_bytes.cast_signed(); rows])?;
        if absolute {
            let address = |offset: &i64| region.start.saturating_add(offset.cast_unsigned()).cast_signed();
            put::<Int64Type>(&mut group, &places[1].iter().map(address).collect::<Vec<i64>>())?;
        }
        group.close()?;
    }
    writer.close().map(drop)
}

fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(values, None, None)?;
        column.close()?;
    }
    Ok(())
}
