//! What this process uses of the machine.

use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::cpu_time;
use crate::memory::kib_field;

/// What this process uses now. A field is 0 where `/proc` does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUse {
    /// Bytes of its pages that are in memory.
    pub resident_bytes: u64,
    /// Bytes of its address space.
    pub virtual_bytes: u64,
    /// Seconds of processor time that it has used, the kernel's for it among them.
    pub cpu_s: f64,
    /// Its threads.
    pub threads: u64,
}

/// What this process uses now.
pub fn process_use() -> ProcessUse {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let spent = cpu_time::process_spent();
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    ProcessUse {
        resident_bytes: kib_field(&status, "VmRSS:").unwrap_or(0),
        virtual_bytes: kib_field(&status, "VmSize:").unwrap_or(0),
        cpu_s: (spent.user + spent.system).as_secs_f64(),
        threads: threads.and_then(|count| count.trim().parse().ok()).unwrap_or(0),
    }
}

/// Files that this process has open, and how many it may have; `None`: as many as it likes, or `/proc` does not tell.
pub fn open_files() -> (Option<u64>, Option<u64>) {
    // The directory that is read is open itself.
    let open = fs::read_dir("/proc/self/fd").ok().map(|files| (files.count() as u64).saturating_sub(1));
    (open, getrlimit(Resource::Nofile).current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something_of_all() {
        let used = process_use();
        assert!(used.resident_bytes > 1 << 16 && used.virtual_bytes >= used.resident_bytes, "{used:?}");
        assert!(used.cpu_s > 0.0 && used.threads > 0, "{used:?}");
        assert_eq!(used.resident_bytes >> 30, crate::memory::resident_bytes().unwrap_or(0) >> 30);
    }

    #[test]
    fn a_file_that_is_opened_counts() {
        let files: Vec<_> = (0..8).map(|_| fs::File::open("/proc/self/status").unwrap()).collect();
        let (open, most) = open_files();
        assert!(
            open.is_some_and(|count| count >= 8 && most.is_none_or(|most| count <= most)),
            "{open:?} {most:?}"
        );
        drop(files);
    }
}
