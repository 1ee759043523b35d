//! Snapshots: what memory holds, in a file, so that a restart finds it.
//!
//! A snapshot that was taken when the store stopped is what the store knew last, and is loaded once, by
//! however many shards; a run that does not load it supersedes it too. One that was taken while
//! it ran is older than what came behind it: loading it after a crash brings back what was deleted or overwritten since, so
//! that is done only for those who ask for it ([`Load::Always`]).

mod files;
pub mod format;
mod load;
mod save;

pub use files::{Files, LoadError, path_of};
pub use load::{Load, Loaded, Progress};
pub use save::{SaveError, Saved, Saving, Step};
