//! Progress of a call as reported to Python, and the user's request to end it.

use std::sync::Mutex;

use pyo3::prelude::*;

use crate::failure::Failure;

/// Requests between two reports.
pub const EVERY: u64 = 1 << 16;

/// A callback, or none. It is called as `progress(stage, done, total)`, where `total` is None if it is not known.
#[derive(Debug)]
pub struct Progress {
    callback: Option<Py<PyAny>>,
    /// The callback's exception, where it could not be raised at once.
    raised: Mutex<Option<PyErr>>,
}

impl Progress {
    /// Calls `callback` from now on.
    pub fn new(callback: Option<Py<PyAny>>) -> Self {
        Progress { callback, raised: Mutex::new(None) }
    }

    /// Reports, and raises what the callback raises, or the user's interrupt.
    pub fn report(&self, stage: &str, done: f64, total: Option<f64>) -> Result<(), Failure> {
        Python::attach(|py| {
            py.check_signals()?;
            if let Some(callback) = &self.callback {
                callback.call1(py, (stage, done, total))?;
            }
            Ok(())
        })
    }

    /// [`Self::report`] from where nothing can be raised; [`Self::raise`] does it later.
    pub fn report_later(&self, stage: &str, done: f64, total: Option<f64>) {
        if let Err(Failure::Python(error)) = self.report(stage, done, total) {
            let mut raised = self.raised.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            raised.get_or_insert(error);
        }
    }

    /// Raises what was kept.
    pub fn raise(&self) -> Result<(), Failure> {
        let mut raised = self.raised.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        raised.take().map_or(Ok(()), |error| Err(Failure::Python(error)))
    }
}
