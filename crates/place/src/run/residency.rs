//! Residency of a running program: the nodes of its memory, and its mapped files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use tiermem_sys::numa;

use crate::capture::mappings::maps;

/// Processes of a program that are looked at; the rest of a larger number is left out.
const PROCESSES_MAX: usize = 256;

/// The memory of a program at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Bytes on each node, of all that is mapped: memory of its own, files, and libraries. What several of its processes share
    /// is counted for each.
    pub bytes: BTreeMap<u32, u64>,
    /// The files that are mapped.
    pub files: BTreeSet<PathBuf>,
}

impl Residency {
    /// Of a process and all its descendants, as far as the kernel lists them: it may leave
    /// some out while others end. Without processes that have ended or belong to another user.
    pub fn of_program(pid: u32) -> Self {
        let mut residency = Residency::default();
        let mut waiting = vec![pid];
        let mut looked_at = 0;
        while let Some(pid) = waiting.pop() {
            for (node, bytes) in numa::held(pid).unwrap_or_default() {
                let sum = residency.bytes.entry(node).or_default();
                *sum = sum.saturating_add(bytes);
            }
            residency.files.extend(files(pid));
            waiting.extend(children(pid));
            looked_at += 1;
            if looked_at >= PROCESSES_MAX {
                break;
            }
        }
        residency
    }

    /// All of its bytes.
    pub fn total(&self) -> u64 {
        self.bytes.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// The files that a process has mapped.
fn files(pid: u32) -> Vec<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let lines = maps::parse(&text).unwrap_or_default().into_iter();
    lines.filter(|line| line.inode != 0).filter_map(|line| line.path.map(PathBuf::from)).collect()
}

/// The processes that any thread of this one has started.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let mut children = Vec::new();
    for list in lists {
        children.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    children
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_and_what_it_starts_are_looked_at() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        // The kernel's list of children may leave some out while others end, and other tests start and end programs too.
        let begun = std::time::Instant::now();
        let own = loop {
            let own = Residency::of_program(std::process::id());
            if own.files.iter().any(|file| file.ends_with("sleep")) {
                break own;
            }
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{:?}", own.files);
        };
        let of_child = Residency::of_program(child.id());
        if fs::exists("/proc/self/numa_maps").unwrap_or(false) {
            assert!(own.total() > of_child.total() && of_child.total() > 0, "{own:?} {of_child:?}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Residency::of_program(child.id()), Residency::default());
    }
}
