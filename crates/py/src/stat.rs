//! Statistics of a trace.

use pyo3::prelude::*;
use tiermem_trace::stat::{Collector, StatOptions};

use crate::failure::Failure;
use crate::progress::Progress;
use crate::source::{Input, Reading};

/// The statistics as JSON, with the fields of `tiermem trace stat --format json`.
#[pyfunction]
pub fn stat(
    py: Python<'_>,
    trace: Input,
    reading: Reading,
    sample: f64,
    block: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let progress = Progress::new(progress);
    let result = py.detach(|| -> Result<_, Failure> {
        if !(sample > 0.0 && sample <= 1.0) {
            return Err(Failure::Value(format!("sample is above 0 and at most 1, not {sample}")));
        }
        let mut collector = Collector::new(StatOptions { sample_rate: sample, block });
        for access in trace.open(&reading)?.records(&progress) {
            collector.observe(&access?);
        }
        serde_json::to_string(&collector.finish()).map_err(|error| Failure::Value(error.to_string()))
    });
    Ok(result?)
}
