//! Processes that stay in the groups that they are in: one, its descendants, and those that come.
//!
//! Descendants are found by the lists of children that the kernel keeps. One whose parent ends before it is listed is missed in the figures;
//! steering hears of its faults all the same.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tiermem_sys::child;
use tiermem_sys::process_identity::ProcessIdentity;
use tiermem_sys::process_stat::{ProcessMemory, ProcessStat};

use super::memory_use::MemoryUse;

/// Least time between two lists of children, and the part of the time that listing them may take.
const LISTED_EVERY: Duration = Duration::from_millis(100);
const LISTING_PART: u32 = 50;

/// The processes.
#[derive(Debug)]
pub struct ProcessTree {
    /// Those that live, with their counts when they were last seen.
    living: BTreeMap<u32, (ProcessIdentity, ProcessStat)>,
    /// Counts of those that have ended.
    minor_faults: u64,
    major_faults: u64,
    next_list: Instant,
}

impl ProcessTree {
    /// A process, if it lives, and its descendants.
    pub fn of(process: ProcessIdentity) -> Self {
        let living = BTreeMap::from([(process.pid, (process, ProcessStat::default()))]);
        let mut tree = ProcessTree { living, minor_faults: 0, major_faults: 0, next_list: Instant::now() };
        tree.list();
        tree
    }

    /// Those that lived at the last look.
    pub fn processes(&self) -> Vec<u32> {
        self.living.keys().copied().collect()
    }

    /// Looks at all. Memory that several share counts for each.
    pub fn look(&mut self) -> MemoryUse {
        if Instant::now() >= self.next_list {
            self.list();
        }
        let mut sum = MemoryUse::default();
        let ProcessTree { living, minor_faults, major_faults, .. } = self;
        living.retain(|pid, (identity, last)| {
            let (memory, stat) = (ProcessMemory::of(*pid), ProcessStat::of(*pid));
            // Asked last: what was read is then its own.
            let (Some(memory), Some(stat), true) = (memory, stat, identity.is_alive()) else {
                *minor_faults += last.minor_faults;
                *major_faults += last.major_faults;
                return false;
            };
            *last = stat;
            sum.charged_bytes += memory.resident();
            sum.swap_bytes += memory.swapped;
            sum.shared_bytes += memory.shared;
            sum.faults += stat.minor_faults + stat.major_faults;
            sum.major_faults += stat.major_faults;
            true
        });
        sum.required_bytes = sum.charged_bytes + sum.swap_bytes;
        sum.swap_places_bytes = sum.swap_bytes;
        sum.faults += self.minor_faults + self.major_faults;
        sum.major_faults += self.major_faults;
        sum
    }

    fn list(&mut self) {
        let begun = Instant::now();
        let mut open = self.processes();
        while let Some(pid) = open.pop() {
            for child in child::children(pid) {
                if let Some(identity) =
                    ProcessIdentity::of(child).filter(|_| !self.living.contains_key(&child))
                {
                    self.living.insert(child, (identity, ProcessStat::default()));
                    open.push(child);
                }
            }
        }
        self.next_list = Instant::now() + LISTED_EVERY.max(begun.elapsed() * LISTING_PART);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_belong_to_it_and_what_has_ended_still_counts() {
        let script = "sleep 1000 & wait";
        let mut shell = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
        let identity = ProcessIdentity::of(shell.id()).unwrap();
        while child::children(shell.id()).is_empty() {
            std::thread::yield_now();
        }
        let mut tree = ProcessTree::of(identity);
        let processes = tree.processes();
        assert!(processes.len() == 2 && processes.contains(&shell.id()), "{processes:?}");
        let before = tree.look();
        assert!(
            before.charged_bytes > 0 && before.required_bytes >= before.charged_bytes && before.faults > 0
        );
        child::end_tree(shell.id());
        shell.wait().unwrap();
        while !tree.processes().is_empty() {
            assert!(tree.look().faults >= before.faults);
        }
        assert_eq!(
            tree.look(),
            MemoryUse { charged_bytes: 0, required_bytes: 0, shared_bytes: 0, ..tree.look() }
        );
    }
}
