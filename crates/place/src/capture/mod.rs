//! Observation of unmodified programs.

mod build_id;
mod clock;
mod error;
pub mod lackey;
mod layout;
pub mod live;
pub mod machine;
pub mod mappings;
mod numa_residency;
pub(crate) mod observer;
mod options;
pub mod perf_mem;
pub mod physical;
mod process_tree;
pub mod program;
mod resident;
mod sampling;
pub(crate) mod schedule;
mod sites;
mod table;
mod tracee;

pub use clock::Timing;
pub use error::CaptureError;
pub use program::Stop;

use std::ffi::OsString;

use tiermem_trace::recording::Executable;

/// The file of a command, with its build-id.
///
/// # Errors
/// If the program does not exist.
pub fn executable_of(command: &[OsString]) -> Result<Executable, CaptureError> {
    let (file, _) = program::resolve(command)?;
    let path = std::fs::canonicalize(&file).unwrap_or(file).to_string_lossy().into_owned();
    let build_id = build_id::of_path(Some(&path));
    Ok(Executable { path, build_id })
}

/// Whether a process runs this program: the build-id is that of its file, or, for a program without one, the file itself.
pub(crate) fn runs_executable(pid: u32, path: &str, build_id: Option<&str>) -> bool {
    let link = std::fs::read_link(format!("/proc/{pid}/exe"));
    let found = link.map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
    match build_id {
        Some(build_id) => build_id::of_path(Some(&found)).as_deref() == Some(build_id),
        None => found == path,
    }
}
