//! What a program uses at one moment, by its group.

use std::collections::BTreeMap;
use std::fs;

use tiermem_sys::control_group::{Group, GroupError, Version};

/// Bytes of a program at one moment, and its counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// All that is charged: memory with the file cache; without a group what its processes have in memory.
    pub charged_bytes: u64,
    /// In swap. With version 2 also what is in DRAM as well.
    pub swap_bytes: u64,
    /// In places of swap that are taken: what is in DRAM as well counts.
    pub swap_places_bytes: u64,
    /// Anonymous memory, shared memory and mapped files, in DRAM or in swap: what a program needs to have somewhere.
    pub required_bytes: u64,
    /// Of them shared memory, by files without a name or in memory.
    pub shared_bytes: u64,
    /// In DRAM, and mapped by no process: fetched ahead and not used yet, or written to swap and not given up.
    pub unmapped_bytes: u64,
    /// Being written to a disk.
    pub writing_bytes: u64,
    /// Page faults.
    pub faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Pages read from swap and written to it; `None` where the kernel does not count them for the group.
    pub swapped_in: Option<u64>,
    /// See [`Self::swapped_in`].
    pub swapped_out: Option<u64>,
}

impl MemoryUse {
    /// That of a group.
    pub fn of_group(group: &Group) -> Result<Self, GroupError> {
        let stat = group.stat()?;
        let swap_bytes = group.swap_usage_bytes().unwrap_or(0);
        let parts = Parts::of(group.version(), &stat);
        let mapped_shared = if parts.shared == 0 { 0 } else { mapped_shared_bytes(group) };
        Ok(MemoryUse {
            charged_bytes: group.usage_bytes()?,
            swap_bytes,
            swap_places_bytes: parts.swap_places(swap_bytes),
            required_bytes: parts.required(swap_bytes, mapped_shared),
            shared_bytes: parts.shared,
            unmapped_bytes: parts.unmapped,
            writing_bytes: parts.writing,
            ..MemoryUse::counts_of(group.version(), &stat)
        })
    }

    /// In DRAM, mapped by no process, and not being written.
    pub fn settled_bytes(&self) -> u64 {
        self.unmapped_bytes.saturating_sub(self.writing_bytes)
    }

    fn counts_of(version: Version, stat: &BTreeMap<String, u64>) -> Self {
        let get = |name: &str| stat.get(name).copied();
        let faults = match version {
            Version::One => ["total_pgfault", "total_pgmajfault"],
            Version::Two => ["pgfault", "pgmajfault"],
        };
        let [faults, major_faults] = faults.map(|name| get(name).unwrap_or(0));
        MemoryUse {
            faults,
            major_faults,
            swapped_in: get("pswpin"),
            swapped_out: get("pswpout"),
            ..MemoryUse::default()
        }
    }
}

/// Parts of a group's memory, as both versions tell them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parts {
    anonymous: u64,
    shared: u64,
    /// Of files and of shared memory.
    mapped: u64,
    /// In DRAM and in swap at once.
    cached: u64,
    /// Of these what no process has mapped: fetched ahead and not used yet, or on its way out.
    unmapped: u64,
    writing: u64,
    /// Whether the swap that is charged to the group has what is in DRAM as well (version 2).
    cached_counts: bool,
}

impl Parts {
    fn of(version: Version, stat: &BTreeMap<String, u64>) -> Self {
        let names = match version {
            Version::One => {
                ["total_rss", "total_shmem", "total_mapped_file", "total_swapcached", "total_writeback"]
            }
            // It counts anonymous memory as well.
            Version::Two => ["anon", "shmem", "file_mapped", "swapcached", "file_writeback"],
        };
        let lists = match version {
            Version::One => ["total_inactive_anon", "total_active_anon", "total_unevictable"],
            Version::Two => ["inactive_anon", "active_anon", "unevictable"],
        };
        let get = |name: &str| stat.get(name).copied().unwrap_or(0);
        let [anonymous, shared, mapped, cached, writing] = names.map(get);
        let [inactive, active, locked] = lists.map(get);
        // The lists have all that is neither of a file nor locked; what is mapped of it is counted by itself.
        let listed_mapped = (anonymous + shared).saturating_sub(locked);
        let unmapped = (inactive + active).saturating_sub(listed_mapped).min(cached);
        Parts { anonymous, shared, mapped, cached, unmapped, writing, cached_counts: version == Version::Two }
    }

    /// Shared memory that is mapped counts among what is mapped as well, and what is in DRAM and in swap counts in both: once each.
    fn required(self, swap_bytes: u64, mapped_shared: u64) -> u64 {
        let twice = mapped_shared.min(self.shared).min(self.mapped);
        let in_dram = self.anonymous + self.shared + self.unmapped + self.mapped - twice;
        in_dram + if self.cached_counts { swap_bytes.saturating_sub(self.cached) } else { swap_bytes }
    }

    fn swap_places(self, swap_bytes: u64) -> u64 {
        if self.cached_counts { swap_bytes } else { swap_bytes + self.cached }
    }
}

/// Shared memory that the processes of a group have mapped; what several have mapped counts more than once.
fn mapped_shared_bytes(group: &Group) -> u64 {
    let of_process = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let kib = status.lines().find_map(|line| line.strip_prefix("RssShmem:")?.strip_suffix("kB"));
        kib.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    group.processes().unwrap_or_default().into_iter().map(of_process).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        pairs.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
    }

    #[test]
    fn both_versions_tell_the_same() {
        let first = table(&[
            ("rss", 1),
            ("total_rss", 100),
            ("total_shmem", 50),
            ("total_mapped_file", 70),
            ("total_swapcached", 5),
            ("total_writeback", 1),
            ("total_inactive_anon", 60),
            ("total_active_anon", 73),
            ("total_unevictable", 20),
            ("total_pgfault", 9),
            ("total_pgmajfault", 2),
        ]);
        let second = table(&[
            ("anon", 100),
            ("shmem", 50),
            ("file_mapped", 70),
            ("swapcached", 5),
            ("file_writeback", 1),
            ("inactive_anon", 60),
            ("active_anon", 73),
            ("unevictable", 20),
            ("pgfault", 9),
            ("pgmajfault", 2),
            ("pswpin", 3),
        ]);
        let (parts, others) = (Parts::of(Version::One, &first), Parts::of(Version::Two, &second));
        assert_eq!(Parts { cached_counts: true, ..parts }, others);
        let counts = MemoryUse::counts_of(Version::One, &first);
        assert_eq!((counts.faults, counts.major_faults, counts.swapped_in), (9, 2, None));
        assert_eq!(MemoryUse::counts_of(Version::Two, &second).swapped_in, Some(3));
        // 40 of the shared memory are mapped; 25 are in swap alone, and 5 in DRAM as well, of which 3 are mapped by nobody.
        assert_eq!(parts.required(25, 40), 100 + 50 + 3 + 30 + 25);
        assert_eq!(others.required(30, 40), 100 + 50 + 3 + 30 + 25);
        assert_eq!((parts.swap_places(25), others.swap_places(30)), (30, 30));
        // Processes that map the same together map no more than there is.
        assert_eq!(parts.required(0, 400), 100 + 3 + 70);
    }

    #[test]
    fn what_is_being_written_has_not_settled() {
        let memory = |unmapped_bytes, writing_bytes| MemoryUse {
            unmapped_bytes,
            writing_bytes,
            ..MemoryUse::default()
        };
        assert_eq!(memory(150, 100).settled_bytes(), 50);
        // Both are counted one after the other.
        assert_eq!(memory(150, 200).settled_bytes(), 0);
    }
}
