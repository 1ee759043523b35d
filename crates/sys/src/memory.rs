//! Memory of this process: how much it may use, and how much it uses.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where a memory limit comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// A cgroup's limit, read from this file.
    Cgroup(PathBuf),
    /// The machine's memory.
    Machine,
}

/// The least of the limits that hold for this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
    /// The source of the limit.
    pub source: LimitSource,
}

/// The machine's memory in bytes, or `None` where `/proc` does not tell.
pub fn total_bytes() -> Option<u64> {
    parse_total(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// Bytes that programs can have without swapping, or `None` where `/proc` does not tell.
pub fn available_bytes() -> Option<u64> {
    kib_field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

fn parse_total(meminfo: &str) -> Option<u64> {
    kib_field(meminfo, "MemTotal:")
}

/// The bytes in a line of the form `Name:   123 kB`.
pub(crate) fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes of a process that are in memory now, or `None` where it has ended or `/proc` does not tell.
pub fn resident_bytes_of_process(pid: u32) -> Option<u64> {
    kib_field(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:")
}

/// Bytes of this process that are in memory now, or `None` where `/proc` does not tell.
pub fn resident_bytes() -> Option<u64> {
    kib_field(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Bytes of those pages that `bytes` begins, ends or lies on which are in memory now, or `None` where `/proc` does not tell.
pub fn resident_bytes_of(bytes: &[u8]) -> Option<u64> {
    const PAGE_BYTES: usize = 4096;
    let first = bytes.as_ptr().addr() / PAGE_BYTES;
    let end = (bytes.as_ptr().addr() + bytes.len()).div_ceil(PAGE_BYTES);
    // Eight bytes for each page of the address space; the highest bit says that it is in memory.
    let mut entries = vec![0; (end - first) * 8];
    File::open("/proc/self/pagemap").ok()?.read_exact_at(&mut entries, first as u64 * 8).ok()?;
    let present = entries.iter().skip(7).step_by(8).filter(|&&byte| byte >> 7 == 1).count();
    Some((present * PAGE_BYTES) as u64)
}

/// The memory this process may use: the least of its cgroups' limits and the machine's memory. `None` where
/// neither can be read. Above `memory.high` the kernel ends nobody, but keeps all that is done from getting on: it is a limit too.
pub fn limit() -> Option<MemoryLimit> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let cgroups = cgroup_limit(Path::new("/sys/fs/cgroup"), &own);
    let machine = total_bytes().map(|bytes| MemoryLimit { bytes, source: LimitSource::Machine });
    cgroups.into_iter().chain(machine).min_by_key(|limit| limit.bytes)
}

/// The least limit on the way from this process's cgroup up to the root, version 2 or 1.
fn cgroup_limit(root: &Path, own: &str) -> Option<MemoryLimit> {
    let mut least: Option<MemoryLimit> = None;
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (base, files): (_, &[&str]) = match controllers {
            "" => (root.to_owned(), &["memory.max", "memory.high"]),
            v1 if v1.split(',').any(|name| name == "memory") => {
                (root.join("memory"), &["memory.limit_in_bytes"])
            }
            _ => continue,
        };
        // In a container the path may not exist below the mounted root; its parents, down to the root, do.
        let directories = Path::new(path.trim_start_matches('/')).ancestors();
        let files = directories.flat_map(|directory| {
            let directory = base.join(directory);
            files.iter().map(move |file| directory.join(file))
        });
        for file in files {
            let read = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
            if let Some(bytes) = read.filter(|bytes| least.as_ref().is_none_or(|it| *bytes < it.bytes)) {
                least = Some(MemoryLimit { bytes, source: LimitSource::Cgroup(file) });
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_memory_is_read_in_kib() {
        assert_eq!(parse_total("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(parse_total("MemFree: 1 kB\n"), None);
        assert!(total_bytes().is_some_and(|bytes| bytes > 0));
        assert!(resident_bytes().is_some_and(|bytes| bytes > 0));
        assert!(resident_bytes_of_process(std::process::id()).is_some_and(|bytes| bytes > 1 << 16));
        // No process has this number.
        assert_eq!(resident_bytes_of_process(u32::MAX), None);
        assert!(limit().is_some());
    }

    #[test]
    fn the_tightest_cgroup_on_the_way_up_counts() {
        let root = std::env::temp_dir().join(format!("tiermem-cgroup-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join("memory/c")).unwrap();
        fs::write(root.join("a/memory.max"), "4096\n").unwrap();
        fs::write(root.join("a/b/memory.max"), "max\n").unwrap();
        fs::write(root.join("memory/c/memory.limit_in_bytes"), "8192\n").unwrap();
        let of_b = || cgroup_limit(&root, "0::/a/b\n").unwrap();
        assert_eq!(of_b().bytes, 4096);
        // The kernel slows all above this down, of the group itself or of one around it.
        fs::write(root.join("a/b/memory.high"), "max\n").unwrap();
        fs::write(root.join("a/memory.high"), "5000\n").unwrap();
        assert_eq!(of_b().bytes, 4096, "the lesser of both");
        fs::write(root.join("a/memory.high"), "3000\n").unwrap();
        assert_eq!(
            of_b(),
            MemoryLimit { bytes: 3000, source: LimitSource::Cgroup(root.join("a/memory.high")) }
        );
        fs::write(root.join("a/b/memory.high"), "2000\n").unwrap();
        assert_eq!(of_b().bytes, 2000);
        fs::write(root.join("a/b/memory.high"), "max\n").unwrap();
        assert_eq!(of_b().bytes, 3000, "it is read anew");
        assert_eq!(cgroup_limit(&root, "5:cpu,memory:/c\n").unwrap().bytes, 8192);
        assert_eq!(cgroup_limit(&root, "0::/elsewhere\n"), None);
        fs::remove_dir_all(root).unwrap();
    }
}
