//! What steers a program, as it is asked for.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use tiermem_model::placement::Plan;
use tiermem_policy::{evict, prefetch};

use super::memory_pool::MemoryPool;

/// What steers a program.
#[derive(Clone, Debug)]
pub struct SteerOptions {
    /// Who leaves; `None`: as the kernel's own reclaim chooses.
    pub evict: Option<evict::Named>,
    /// What is fetched ahead.
    pub prefetch: prefetch::Named,
    /// Whether sweeps drop what they have passed, where that pays.
    pub drop_behind: bool,
    /// The granules by which references are told to a policy that chooses who leaves; `None`: it hears of page faults alone.
    pub granule_bytes: Option<u64>,
    /// Memory of two nodes, if the program has that.
    pub pool: Option<MemoryPool>,
    /// The plan to follow.
    pub plan: Option<Arc<Plan>>,
    /// Where the events and the acts of steering are written.
    pub log: Option<PathBuf>,
    /// A command that, with the folder of a group behind it, calls [`crate::machine::keep_counts_fresh`]: without, nothing is dropped.
    pub fresh_counts: Vec<OsString>,
}

impl SteerOptions {
    /// Whether there is nothing that steering would do.
    pub fn is_idle(&self) -> bool {
        self.evict.is_none()
            && self.prefetch == prefetch::Named::None
            && !self.drop_behind
            && self.plan.is_none()
            && self.pool.is_none()
    }
}
