//! A trace as a stream of Arrow record batches.

use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_schema::{ArrowError, Field};
use pyo3::exceptions::{PyImportError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::ffi::{ArrayIterator, to_stream_pycapsule};
use tiermem_trace::{OptionalColumns, OptionalSet, Spec, SpecError, Trace};

use crate::columns::{batch, schema};
use crate::source::{Input, Reading};

/// Accesses of a trace as record batches, read as they are taken. It speaks the Arrow stream interface, so that
/// pyarrow, polars, duckdb, pandas and others take it as it is; the buffers are handed over, not copied. It can be taken
/// once.
#[pyclass(module = "tiermem._native")]
pub struct TraceStream {
    trace: Mutex<Option<(Trace, u64)>>,
    /// The columns that it has beside those of every trace.
    optional: OptionalSet,
    batch_records: usize,
}

#[pymethods]
impl TraceStream {
    /// The Arrow C stream of the batches.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let taken = self.trace.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        let (trace, left) = taken.ok_or_else(|| {
            PyValueError::new_err("this stream has been read; read_trace() opens a new one")
        })?;
        let columns = OptionalColumns::with(self.optional);
        let batches =
            Batches { trace, left, batch_records: self.batch_records, records: Vec::new(), columns };
        let arrays = batches.map(|batch| batch.map(|batch| Arc::new(StructArray::from(batch)) as ArrayRef));
        let field = Field::new_struct("", schema(self.optional).fields().clone(), false);
        let arrays = Box::new(ArrayIterator::new(arrays, field.into()));
        Ok(to_stream_pycapsule(py, arrays, requested_schema)?)
    }

    /// A `pyarrow.RecordBatchReader` over the batches; needs pyarrow.
    fn to_reader<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let pyarrow = slf.py().import("pyarrow").map_err(|_| {
            PyImportError::new_err(
                "this needs pyarrow: pip install pyarrow, or give the stream to polars or duckdb",
            )
        })?;
        pyarrow.getattr("RecordBatchReader")?.call_method1("from_stream", (slf,))
    }

    /// All of it as a `pyarrow.Table`; needs pyarrow.
    fn to_table<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::to_reader(slf)?.call_method0("read_all")
    }

    fn __repr__(&self) -> String {
        let is_open = self.trace.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_some();
        let schema = schema(self.optional);
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        format!("TraceStream({}{})", names.join(", "), if is_open { "" } else { "; has been read" })
    }
}

struct Batches {
    trace: Trace,
    left: u64,
    batch_records: usize,
    records: Vec<tiermem_base::Access>,
    columns: OptionalColumns,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.records.clear();
        self.columns.clear();
        while self.records.len() < self.batch_records {
            let room = (self.batch_records - self.records.len())
                .min(usize::try_from(self.left).unwrap_or(usize::MAX));
            match self.trace.next_batch_with(&mut self.records, &mut self.columns, room) {
                Ok(0) => break,
                Ok(count) => self.left -= count as u64,
                Err(error) => return Some(Err(ArrowError::ExternalError(Box::new(error)))),
            }
        }
        if self.records.is_empty() { None } else { Some(batch(&self.records, &self.columns)) }
    }
}

/// The trace of a generator as a stream of record batches.
#[pyfunction]
pub fn generate(spec: &str, batch_records: usize) -> PyResult<TraceStream> {
    let spec: Spec = spec.parse().map_err(|error: SpecError| PyValueError::new_err(error.to_string()))?;
    stream(spec.open(), u64::MAX, batch_records)
}

fn stream(trace: Trace, limit: u64, batch_records: usize) -> PyResult<TraceStream> {
    if batch_records == 0 {
        return Err(PyValueError::new_err("batch_records is at least 1"));
    }
    let optional = trace.optional();
    Ok(TraceStream { trace: Mutex::new(Some((trace, limit))), optional, batch_records })
}

/// Opens a trace as a stream of record batches.
#[pyfunction]
pub fn read_trace(trace: Input, reading: Reading, batch_records: usize) -> PyResult<TraceStream> {
    let source = trace.open_with(&reading, OptionalSet::ALL).map_err(PyErr::from)?;
    let (trace, limit) = source.into_trace().ok_or_else(|| {
        PyTypeError::new_err("this is a table or stream of Arrow already; it needs no reading")
    })?;
    stream(trace, limit, batch_records)
}
