//! Opens a TRACE argument: a generator's description or a file.

use std::path::Path;

use crate::reader::{self, Addresses, ReadOptions};
use crate::trace::Trace;
use crate::{Spec, TraceError};

/// Opens a TRACE argument: the description of a generator (`zipf:alpha=0.9`, see [`Spec`]) or else a path, whose
/// format and compression are found out. A file whose name looks like a description is reached as `./name`.
pub fn open(trace: &str) -> Result<Trace, TraceError> {
    open_with(trace, &ReadOptions::default())
}

/// [`open`] with an explicit format or with leave to pass over broken records.
pub fn open_with(trace: &str, options: &ReadOptions) -> Result<Trace, TraceError> {
    if Spec::looks_like_one(trace) {
        if options.addresses == Addresses::Physical {
            return Err(TraceError::Form { path: trace.into(), reason: Addresses::NO_FRAMES.to_owned() });
        }
        return Ok(trace.parse::<Spec>()?.open());
    }
    reader::open_file(Path::new(trace), options)
}
