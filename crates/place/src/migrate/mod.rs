//! Moves a running program's pages between nodes, by a plan or by what is observed.

mod attached;
mod body;
pub mod move_speed;
mod mover;
mod planned;
mod report;
mod room;

pub use body::{Bind, Body, MappedRegion, Placement, Touched};
pub use mover::{Moved, Mover, Pages};
pub use planned::{Options, run};
pub use report::{Failure, Report};
