//! Report on a trace's memory needs: gathered in one pass ([`Gatherer`]), and drawn as
//! one self-contained page ([`Report::to_html`]) that needs no network and, except for
//! values under the pointer, no script. [`heatmap`] draws a program's use of its memory, [`paged`] a run
//! of it in less DRAM than it needs, and [`paged_dram`] what more would have saved.
#![forbid(unsafe_code)]

mod chart;
mod document;
mod escape;
mod gather;
pub mod heatmap;
mod page;
pub mod paged;
pub mod paged_dram;
mod quantity;
mod sampling;

pub use gather::{Gatherer, Options, Report, ReportError};
pub use quantity::grouped;
pub use sampling::{expected_requests, sample_rate_for};
