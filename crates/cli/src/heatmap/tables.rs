//! Granules as rows for machines, and regions as a table for people.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use tiermem_report::heatmap::{AccessClass, Field, kind_name, period_of};
use tiermem_trace::recording::{Recording, Selection};

use crate::output::{Cell, Rows};

/// Fields of the table of regions.
const REGION_FIELDS: &[&str] = &[
    "region",
    "name",
    "kind",
    "bytes",
    "accesses",
    "share",
    "granule_bytes",
    "touched_granules",
    "touched_bytes",
    "period_granules",
    "period_bytes",
];
const GRANULE_FIELDS: &str =
    "region,name,granule,offset,slice,accesses,loads,stores,local,remote,cached,granule_bytes";
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
}";

/// One line for each region, in the order of `fields`. Regions without accesses have lines too.
pub fn regions(recording: &Recording, selection: &Selection, fields: &[Field]) -> Rows {
    let all: f64 = fields.iter().map(|field| field.sum).sum();
    let row = |field: &Field| {
        let region = &recording.head.regions[field.window.region];
        let granule_bytes = field.window.granule_bytes;
        let touched = field
            .heat_of(AccessClass::Accesses)
            .map_or(0, |heat| heat.totals().iter().filter(|total| **total > 0.0).count() as u64);
        let period = period_of(field).map(|granules| granules as u64);
        // A mapping that was looked at as a whole has touched granules, and nobody knows which.
        let is_unknown =
            recording.unknown_heat(selection, Some(field.window.region), granule_bytes).is_some();
        let maybe = |count: Option<u64>| count.map_or(Cell::UNKNOWN, Cell::Count);
        vec![
            Cell::Count(field.window.region as u64),
            Cell::Text(region.name.clone()),
            Cell::Text(kind_name(region.kind).to_owned()),
            Cell::Bytes(region.bytes),
            Cell::Number(field.sum, if field.sum.fract() == 0.0 { 0 } else { 3 }),
            Cell::Number(if all > 0.0 { field.sum / all } else { 0.0 }, 4),
            Cell::Bytes(granule_bytes),
            maybe(Some(touched).filter(|_| !is_unknown)),
            Cell::Bytes(field.touched.bytes()),
            maybe(period),
            period.map_or(Cell::UNKNOWN, |granules| Cell::Bytes(granules.saturating_mul(granule_bytes))),
        ]
    };
    Rows { fields: REGION_FIELDS, rows: fields.iter().map(row).collect() }
}

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
pub fn write_csv(file: File, recording: &Recording, fields: &[Field]) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    writeln!(out, "{GRANULE_FIELDS}")?;
    for field in fields {
        let name = crate::output::quote_csv(&recording.head.regions[field.window.region].name);
        each(field, |granule, row, [accesses, loads, stores, local, remote, cached]| {
            writeln!(
                out,
                "{},{name},{},{},{},{accesses},{loads},{stores},{local},{remote},{cached},{}",
                field.window.region,
                field.first_granule + granule as u64,
                field.offset(granule),
                field.slices[row],
                field.window.granule_bytes
            )
        })?;
    }
    out.flush()
}

/// Writes granules as Parquet, a row group for each region.
pub fn write_parquet(file: File, recording: &Recording, fields: &[Field]) -> io::Result<()> {
    write_groups(file, recording, fields).map_err(io::Error::other)
}

fn write_groups(file: File, recording: &Recording, fields: &[Field]) -> Result<(), ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(format!("tiermem {}", env!("CARGO_PKG_VERSION")))
        .build();
    let schema = Arc::new(parse_message_type(SCHEMA)?);
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
        let region = &recording.head.regions[field.window.region];
        let mut group = writer.next_row_group()?;
        put::<Int64Type>(&mut group, &vec![field.window.region as i64; rows])?;
        put::<ByteArrayType>(&mut group, &vec![ByteArray::from(region.name.as_str()); rows])?;
        places.iter().try_for_each(|column| put::<Int64Type>(&mut group, column))?;
        counts.iter().try_for_each(|column| put::<DoubleType>(&mut group, column))?;
        put::<Int64Type>(&mut group, &vec![field.window.granule_bytes.cast_signed(); rows])?;
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
