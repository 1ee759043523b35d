//! A memory expander on CXL whose capacity is flash behind a DRAM cache (Yang 2023).

pub mod atc23;
pub mod cache;
pub mod flash;
pub mod pages;
