//! Physical memory: which physical addresses are memory, and on which node.

use std::fs;
use std::io;
use std::path::Path;

/// A stretch of physical addresses that is memory of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ram {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// The node.
    pub node: u32,
}

/// The machine's memory, in the order of addresses.
///
/// # Errors
/// Permission denied for all but root: only root is told physical addresses.
pub fn ram() -> io::Result<Vec<Ram>> {
    let text = fs::read_to_string("/proc/iomem")?;
    let blocks = Blocks::read(Path::new("/sys/devices/system"));
    let ram = parse(&text, &blocks);
    if ram.is_empty() { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(ram) }
}

/// The blocks in which memory comes and goes, each of which is of one node.
#[derive(Debug, Default)]
struct Blocks {
    bytes: u64,
    /// Number and node, in the order of numbers.
    nodes: Vec<(u64, u32)>,
}

impl Blocks {
    fn read(devices: &Path) -> Self {
        let text = fs::read_to_string(devices.join("memory/block_size_bytes")).unwrap_or_default();
        let bytes = u64::from_str_radix(text.trim(), 16).unwrap_or(0);
        let mut nodes = Vec::new();
        for node in fs::read_dir(devices.join("node")).into_iter().flatten().flatten() {
            let Some(number) = numbered(&node.file_name().to_string_lossy(), "node") else { continue };
            for block in fs::read_dir(node.path()).into_iter().flatten().flatten() {
                let block = numbered(&block.file_name().to_string_lossy(), "memory");
                nodes.extend(block.zip(u32::try_from(number).ok()));
            }
        }
        nodes.sort_unstable();
        Blocks { bytes, nodes }
    }

    /// The node of an address, and where its block ends; node 0 where the kernel does not divide its memory.
    fn of(&self, address: u64) -> (u32, u64) {
        let Some(block) = address.checked_div(self.bytes) else { return (0, u64::MAX) };
        let node = self.nodes.binary_search_by_key(&block, |it| it.0).map_or(0, |at| self.nodes[at].1);
        (node, (block + 1).saturating_mul(self.bytes))
    }
}

/// `memory12` of `memory` is 12.
fn numbered(name: &str, kind: &str) -> Option<u64> {
    name.strip_prefix(kind)?.parse().ok()
}

/// Memory is so called wherever it stands in the tree: that behind CXL windows is within them.
fn parse(text: &str, blocks: &Blocks) -> Vec<Ram> {
    let mut ram: Vec<Ram> = Vec::new();
    for line in text.lines() {
        let Some((range, what)) = line.trim_start().split_once(" : ") else { continue };
        let Some((start, end)) = range.split_once('-') else { continue };
        let (Ok(start), Ok(last)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else {
            continue;
        };
        // To others than root all addresses are 0.
        if !what.starts_with("System RAM") || last <= start {
            continue;
        }
        let (mut from, end) = (start, last.saturating_add(1));
        while from < end {
            let (node, until) = blocks.of(from);
            let until = until.min(end);
            match ram.last_mut() {
                Some(before) if before.end == from && before.node == node => before.end = until,
                _ => ram.push(Ram { start: from, end: until, node }),
            }
            from = until;
        }
    }
    ram.sort_unstable_by_key(|it| it.start);
    ram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_node_by_node() {
        let text = "\
00000000-00000fff : Reserved
00001000-0009fbff : System RAM
00100000-2fffffff : System RAM
  01000000-01ffffff : Kernel code
100000000-17fffffff : CXL Window 0
  100000000-10fffffff : dax0.0
    100000000-107ffffff : System RAM (kmem)
nonsense
";
        let blocks =
            Blocks { bytes: 128 << 20, nodes: vec![(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (32, 2)] };
        let of = |start, end, node| Ram { start, end, node };
        let wanted = [
            of(0x1000, 0x9_fc00, 0),
            of(0x10_0000, 512 << 20, 0),
            of(512 << 20, 768 << 20, 1),
            of(1 << 32, (1 << 32) + (128 << 20), 2),
        ];
        assert_eq!(parse(text, &blocks), wanted);
        let whole = parse("00100000-2fffffff : System RAM\n", &Blocks::default());
        assert_eq!(whole, [of(0x10_0000, 0x3000_0000, 0)]);
        assert_eq!(parse("00000000-00000000 : System RAM\n", &Blocks::default()), []);
    }

    #[test]
    fn this_machine_has_some_if_it_tells() {
        match ram() {
            Ok(ram) => assert!(ram.iter().all(|it| it.start < it.end)),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }
}
