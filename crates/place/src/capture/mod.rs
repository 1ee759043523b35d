//! Watching a program that knows nothing of it.

mod error;
pub mod physical;
mod program;

pub use error::CaptureError;
pub use program::Stop;
