//! On which nodes the pages of a running program lie, and which files it has mapped: `/proc/PID/numa_maps`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Pages are counted in these, also where they are larger.
pub const PAGE_BYTES: u64 = 4096;
/// Processes of a program that are looked at; the rest of a larger number is left out.
const PROCESSES_MAX: usize = 256;

/// The pages of a program at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Pages of 4 KiB on each node, of all that is mapped: memory of its own, files, and libraries. What several of its
    /// processes share is counted for each.
    pub pages: BTreeMap<u32, u64>,
    /// The files that are mapped.
    pub files: BTreeSet<PathBuf>,
}

impl Residency {
    /// Of a process and all that descend from it. Nothing of those that have gone or belong to somebody else.
    pub fn of_program(pid: u32) -> Self {
        let mut residency = Residency::default();
        let mut waiting = vec![pid];
        let mut looked_at = 0;
        while let Some(pid) = waiting.pop() {
            if let Ok(text) = fs::read(format!("/proc/{pid}/numa_maps")) {
                residency.add(&text);
            }
            waiting.extend(children(pid));
            looked_at += 1;
            if looked_at >= PROCESSES_MAX {
                break;
            }
        }
        residency
    }

    /// All of its pages.
    pub fn total(&self) -> u64 {
        self.pages.values().sum()
    }

    /// Counts the lines of one `numa_maps`: an address, a policy, then words such as `file=/bin/cat`, `N0=12` and
    /// `kernelpagesize_kB=4`. A line that was cut counts as far as it goes.
    fn add(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            let mut on_nodes = Vec::new();
            let mut pages_each = 1;
            for word in line.split(|byte| *byte == b' ').skip(2) {
                let Some(equals) = word.iter().position(|byte| *byte == b'=') else { continue };
                let (name, value) = (&word[..equals], &word[equals + 1..]);
                let number = || std::str::from_utf8(value).ok()?.parse::<u64>().ok();
                match name {
                    b"file" => {
                        self.files.insert(PathBuf::from(OsString::from_vec(unescaped(value))));
                    }
                    b"kernelpagesize_kB" => {
                        pages_each = number().map_or(1, |kib| (kib.saturating_mul(1024) / PAGE_BYTES).max(1));
                    }
                    _ => {
                        let node = name
                            .strip_prefix(b"N")
                            .and_then(|node| std::str::from_utf8(node).ok()?.parse().ok());
                        on_nodes.extend(node.zip(number()));
                    }
                }
            }
            for (node, pages) in on_nodes {
                let count = self.pages.entry(node).or_default();
                *count = count.saturating_add(pages.saturating_mul(pages_each));
            }
        }
    }
}

/// The processes that any thread of this one has started.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// The kernel writes spaces and ends of lines in a path as three octal digits.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| first == b'\\');
        let octal = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &behind[3..] } else { behind };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_are_counted_by_node_in_their_size() {
        let mut residency = Residency::default();
        residency.add(
            b"55d0c0000000 default file=/tmp/a\\040b mapped=3 mapmax=2 N0=2 N1=1 kernelpagesize_kB=4\n\
              7f0000000000 bind:1 anon=2 dirty=2 active=0 N1=2 kernelpagesize_kB=2048\n\
              7ffd00000000 default stack anon=4 dirty=4 N0=4\n\
              7ffe00000000 default",
        );
        assert_eq!(residency.pages, BTreeMap::from([(0, 6), (1, 1025)]));
        assert_eq!(residency.files, BTreeSet::from([PathBuf::from("/tmp/a b")]));
        assert_eq!(residency.total(), 1031);
    }

    #[test]
    fn a_program_and_what_it_starts_are_looked_at() {
        let own = Residency::of_program(std::process::id());
        if own.total() == 0 {
            return;
        }
        assert!(own.files.iter().any(|file| file.is_absolute()));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let both = Residency::of_program(std::process::id());
        assert!(own.total() > 0 && both.total() > 0);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Residency::of_program(child.id()), Residency::default());
    }

    proptest! {
        #[test]
        fn noise_is_no_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            Residency::default().add(&text);
            unescaped(&text);
        }
    }
}
