//! Filters of traces: choosing accesses, merging traces by time, splitting one into several, and simulating the caches between a
//! program and its memory.

mod choose;
pub mod hierarchy;
mod merge;
mod split;

pub use choose::{Filter, Judge, Verdict};
pub use merge::{KeySpaces, Merge, MergeError, MergeOptions};
pub use split::{Splitter, key_part};
