//! Texts of perf with known counts.
