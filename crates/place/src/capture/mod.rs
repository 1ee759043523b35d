//! Watching a program that knows nothing of it.

mod clock;
mod error;
pub mod lackey;
mod layout;
pub mod maps;
pub mod perf_mem;
pub mod physical;
mod table;
mod tracee;

pub use self::clock::Timing;
pub use self::error::CaptureError;
pub use self::tracee::Stop;
