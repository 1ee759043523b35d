//! Access traces: readers of the formats that traces are published in, seeded generators of synthetic ones, filters
//! and statistics.
//!
//! Everything yields [`tiermem_base::Access`]. Wherever a command takes a TRACE, that is either the path of a
//! file or the description of a generator, such as `zipf:alpha=0.99,objects=1000000`; [`open`] takes both.
#![forbid(unsafe_code)]

mod error;
pub mod filter;
pub mod generate;
mod open;
mod optional;
#[cfg(feature = "pairs")]
pub mod pairs;
#[cfg(feature = "parquet")]
mod parquet_form;
pub mod reader;
#[cfg(feature = "parquet")]
pub mod recording;
mod spec;
pub mod stat;
#[cfg(feature = "parquet")]
pub mod tensor_file;
mod trace;
pub mod writer;

pub use error::{BadRecord, RecordPosition, SpecError, TraceError};
pub use open::{open, open_with};
pub use optional::{OptionalColumn, OptionalColumns, OptionalRow, OptionalSet};
pub use reader::{Addresses, CsvColumns, Fields, Format, ReadOptions};
pub use spec::{Kind, Spec, parse_count};
pub use trace::{Notes, Trace};
