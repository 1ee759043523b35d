//! Moving a running program's pages between nodes, as a plan or what is seen of the program says.

mod mover;
mod planned;
pub mod speed;

pub use mover::{Moved, Mover, Pages};
pub use planned::{Failure, Options, Placement, Report, run};
