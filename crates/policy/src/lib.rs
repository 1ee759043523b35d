//! The pure cores that decide: index, ladder, eviction, promotion.
#![forbid(unsafe_code)]
