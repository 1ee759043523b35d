//! Migration of a running program's pages between nodes, by a plan or by observation.

mod executor;
mod fast_memory_cap;
pub mod move_speed;
mod mover;
mod planned;
mod process_plan;
mod region_match;
mod report;

pub use executor::{Bind, Executor, Placement, Touched};
pub use mover::{Moved, Mover, Pages};
pub use planned::{Options, run};
pub use process_plan::{PlannedStretch, ProcessPlan, in_recording};
pub use region_match::MappedRegion;
pub use report::{Failure, Report};
