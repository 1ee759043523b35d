//! Parts of traces and traces of parts: choosing accesses, merging traces by time, splitting one into several.

mod choose;
mod merge;
mod split;

pub use choose::{Filter, Judge, Verdict};
pub use merge::{KeySpaces, Merge, MergeError, MergeOptions};
pub use split::{Splitter, key_part};
