//! Errors as Python exceptions: `OSError` and its children for files, `ValueError` for their contents or for arguments.

use std::io;

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use tiermem_trace::TraceError;

/// Why a call did not do its work.
#[derive(Debug)]
pub enum Failure {
    /// The trace.
    Trace(TraceError),
    /// Columns of Arrow that are no trace, or wrong arguments.
    Value(String),
    /// An exception of Python: its own callback's, or the user's interrupt.
    Python(PyErr),
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        Failure::Trace(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Failure::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        match failure {
            Failure::Trace(error) => trace(&error),
            Failure::Value(text) => PyValueError::new_err(text),
            Failure::Python(error) => error,
        }
    }
}

/// The kind of a system's error chooses the exception, such as FileNotFoundError.
fn trace(error: &TraceError) -> PyErr {
    let text = error.to_string();
    match error {
        TraceError::Open { source, .. }
        | TraceError::Read { source, .. }
        | TraceError::Write { source, .. } => io::Error::new(source.kind(), text).into(),
        TraceError::UnknownFormat { .. } => PyValueError::new_err(format!(
            "{text}; say which with trace_format=, or what its columns are with columns="
        )),
        TraceError::Record { .. } => {
            PyValueError::new_err(format!("{text}; skip_bad=N passes over N such records"))
        }
        _ => PyValueError::new_err(text),
    }
}
