//! Programs run under a placement strategy, and strategies compared over several trials (Fisher 2025, sections 3.3 and 4.2).

pub mod statistics;
mod strategy;
pub mod stream;
mod trial;

pub use strategy::{Resolved, Strategy, Unavailable};
pub use trial::{Trial, drop_page_cache, run};
