//! Tests across crates: see `tests/`.
