//! Simulators that drive the cores of `policy` over a trace.
//!
//! They are drivers only: every decision is made by the code that the live engine runs.
#![forbid(unsafe_code)]

pub mod block;
pub mod cache;
pub mod cxl_flash;
pub mod events;
pub mod frames;
pub mod hindsight;
pub mod link;
mod next_use;
