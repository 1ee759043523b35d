//! Watching a program that knows nothing of it.

mod build_id;
mod error;
pub mod live;
pub mod maps;
pub mod physical;
pub(crate) mod program;
mod regions;
mod sampling;

pub use error::CaptureError;
pub use program::Stop;
