//! Reading of a recording, or of a memory trace converted to one.

use std::path::Path;

use anyhow::anyhow;
use tiermem_base::Bytes;
use tiermem_sys::disk::is_locked;
use tiermem_trace::recording::{self, FromTrace, FromTraceError, Recording};
use tiermem_trace::{Spec, TraceError};

use super::Options;
use crate::failure::Failure;
use crate::source::{Reading, TraceArgs};

/// The granule of a trace's addresses, where none finer is asked for.
const TRACE_GRANULE: u64 = 4096;

/// Reads what the command line names.
pub fn read(options: &Options, name: &str) -> Result<Recording, Failure> {
    let path = Path::new(name);
    if !Spec::looks_like_one(name) && recording::looks_like_one(path) {
        match recording::read(path) {
            Ok(recording) => return Ok(so_far(path, recording)),
            Err(TraceError::Form { reason, .. }) if reason.starts_with(recording::NO_REGIONS) => {}
            Err(error) => return Err(Failure::failed(error)),
        }
    }
    from_trace(options, name)
}

/// How the note begins of a recording that is under way.
const UNDER_WAY: &str = "the recording is under way";

/// Of a recording whose recorder lives, the note says so, and not that it has ended too early.
fn so_far(path: &Path, mut recording: Recording) -> Recording {
    let slices = recording.head.slices.len();
    let Some(early) = recording.incompleteness().map(str::to_owned) else { return recording };
    if std::fs::File::open(path).and_then(|file| is_locked(&file)).unwrap_or(false) {
        let note = format!("{UNDER_WAY}: these are its {slices} slices so far");
        recording.head.notes.iter_mut().filter(|its| **its == early).for_each(|its| its.clone_from(&note));
    }
    recording
}

/// What a note says, if there is not all of a recording.
pub fn note_of_part(recording: &Recording) -> Option<&str> {
    let under_way = || recording.head.notes.iter().find(|note| note.starts_with(UNDER_WAY));
    recording.incompleteness().or_else(|| under_way().map(String::as_str))
}

fn from_trace(options: &Options, name: &str) -> Result<Recording, Failure> {
    let trace = TraceArgs {
        trace: name.to_owned(),
        reading: Reading {
            requests: options.requests,
            skip_bad: options.skip_bad,
            trace_format: options.trace_format,
            addresses: options.addresses,
            ..Reading::default()
        },
    };
    let granule_bytes = options.granule.map_or(TRACE_GRANULE, |Bytes(bytes)| bytes.min(TRACE_GRANULE));
    let mut gatherer = FromTrace::new(options.slice.0, granule_bytes);
    let source = trace.open()?;
    for record in source.records() {
        gatherer.observe(&record?);
    }
    source.finish();
    let others = gatherer.others();
    let recording = gatherer.finish().map_err(|error| {
        let advice = match error {
            FromTraceError::NoMemory => "; a heatmap is made of a recording or of a memory trace",
            FromTraceError::TooManySlices { .. } => "; give longer ones with --slice",
            FromTraceError::TooManyRegions => "",
        };
        Failure::failed(anyhow!("{name}: {error}{advice}"))
    })?;
    if others > 0 {
        eprintln!("tiermem: accesses that are neither loads nor stores and were left out: {others}");
    }
    Ok(recording)
}
