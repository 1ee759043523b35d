//! What a trace needs of memory: gathered in one pass ([`Gatherer`]), and drawn as one self-contained page
//! ([`Report::to_html`]) that needs no network and, but for values under the pointer, no script. What a program does with
//! its memory is drawn by [`heatmap`].
#![forbid(unsafe_code)]

mod chart;
mod escape;
mod gather;
pub mod heatmap;
mod page;
mod quantity;
mod sampling;

pub use gather::{Gatherer, Options, Report, ReportError};
pub use quantity::grouped;
pub use sampling::{expected_requests, sample_rate_for};
