//! Core of all readers: bytes, lines, columns, fixed records, times.

pub(super) mod clock;
pub(super) mod fields;
pub(super) mod fixed;
pub(super) mod info;
pub(super) mod layout;
pub(super) mod lines;
pub(crate) mod source;
