//! Limit on the memory of a measured server, its page cache included.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// A cgroup with a limit on memory, removed with its value. To make one needs the right to.
pub struct MemoryLimit(PathBuf);

impl MemoryLimit {
    /// A cgroup of this process for the server of this name.
    pub fn new(server: &str, limit_bytes: u64) -> Result<Self> {
        let name = format!("tiermem-bench-{server}-{}", std::process::id());
        // Version 1 has a hierarchy for memory alone.
        let v1 = PathBuf::from("/sys/fs/cgroup/memory");
        let (root, file) =
            if v1.is_dir() { (v1, "memory.limit_in_bytes") } else { ("/sys/fs/cgroup".into(), "memory.max") };
        let path = root.join(name);
        fs::create_dir_all(&path).with_context(|| format!("make the cgroup {}", path.display()))?;
        fs::write(path.join(file), limit_bytes.to_string())
            .with_context(|| format!("limit the memory of {}", path.display()))?;
        Ok(MemoryLimit(path))
    }

    /// What the process takes from now on counts.
    pub fn hold(&self, process: u32) -> Result<()> {
        Ok(fs::write(self.0.join("cgroup.procs"), process.to_string())?)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A process that ends stays in its cgroup for a moment.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
