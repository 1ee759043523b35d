//! Running a program under limits: start, measurements, end.

mod compare;
mod ended;
mod error;
mod fault_times;
mod group_use;
mod how;
mod peaks;
mod program_run;
mod report;

pub use compare::{Compared, Series, compare};
pub use ended::{Ended, Full};
pub use error::RunError;
pub use how::{AskedHow, How};
pub use program_run::{Note, Options, run};
pub use report::{MeasuredTimes, Report, Slice, TierUse};
