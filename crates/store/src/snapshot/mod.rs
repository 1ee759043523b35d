//! Snapshots: the contents of memory in a file, so that a restart finds them.
//!
//! A snapshot taken when the store stopped is the store's last state. It is loaded once, by any number of shards; a run
//! that does not load it supersedes it too. A snapshot taken while the store ran is older than later changes: loading
//! it after a crash brings back items deleted or overwritten since, so that is done only on request ([`Load::Always`]).

mod files;
pub mod format;
mod load;
mod save;

pub use files::{Files, LoadError, path_of};
pub use load::{Load, Loaded, Progress};
pub use save::{SaveError, Saved, Saving, Step, Unplaced};
