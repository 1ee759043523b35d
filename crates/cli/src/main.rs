//! The binary `tiermem`.
#![forbid(unsafe_code)]

fn main() {}
