//! Moving a running program's pages between nodes, as a plan or what is seen of the program says.

mod attached;
mod body;
mod mover;
mod planned;
mod report;
mod room;
pub mod speed;

pub use body::{Bind, Body, MappedRegion, Placement, Touched};
pub use mover::{Moved, Mover, Pages};
pub use planned::{Options, run};
pub use report::{Failure, Report};
