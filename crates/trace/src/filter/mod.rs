//! Parts of traces and traces of parts: choosing accesses, merging traces by time, splitting one into several, and what
//! of a program's accesses passes its caches.

mod choose;
pub mod hierarchy;
mod merge;
mod split;

pub use choose::{Filter, Judge, Verdict};
pub use merge::{KeySpaces, Merge, MergeError, MergeOptions};
pub use split::{Splitter, key_part};
