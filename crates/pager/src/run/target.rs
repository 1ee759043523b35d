//! What is paged: the processes of a control group, or processes wherever they are.

use tiermem_sys::control_group::{Group, all_processes};

use super::memory_use::MemoryUse;
use super::process_tree::ProcessTree;

/// What is paged.
#[derive(Debug)]
pub enum Target {
    /// A group that was made for the program.
    OwnGroup(Group),
    /// A group that was there before, and has peaks and counts from then.
    Group(Group),
    /// Processes.
    Processes(ProcessTree),
}

impl Target {
    /// The processes that live.
    pub fn processes(&self) -> Vec<u32> {
        match self {
            Target::OwnGroup(group) | Target::Group(group) => all_processes(group).unwrap_or_default(),
            Target::Processes(tree) => tree.processes(),
        }
    }

    /// What it uses now; `None` where the group does not tell for once.
    pub fn look(&mut self) -> Option<MemoryUse> {
        match self {
            Target::OwnGroup(group) | Target::Group(group) => MemoryUse::of_group(group).ok(),
            Target::Processes(tree) => Some(tree.look()),
        }
    }

    /// Its group, if it has limits of ours.
    pub fn group(&self) -> Option<&Group> {
        match self {
            Target::OwnGroup(group) | Target::Group(group) => Some(group),
            Target::Processes(_) => None,
        }
    }

    /// Processes that the kernel has killed for want of memory, so far.
    pub fn killed(&self) -> u64 {
        self.group().and_then(|group| group.events().ok()?.killed).unwrap_or(0)
    }
}
