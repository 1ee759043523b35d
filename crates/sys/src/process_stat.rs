//! What `/proc` tells of any process: its parent, its page faults, its memory.

use std::fs;

use crate::memory::kib_field;

/// Counts of a process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStat {
    /// The number of its parent; 0: it has none that can be seen from here.
    pub parent: u32,
    /// Page faults that took nothing from a disk.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
}

impl ProcessStat {
    /// Those of the process that has this number now; `None`: there is none.
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// From `PID (name) state parent ...`: the name may have any characters.
    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(ProcessStat {
            parent: u32::try_from(number(1)?).ok()?,
            minor_faults: number(7)?,
            major_faults: number(9)?,
        })
    }
}

/// Bytes of a process now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Of no file, in memory.
    pub anonymous: u64,
    /// Of files, in memory.
    pub file: u64,
    /// Shared memory, in memory.
    pub shared: u64,
    /// Of no file, in swap.
    pub swapped: u64,
}

impl ProcessMemory {
    /// Those of the process that has this number now; `None`: there is none, or it has no memory of its own, as a thread of the kernel.
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let bytes = |name: &str| kib_field(status, name);
        Some(ProcessMemory {
            anonymous: bytes("RssAnon:")?,
            file: bytes("RssFile:")?,
            shared: bytes("RssShmem:")?,
            swapped: bytes("VmSwap:").unwrap_or(0),
        })
    }

    /// In memory.
    pub fn resident(&self) -> u64 {
        self.anonymous + self.file + self.shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "7 (a) R 1 (b) S 3 4 5 6 7 8 100 9 20 10 11 12";
        let told = ProcessStat { parent: 3, minor_faults: 100, major_faults: 20 };
        assert_eq!(ProcessStat::parse(stat), Some(told));
        assert_eq!(ProcessStat::parse("7 (a) S 3"), None);
        let status = "Name:\tx\nRssAnon:\t 4 kB\nRssFile:\t 8 kB\nRssShmem:\t 0 kB\nVmSwap:\t 12 kB\n";
        let memory = ProcessMemory { anonymous: 4096, file: 8192, shared: 0, swapped: 12288 };
        assert_eq!(ProcessMemory::parse(status), Some(memory));
        assert_eq!(memory.resident(), 12288);
        assert_eq!(ProcessMemory::parse("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn this_process_has_memory_and_a_parent() {
        let own = std::process::id();
        assert_eq!(ProcessStat::of(own).unwrap().parent, std::os::unix::process::parent_id());
        assert!(ProcessMemory::of(own).unwrap().resident() > 1 << 16);
        assert_eq!((ProcessStat::of(u32::MAX), ProcessMemory::of(u32::MAX)), (None, None));
    }
}
