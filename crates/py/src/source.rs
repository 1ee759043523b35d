//! Source of a call's accesses: a file, a generator, or any object with the Arrow stream interface.

use arrow_array::RecordBatchReader;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;
use tiermem_base::Access;
use tiermem_trace::{ReadOptions, Trace};

use crate::columns;
use crate::failure::Failure;
use crate::progress::{EVERY, Progress};

/// Arguments of reading a file, common to all functions.
#[derive(Clone, Debug, Default, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Reading {
    /// Stop after this number of requests.
    requests: Option<u64>,
    /// Skip up to this number of broken records.
    skip_bad: u64,
    /// The name of the format.
    trace_format: Option<String>,
    /// Columns of a text file.
    columns: Option<String>,
    /// Which address of a memory trace is its key.
    addresses: String,
}

impl Reading {
    fn options(&self) -> Result<ReadOptions, Failure> {
        let format = self.trace_format.as_ref().map(|name| name.parse()).transpose();
        let columns = self.columns.as_ref().map(|text| text.parse()).transpose();
        Ok(ReadOptions {
            format: format.map_err(Failure::Value)?,
            columns: columns.map_err(Failure::Value)?,
            skip_bad: self.skip_bad,
            addresses: self.addresses.parse().map_err(Failure::Value)?,
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

/// Input as the user gave it, before it is opened.
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

impl Source {
    /// The trace itself, for callers that read it piece by piece.
    pub fn into_trace(self) -> Option<(Trace, u64)> {
        match self.kind {
            Kind::Trace(trace) => Some((*trace, self.limit)),
            Kind::Arrow(_) => None,
        }
    }

    /// The accesses one after another, reporting now and then; an error is the last item.
    pub fn records(self, progress: &Progress) -> Records<'_> {
        let Source { kind, limit } = self;
        let total = match &kind {
            Kind::Trace(trace) => trace.len_hint().map(|len| len.min(limit) as f64),
            Kind::Arrow(_) => None,
        };
        Records { kind, left: limit, taken: 0, reported: 0, total, buffer: Vec::new(), at: 0, progress }
    }
}

/// The accesses of a [`Source`].
pub struct Records<'a> {
    kind: Kind,
    /// Accesses that are still wanted.
    left: u64,
    taken: u64,
    /// How many had been taken at the last report.
    reported: u64,
    total: Option<f64>,
    /// Read ahead, from `at` on.
    buffer: Vec<Access>,
    at: usize,
    progress: &'a Progress,
}

/// Records of a file that are read at once.
const BATCH_RECORDS: u64 = 4096;

impl Records<'_> {
    /// Reads ahead; nothing is in the buffer then at the end alone.
    fn fill(&mut self) -> Result<(), Failure> {
        self.at = 0;
        self.buffer.clear();
        while self.buffer.is_empty() && self.left > 0 {
            match &mut self.kind {
                Kind::Trace(trace) => {
                    if trace.next_batch(&mut self.buffer, self.left.min(BATCH_RECORDS) as usize)? == 0 {
                        break;
                    }
                }
                Kind::Arrow(reader) => {
                    let Some(batch) = reader.next() else { break };
                    columns::append(&batch.map_err(|error| error.to_string())?, &mut self.buffer)?;
                    self.buffer.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
                }
            }
        }
        self.left -= self.buffer.len() as u64;
        self.taken += self.buffer.len() as u64;
        if self.taken - self.reported >= EVERY {
            self.reported = self.taken;
            self.report()?;
        }
        Ok(())
    }

    fn report(&self) -> Result<(), Failure> {
        let share = match &self.kind {
            Kind::Trace(trace) if self.total.is_none() => trace.share_read(),
            _ => None,
        };
        match share {
            Some(share) => self.progress.report("reading", share, Some(1.0)),
            None => self.progress.report("reading", self.taken as f64, self.total),
        }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Access, Failure>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.buffer.len()
            && let Err(failure) = self.fill()
        {
            self.left = 0;
            return Some(Err(failure));
        }
        let access = self.buffer.get(self.at)?;
        self.at += 1;
        Some(Ok(*access))
    }
}
