//! Where a call's accesses come from: a file, a generator, or whatever speaks the Arrow stream interface.

use arrow_array::RecordBatchReader;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;
use tiermem_base::Access;
use tiermem_trace::{ReadOptions, Trace};

use crate::columns;
use crate::failure::Failure;
use crate::progress::{EVERY, Progress};

/// How a file is read: arguments that every function has.
#[derive(Clone, Debug, Default, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Reading {
    /// Stop after so many requests.
    requests: Option<u64>,
    /// Pass over so many broken records.
    skip_bad: u64,
    /// The name of the format.
    trace_format: Option<String>,
    /// Columns of a text file.
    columns: Option<String>,
}

impl Reading {
    fn options(&self) -> Result<ReadOptions, Failure> {
        let format = self.trace_format.as_ref().map(|name| name.parse()).transpose();
        let columns = self.columns.as_ref().map(|text| text.parse()).transpose();
        Ok(ReadOptions {
            format: format.map_err(Failure::Value)?,
            columns: columns.map_err(Failure::Value)?,
            skip_bad: self.skip_bad,
            ..ReadOptions::default()
        })
    }
}

/// An open source.
pub struct Source {
    kind: Kind,
    limit: u64,
}

enum Kind {
    Trace(Box<Trace>),
    Arrow(Box<dyn RecordBatchReader + Send>),
}

/// What the user gave, before it is opened.
pub enum Input {
    /// A path or the description of a generator.
    Named(String),
    /// A stream of record batches.
    Arrow(PyRecordBatchReader),
}

impl<'py> FromPyObject<'_, 'py> for Input {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(name) = object.extract::<String>() {
            return Ok(Input::Named(name));
        }
        if object.hasattr("__arrow_c_stream__")? {
            return Ok(Input::Arrow(object.extract()?));
        }
        if let Ok(path) = object.extract::<std::path::PathBuf>() {
            return Ok(Input::Named(path.to_string_lossy().into_owned()));
        }
        Err(PyTypeError::new_err(format!(
            "a trace is a path, a generator such as 'zipf:objects=1M', or a table or stream of Arrow \
             (anything with __arrow_c_stream__), not {}",
            object.get_type().name()?
        )))
    }
}

impl Input {
    /// About how many requests it has, where it can be opened more than once.
    pub fn expected_requests(&self, reading: &Reading) -> Result<Option<u64>, Failure> {
        match self {
            Input::Named(name) => {
                let trace = tiermem_trace::open_with(name, &reading.options()?)?;
                Ok(Some(tiermem_report::expected_requests(trace, reading.requests)?))
            }
            Input::Arrow(_) => Ok(None),
        }
    }

    /// Opens it.
    pub fn open(self, reading: &Reading) -> Result<Source, Failure> {
        let kind = match self {
            Input::Named(name) => {
                Kind::Trace(Box::new(tiermem_trace::open_with(&name, &reading.options()?)?))
            }
            Input::Arrow(reader) => Kind::Arrow(reader.into_reader()?),
        };
        Ok(Source { kind, limit: reading.requests.unwrap_or(u64::MAX) })
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Failure::Value(text)
    }
}

/// The limit was reached; or why not all were taken.
enum Stop {
    Enough,
    Failed(Failure),
}

impl From<String> for Stop {
    fn from(text: String) -> Self {
        Stop::Failed(Failure::Value(text))
    }
}

impl Source {
    /// The trace itself, for those who read it piece by piece.
    pub fn into_trace(self) -> Option<(Trace, u64)> {
        match self.kind {
            Kind::Trace(trace) => Some((*trace, self.limit)),
            Kind::Arrow(_) => None,
        }
    }

    /// Takes all accesses, reporting now and then.
    pub fn each(
        self,
        progress: &Progress,
        mut take: impl FnMut(&Access) -> Result<(), Failure>,
    ) -> Result<u64, Failure> {
        let mut taken = 0u64;
        match self.kind {
            Kind::Trace(mut trace) => {
                let mut records = Vec::with_capacity(4096);
                let total = trace.len_hint().map(|len| len.min(self.limit) as f64);
                loop {
                    records.clear();
                    let max = (self.limit - taken).min(4096) as usize;
                    if trace.next_batch(&mut records, max)? == 0 {
                        return Ok(taken);
                    }
                    records.iter().try_for_each(&mut take)?;
                    let before = taken;
                    taken += records.len() as u64;
                    if before / EVERY != taken / EVERY {
                        match (total, trace.share_read()) {
                            (None, Some(share)) => progress.report("reading", share, Some(1.0))?,
                            (total, _) => progress.report("reading", taken as f64, total)?,
                        }
                    }
                }
            }
            Kind::Arrow(reader) => {
                for batch in reader {
                    let batch = batch.map_err(|error| Failure::Value(error.to_string()))?;
                    let taking = columns::each(&batch, |access| {
                        if taken == self.limit {
                            return Err(Stop::Enough);
                        }
                        taken += 1;
                        take(&access).map_err(Stop::Failed)
                    });
                    match taking {
                        Ok(()) => progress.report("reading", taken as f64, None)?,
                        Err(Stop::Enough) => break,
                        Err(Stop::Failed(failure)) => return Err(failure),
                    }
                }
                Ok(taken)
            }
        }
    }
}
