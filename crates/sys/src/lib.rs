//! The only room with raw system calls, and the readings of `/proc` and cgroups that belong to them.

pub mod limits;
pub mod memory;
