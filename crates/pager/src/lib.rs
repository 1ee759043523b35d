//! Pager: unmodified programs in less DRAM than they need.
//!
//! The kernel serves the faults and keeps the bytes; a control group limits the program's DRAM, and a swap file takes what does not fit.
//! `docs/pager-design.md` says how the parts work together.
//!
//! Source: Yang 2024, chapter 4: a hybrid pool of DRAM and flash under a program.
#![forbid(unsafe_code)]

pub mod control;
pub mod cost;
pub mod machine;
pub mod run;
pub mod steer;
