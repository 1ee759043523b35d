//! Which NUMA nodes this machine has, and binding memory to one of them.

use std::fs;
use std::path::Path;

use crate::mapping::{MapError, Mapping};

/// `MPOL_BIND` of the kernel's `linux/mempolicy.h`: pages come from these nodes and no others.
const MPOL_BIND: libc::c_ulong = 2;

/// A node with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// Its memory in bytes.
    pub bytes: u64,
}

/// The nodes that have memory, in the order of their numbers. None where the kernel does not tell.
pub fn nodes() -> Vec<Node> {
    nodes_below(Path::new("/sys/devices/system/node"))
}

fn nodes_below(root: &Path) -> Vec<Node> {
    let list = fs::read_to_string(root.join("has_memory")).unwrap_or_default();
    let node = |number: u32| {
        let text = fs::read_to_string(root.join(format!("node{number}/meminfo"))).ok()?;
        // Each line begins with the node: "Node 0 MemTotal:  123 kB".
        let line = text.lines().find_map(|line| line.split_once("MemTotal:"))?.1;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(Node { number, bytes: kib.checked_mul(1024)? })
    };
    numbers(&list).into_iter().filter_map(node).collect()
}

/// The cores of the node that has this one; none where the kernel does not tell.
pub fn cores_beside(core: u32) -> Vec<u32> {
    cores_beside_below(Path::new("/sys/devices/system/node"), core)
}

fn cores_beside_below(root: &Path, core: u32) -> Vec<u32> {
    let cores_of = |node: u32| {
        numbers(&fs::read_to_string(root.join(format!("node{node}/cpulist"))).unwrap_or_default())
    };
    let nodes = numbers(&fs::read_to_string(root.join("has_cpu")).unwrap_or_default());
    nodes.into_iter().map(cores_of).find(|cores| cores.contains(&core)).unwrap_or_default()
}

/// The numbers of a list such as `0-2,5`. What cannot be read counts for nothing.
fn numbers(list: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            // The kernel knows 1024 nodes at most.
            numbers.extend(first..=last.min(1023));
        }
    }
    numbers
}

/// Makes all memory that the mapping will take come from one node. Call it before anything is written there.
pub fn bind(mapping: &mut Mapping, node: u32) -> Result<(), MapError> {
    const WORD_BITS: usize = libc::c_ulong::BITS as usize;
    let mut mask: [libc::c_ulong; 1024 / WORD_BITS] = [0; 1024 / WORD_BITS];
    let bytes = mapping.bytes_mut();
    let refused = |bytes: &[u8], source| MapError { bytes: bytes.len(), source };
    let word = mask.get_mut(node as usize / WORD_BITS);
    *word.ok_or_else(|| refused(bytes, rustix::io::Errno::INVAL))? |= 1 << (node as usize % WORD_BITS);
    // SAFETY: the range is a live mapping of our own, held exclusively, and mbind changes none of its contents; the mask
    // outlives the call, which reads one bit less than it is told.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            bytes.as_mut_ptr(),
            bytes.len(),
            MPOL_BIND,
            mask.as_ptr(),
            mask.len() * WORD_BITS + 1,
            0,
        )
    };
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(refused(bytes, rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes_are_read() {
        assert_eq!(numbers("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(numbers("0\n"), [0]);
        assert!(numbers("\n").is_empty() && numbers("a-b").is_empty());
    }

    #[test]
    fn nodes_have_numbers_and_sizes() {
        let root = std::env::temp_dir().join(format!("tiermem-nodes-{}", std::process::id()));
        fs::create_dir_all(root.join("node3")).unwrap();
        fs::write(root.join("has_memory"), "1,3\n").unwrap();
        fs::write(root.join("node3/meminfo"), "Node 3 MemTotal:   2048 kB\nNode 3 MemFree: 1 kB\n").unwrap();
        assert_eq!(nodes_below(&root), [Node { number: 3, bytes: 2 << 20 }]);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_core_has_others_beside_it() {
        let root = std::env::temp_dir().join(format!("tiermem-cores-{}", std::process::id()));
        for (node, cores) in [("node0", "0-1,4\n"), ("node2", "2-3\n")] {
            fs::create_dir_all(root.join(node)).unwrap();
            fs::write(root.join(node).join("cpulist"), cores).unwrap();
        }
        fs::write(root.join("has_cpu"), "0,2\n").unwrap();
        assert_eq!(cores_beside_below(&root, 4), [0, 1, 4]);
        assert_eq!(cores_beside_below(&root, 2), [2, 3]);
        assert!(cores_beside_below(&root, 9).is_empty());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn memory_comes_from_the_node_that_is_asked() {
        let Some(node) = nodes().first().copied() else { return };
        let mut mapping = Mapping::anonymous(1 << 20).unwrap();
        bind(&mut mapping, node.number).unwrap();
        mapping.bytes_mut().fill(1);
        let range = format!("{:x} ", mapping.bytes().as_ptr() as usize);
        let maps = fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
        if let Some(line) = maps.lines().find(|line| line.starts_with(&range)) {
            assert!(line.contains(&format!("bind:{}", node.number)), "{line}");
            assert!(line.contains(&format!(" N{}=", node.number)), "{line}");
        }
        assert!(bind(&mut mapping, 1023).is_err());
        assert!(bind(&mut mapping, 1 << 20).is_err());
    }
}
