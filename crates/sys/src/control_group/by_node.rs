//! The memory of a group on each NUMA node.

use std::collections::BTreeMap;

use super::error::GroupError;
use super::files;
use super::group::Group;
use super::version::Version;

const PAGE_BYTES: u64 = 4096;

/// Bytes of a group by node: anonymous memory, the file cache and the swap cache.
///
/// # Errors
/// The system's error.
pub fn bytes_by_node(group: &Group) -> Result<BTreeMap<u32, u64>, GroupError> {
    let file = group.path().join("memory.numa_stat");
    let text = files::read("read the memory by node of", &file)?;
    Ok(by_node(group.version(), &text))
}

/// Version 1 counts pages and has a sum; version 2 counts bytes, of anonymous memory and of files apart.
fn by_node(version: Version, text: &str) -> BTreeMap<u32, u64> {
    let mut sums = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let unit = match (version, words.next().unwrap_or_default()) {
            (Version::One, word) if word.starts_with("hierarchical_total=") => PAGE_BYTES,
            (Version::Two, "anon" | "file") => 1,
            _ => continue,
        };
        for (node, count) in words.filter_map(|word| word.strip_prefix('N')?.split_once('=')) {
            if let (Ok(node), Ok(count)) = (node.parse::<u32>(), count.parse::<u64>()) {
                let sum: &mut u64 = sums.entry(node).or_default();
                *sum = sum.saturating_add(count.saturating_mul(unit));
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_tell_bytes() {
        let first =
            "total=9 N0=9\nfile=1 N0=1\nhierarchical_total=30 N0=10 N1=20\nhierarchical_anon=3 N0=3\n";
        assert_eq!(by_node(Version::One, first), BTreeMap::from([(0, 40_960), (1, 81_920)]));
        let second = "anon N0=4096 N1=8192\nfile N0=100 N1=0\nfile_mapped N0=50 N1=0\nshmem N0=7 N1=x\n";
        assert_eq!(by_node(Version::Two, second), BTreeMap::from([(0, 4196), (1, 8192)]));
        assert!(by_node(Version::Two, "").is_empty());
    }
}
