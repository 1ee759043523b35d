//! Access traces: readers and generators.
#![forbid(unsafe_code)]
