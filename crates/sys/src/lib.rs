//! The only room with raw system calls. Everything above it is safe code.

pub mod cpu_time;
pub mod mapping;
