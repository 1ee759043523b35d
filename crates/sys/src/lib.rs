//! The only room with raw system calls, and the readings of `/proc` and cgroups that belong to them.

pub mod affinity;
pub mod agent;
pub mod aging;
pub mod aligned;
mod area;
pub mod boot;
pub mod caches;
pub mod child;
pub mod cpu_time;
pub mod disk;
pub mod limits;
pub mod mapping;
pub mod memory;
pub mod numa;
pub mod offers;
pub mod page_cache;
pub mod page_scan;
pub mod pagemap;
pub mod perf;
pub mod pidfd;
pub mod populate;
pub mod prefetch;
pub mod smaps;
pub mod uring;
mod userfault;
pub mod wait;
