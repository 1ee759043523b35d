//! What a program needs: told as a size, or by a recording of it.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::anyhow;
use tiermem_base::Bytes;
use tiermem_trace::recording;

use crate::failure::Failure;

/// What a program needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Required {
    /// So many bytes.
    Bytes(u64),
    /// What this recording tells. (A file whose name is a size has to be given with its folder.)
    Recording(PathBuf),
}

impl FromStr for Required {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text
            .parse()
            .map_or_else(|_| Required::Recording(text.into()), |Bytes(bytes)| Required::Bytes(bytes)))
    }
}

impl Required {
    /// The bytes.
    pub fn bytes(&self) -> Result<u64, Failure> {
        match self {
            Required::Bytes(bytes) => Ok(*bytes),
            Required::Recording(path) => of_recording(path),
        }
    }
}

/// The most that the processes of a recording had in memory: of anonymous, shared and mapped pages, as `required_bytes` of a report.
fn of_recording(path: &Path) -> Result<u64, Failure> {
    let name = path.display();
    if !path.exists() {
        return Err(Failure::usage(anyhow!(
            "--required {name}: it is neither a size, such as 12GiB, nor a recording that is there"
        )));
    }
    let recording = recording::read(path).map_err(|error| {
        Failure::usage(anyhow!(
            "--required: {error}; give a size, such as 12GiB, or a recording of `tiermem record`"
        ))
    })?;
    let resident = (0..recording.head.slices.len()).filter_map(|slice| recording.rss(slice));
    let required_bytes = resident.max().filter(|bytes| *bytes > 0).ok_or_else(|| {
        Failure::usage(anyhow!(
            "--required {name}: the recording does not tell how much the program had in memory (RSS): it is imported, or of an older version, \
             or the program ended within a slice; record it with `tiermem record --slice 50ms`, or give a size, such as 12GiB"
        ))
    })?;
    let in_part = recording.incompleteness().map_or_else(String::new, |part| format!(" ({part})"));
    eprintln!("tiermem: {name} tells that the program needs {}{in_part}", Bytes(required_bytes));
    Ok(required_bytes)
}
