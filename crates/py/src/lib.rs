//! The native module of the Python package: `python/tiermem` wraps it in types of Python. Functions here take and give what
//! both sides know: numbers, text, and Arrow streams. Long work runs without the interpreter's lock.
#![forbid(unsafe_code)]

mod columns;
mod failure;
mod mrc;
mod progress;
mod report;
mod simulate;
mod source;
mod stat;
mod stream;

use pyo3::prelude::*;

/// The native module.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::mrc::{mean_curve, mrc, policies};
    #[pymodule_export]
    use super::report::report;
    #[pymodule_export]
    use super::simulate::simulate;
    #[pymodule_export]
    use super::stat::stat;
    #[pymodule_export]
    use super::stream::{TraceStream, generate, read_trace};

    /// Initializes the module.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
