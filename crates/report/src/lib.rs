//! What a trace needs of memory: gathered in one pass ([`Gatherer`]), and drawn as one self-contained page
//! ([`Report::to_html`]) that needs no network and, but for values under the pointer, no script.
#![forbid(unsafe_code)]

mod chart;
mod curves;
mod gather;
mod page;
mod quantity;
mod sampling;

pub use curves::curves;
pub use gather::{Gatherer, Options, Report, ReportError};
pub use quantity::grouped;
pub use sampling::{expected_requests, sample_rate_for};
