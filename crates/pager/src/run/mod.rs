//! Running a program under limits: start, measurements, end.

mod compare;
mod ended;
mod error;
mod fault_times;
mod group_use;
mod peaks;
mod program_run;
mod report;

pub use compare::{Compared, Series, compare};
pub use ended::{Ended, Full};
pub use error::RunError;
pub use fault_times::MeasuredTimes;
pub use program_run::{AskedHow, How, Note, Options, run};
pub use report::{Report, Slice, TierUse};
