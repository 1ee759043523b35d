//! Running a program under limits: start, measurements, end.

mod ended;
mod error;
mod group_use;
mod peaks;
mod program_run;
mod report;

pub use ended::{Ended, Full};
pub use error::RunError;
pub use program_run::{How, Note, Options, run};
pub use report::{Report, Slice, TierUse};
