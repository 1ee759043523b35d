//! Tests that no single room may hold, because they look at several: see `tests/`.
