//! Running a program under limits, or attaching to one that runs: start, measurements, end.

mod attach;
mod compare;
mod ended;
mod error;
mod fault_times;
mod how;
mod keeper;
mod late;
mod memory_pool;
mod memory_use;
mod more_dram;
mod note;
mod peaks;
mod process_tree;
mod program_run;
mod reclaim_balance;
mod report;
mod room;
mod steer_options;
mod supervision;
mod target;

pub use attach::{AttachOptions, attach};
pub use compare::{Compared, Series, compare};
pub use ended::{Cause, Ended, Full};
pub use error::RunError;
pub use how::{AskedHow, How};
pub use keeper::keep;
pub use memory_pool::{MemoryPool, PoolBytes};
pub use more_dram::DramSize;
pub use note::Note;
pub use program_run::{Options, run};
pub use report::{MeasuredTimes, Report, Slice, TierUse};
pub use room::WaitOptions;
pub use steer_options::SteerOptions;
