//! Texts of perf whose samples are known.
