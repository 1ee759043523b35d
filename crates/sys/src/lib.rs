//! System calls: the only crate with raw ones, and the readers of `/proc` and control groups that belong to them.

pub mod affinity;
pub mod agent;
pub mod aging;
pub mod aligned;
#[cfg(feature = "mimalloc")]
pub mod allocator;
pub mod boot;
pub mod boot_time;
pub mod caches;
pub mod child;
pub mod control_group;
pub mod cpu_time;
pub mod disk;
#[cfg(test)]
mod forked;
pub mod inherited;
pub mod kernel_probes;
pub mod limits;
pub mod mapping;
pub mod memory;
pub mod numa;
pub mod own_memory;
pub mod page_cache;
pub mod page_scan;
pub mod pagemap;
pub mod perf;
pub mod pidfd;
pub mod populate;
pub mod prefetch;
mod proc_text;
pub mod process_advice;
pub mod process_claim;
pub mod process_identity;
pub mod process_stat;
pub mod process_use;
pub mod shared_files;
pub mod signals;
pub mod smaps;
pub mod swap;
pub mod uring;
pub mod userfaultfd;
pub mod wait;
