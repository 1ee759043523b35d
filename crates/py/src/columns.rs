//! The trace form in Arrow: records to columns and back.

use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int8Array, RecordBatch, StringArray, UInt8Array, UInt16Array,
    UInt32Array, UInt64Array,
};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use tiermem_base::{Access, Op};
use tiermem_trace::{OptionalColumn, OptionalColumns, OptionalSet};

/// The columns of the trace form with these of the optional ones; see `docs/traces.md`.
pub fn schema(optional: OptionalSet) -> SchemaRef {
    let op = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let columns = [
        ("time_ns", DataType::UInt64),
        ("op", op),
        ("key", DataType::UInt64),
        ("size", DataType::UInt32),
        ("tenant", DataType::UInt32),
        ("key_size", DataType::UInt16),
        ("ttl_s", DataType::UInt32),
    ];
    let optional = optional.columns().map(|column| (column.name(), type_of(column)));
    let fields = columns.into_iter().chain(optional).map(|(name, of)| Field::new(name, of, false));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn type_of(column: OptionalColumn) -> DataType {
    match column {
        OptionalColumn::Frame | OptionalColumn::Pc => DataType::UInt64,
        OptionalColumn::Node | OptionalColumn::Level => DataType::UInt8,
    }
}

/// The names of operations, by code; every batch shares them.
static OPS: LazyLock<ArrayRef> =
    LazyLock::new(|| Arc::new(StringArray::from_iter_values(Op::ALL.map(Op::name))));

/// Records as columns, with their optional columns.
///
/// # Errors
/// None that a caller could cause: the columns are those of the schema.
pub fn batch(records: &[Access], optional: &OptionalColumns) -> Result<RecordBatch, ArrowError> {
    let codes = Int8Array::from_iter_values(records.iter().map(|access| access.op.code() as i8));
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from_iter_values(records.iter().map(|access| access.time_ns))),
        Arc::new(DictionaryArray::<Int8Type>::try_new(codes, OPS.clone())?),
        Arc::new(UInt64Array::from_iter_values(records.iter().map(|access| access.key))),
        Arc::new(UInt32Array::from_iter_values(records.iter().map(|access| access.size))),
        Arc::new(UInt32Array::from_iter_values(records.iter().map(|access| access.tenant))),
        Arc::new(UInt16Array::from_iter_values(records.iter().map(|access| access.key_size))),
        Arc::new(UInt32Array::from_iter_values(records.iter().map(|access| access.ttl_s))),
    ];
    for column in optional.set().columns() {
        let values = optional.get(column).unwrap_or_default().iter().copied();
        columns.push(match type_of(column) {
            // The reader has seen to it that they fit.
            DataType::UInt8 => Arc::new(UInt8Array::from_iter_values(values.map(|value| value as u8))),
            _ => Arc::new(UInt64Array::from_iter_values(values)),
        });
    }
    RecordBatch::try_new(schema(optional.set()), columns)
}

/// A column of a batch in the type wanted: as it is where it has that type, converted where it has another.
fn column(batch: &RecordBatch, name: &str, wanted: &DataType) -> Result<Option<ArrayRef>, String> {
    let Some(column) = batch.column_by_name(name) else { return Ok(None) };
    if column.null_count() > 0 {
        return Err(format!("the column `{name}` has {} nulls; a trace has none", column.null_count()));
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let cast = cast_with_options(column, wanted, &strict);
    cast.map(Some).map_err(|error| {
        format!("the column `{name}` of type {} cannot be read as {wanted}: {error}", column.data_type())
    })
}

/// Appends every record of a batch to `records`. `key` must be there; other columns are 0 where they are not, and `op` is get.
///
/// # Errors
/// What is wrong with which column.
pub fn append(batch: &RecordBatch, records: &mut Vec<Access>) -> Result<(), String> {
    let names =
        || batch.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>().join(", ");
    let keys = column(batch, "key", &DataType::UInt64)?
        .ok_or_else(|| format!("a trace needs a column `key`; the columns here are {}", names()))?;
    let keys = keys.as_primitive::<UInt64Type>();
    let times = column(batch, "time_ns", &DataType::UInt64)?;
    let times = times.as_ref().map(|times| times.as_primitive::<UInt64Type>());
    let small = |name| column(batch, name, &DataType::UInt32);
    let (sizes, tenants, key_sizes, ttls) =
        (small("size")?, small("tenant")?, small("key_size")?, small("ttl_s")?);
    let [sizes, tenants, key_sizes, ttls] = [&sizes, &tenants, &key_sizes, &ttls]
        .map(|column| column.as_ref().map(|column| column.as_primitive::<UInt32Type>()));
    let at = |column: Option<&UInt32Array>, row| column.map_or(0, |column| column.value(row));
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let ops = column(batch, "op", &dictionary)?;
    let ops = ops.as_ref().map(|ops| ops.as_dictionary::<Int32Type>());
    // Each name is read once, not each row.
    let named: Vec<Result<Op, String>> = ops.map_or_else(Vec::new, |ops| {
        ops.values().as_string::<i32>().iter().map(|name| name.unwrap_or("").parse()).collect()
    });
    records.reserve(batch.num_rows());
    for row in 0..batch.num_rows() {
        let op = match ops.and_then(|ops| ops.key(row)).and_then(|code| named.get(code)) {
            Some(op) => op.clone()?,
            None => Op::Get,
        };
        records.push(Access {
            time_ns: times.map_or(0, |times| times.value(row)),
            key: keys.value(row),
            size: at(sizes, row),
            tenant: at(tenants, row),
            ttl_s: at(ttls, row),
            key_size: at(key_sizes, row).min(u32::from(u16::MAX)) as u16,
            op,
        });
    }
    Ok(())
}
