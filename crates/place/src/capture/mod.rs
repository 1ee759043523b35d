//! Watching a program that knows nothing of it.

pub mod physical;
