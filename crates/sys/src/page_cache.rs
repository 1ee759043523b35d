//! Page cache: drops files from it, so that they are read again.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{Advice, fadvise, sync};

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Drops all of the machine's file pages that are neither mapped nor dirty, and the kernel's caches of folders. Every process on
/// the machine reads its files anew.
///
/// # Errors
/// Permission denied if this is not root, or if `/proc/sys` cannot be written, as in most containers.
pub fn drop_all() -> io::Result<()> {
    // Pages that are not yet written stay.
    sync();
    fs::write(DROP_CACHES, "3")
}

/// Drops the pages of one file, except for mapped ones.
///
/// # Errors
/// The error of opening it.
pub fn drop_file(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    // Pages that are not yet written stay. A file system that cannot be written has none.
    let _ = file.sync_data();
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_dropped_and_keeps_its_bytes() {
        let path = std::env::temp_dir().join(format!("tiermem-cold-{}", std::process::id()));
        fs::write(&path, [7; 10_000]).unwrap();
        drop_file(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [7; 10_000]);
        fs::remove_file(&path).unwrap();
        assert!(drop_file(&path).is_err());
        drop_file(&std::env::temp_dir()).unwrap();
    }
}
