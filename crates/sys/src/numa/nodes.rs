//! Which NUMA nodes this machine has: their memory, their processors, how far they are from each other, and in which tier the
//! kernel puts them.

use std::fs;
use std::path::Path;

const NODES: &str = "/sys/devices/system/node";
const TIERS: &str = "/sys/devices/virtual/memory_tiering";

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
    nodes_below(Path::new(NODES))
}

/// The memory of a node that nobody uses, in bytes; none if the kernel does not tell. What file caches hold comes on top.
pub fn free_bytes(node: u32) -> Option<u64> {
    meminfo(Path::new(NODES), node, "MemFree:")
}

/// A line of a node's account of its memory, in bytes. Each begins with the node: `Node 0 MemTotal:  123 kB`.
fn meminfo(root: &Path, node: u32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(root.join(format!("node{node}/meminfo"))).ok()?;
    let line = text.lines().find_map(|line| line.split_once(name))?.1;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn nodes_below(root: &Path) -> Vec<Node> {
    let list = fs::read_to_string(root.join("has_memory")).unwrap_or_default();
    let node = |number| Some(Node { number, bytes: meminfo(root, number, "MemTotal:")? });
    numbers(&list).into_iter().filter_map(node).collect()
}

/// The cores of the node that has this one; none where the kernel does not tell.
pub fn cores_beside(core: u32) -> Vec<u32> {
    cores_beside_below(Path::new(NODES), core)
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

/// What the kernel tells of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its number.
    pub number: u32,
    /// Its memory in bytes, 0 if it has none.
    pub bytes: u64,
    /// Its processors; none for memory alone, such as that of a CXL device.
    pub cpus: Vec<u32>,
    /// How far each node is from here, by its number: 10 is here, 20 is twice as far.
    pub distances: Vec<(u32, u32)>,
    /// The tier of memory in which the kernel puts it: faster memory has a lower number. `None` if it has no memory or the
    /// kernel does not tell.
    pub tier: Option<u32>,
}

impl NodeFacts {
    /// How far a node is from here; none if the kernel does not tell.
    pub fn distance(&self, to: u32) -> Option<u32> {
        self.distances.iter().find(|(node, _)| *node == to).map(|(_, distance)| *distance)
    }
}

/// All nodes of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// In the order of their numbers. None where the kernel does not know nodes.
    pub nodes: Vec<NodeFacts>,
}

impl Topology {
    /// Of this machine.
    pub fn read() -> Self {
        Topology::below(Path::new(NODES), Path::new(TIERS))
    }

    fn below(root: &Path, tiers: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let online = numbers(&text("online"));
        let memory = nodes_below(root);
        let tiers = tiers_below(tiers);
        let facts = |&number: &u32| {
            // One distance for each node that is online, in their order.
            let distances = text(&format!("node{number}/distance"));
            let distances = distances.split_whitespace().map_while(|word| word.parse().ok());
            let own = memory.iter().find(|node| node.number == number);
            NodeFacts {
                number,
                bytes: own.map_or(0, |node| node.bytes),
                cpus: numbers(&text(&format!("node{number}/cpulist"))),
                distances: online.iter().copied().zip(distances).collect(),
                tier: tiers.iter().find(|(node, _)| *node == number).map(|(_, tier)| *tier),
            }
        };
        Topology { nodes: online.iter().map(facts).collect() }
    }

    /// The node of this number.
    pub fn node(&self, number: u32) -> Option<&NodeFacts> {
        self.nodes.iter().find(|node| node.number == number)
    }

    /// The numbers of the nodes that have memory.
    pub fn with_memory(&self) -> Vec<u32> {
        self.nodes.iter().filter(|node| node.bytes > 0).map(|node| node.number).collect()
    }

    /// The nodes to which these processors belong.
    pub fn of_cpus(&self, cpus: &[u32]) -> Vec<u32> {
        let has = |node: &&NodeFacts| cpus.iter().any(|cpu| node.cpus.contains(cpu));
        self.nodes.iter().filter(has).map(|node| node.number).collect()
    }

    /// The node with memory that is nearest to any of these and none of `but`; the lowest number of several.
    pub fn nearest_memory(&self, from: &[u32], but: &[u32]) -> Option<u32> {
        let distance = |to: u32| {
            let from = from.iter().filter_map(|&node| self.node(node)?.distance(to));
            from.min().unwrap_or(u32::MAX)
        };
        let others = self.with_memory().into_iter().filter(|node| !but.contains(node));
        others.min_by_key(|&node| (distance(node), node))
    }
}

/// Node and tier: each folder `memory_tierN` has the list of its nodes.
fn tiers_below(root: &Path) -> Vec<(u32, u32)> {
    let mut tiers = Vec::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("memory_tier")?.parse().ok());
        if let (Some(tier), Ok(list)) = (number, fs::read_to_string(entry.path().join("nodelist"))) {
            tiers.extend(numbers(&list).into_iter().map(|node| (node, tier)));
        }
    }
    tiers
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

    fn two_nodes(name: &str) -> Topology {
        let root = std::env::temp_dir().join(format!("tiermem-{name}-{}", std::process::id()));
        let files = [
            ("node/online", "0,2-3\n"),
            ("node/has_memory", "0,2-3\n"),
            ("node/node0/cpulist", "0-1\n"),
            ("node/node0/distance", "10 31 21\n"),
            ("node/node0/meminfo", "Node 0 MemTotal: 4096 kB\n"),
            ("node/node2/cpulist", "\n"),
            ("node/node2/distance", "31 10 41\n"),
            ("node/node2/meminfo", "Node 2 MemTotal: 8192 kB\n"),
            ("node/node3/cpulist", "2-3\n"),
            ("node/node3/distance", "21 41 10\n"),
            ("node/node3/meminfo", "Node 3 MemTotal: 4096 kB\n"),
            ("tier/memory_tier4/nodelist", "0,3\n"),
            ("tier/memory_tier22/nodelist", "2\n"),
            ("tier/uevent", ""),
        ];
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let topology = Topology::below(&root.join("node"), &root.join("tier"));
        fs::remove_dir_all(root).unwrap();
        topology
    }

    #[test]
    fn nodes_have_processors_distances_and_tiers() {
        let topology = two_nodes("facts");
        let [first, far, near] = &topology.nodes[..] else { panic!("{topology:?}") };
        assert_eq!((first.bytes, &first.cpus[..], first.tier), (4 << 20, &[0, 1][..], Some(4)));
        assert_eq!((far.number, far.cpus.len(), far.tier), (2, 0, Some(22)));
        assert_eq!((first.distance(2), first.distance(3), near.distance(1)), (Some(31), Some(21), None));
        assert_eq!(topology.with_memory(), [0, 2, 3]);
        assert_eq!((topology.of_cpus(&[1]), topology.of_cpus(&[0, 3])), (vec![0], vec![0, 3]));
        assert_eq!(topology.nearest_memory(&[0], &[0]), Some(3));
        assert_eq!(topology.nearest_memory(&[0], &[0, 3]), Some(2));
        assert_eq!(topology.nearest_memory(&[0], &[0, 2, 3]), None);
        assert_eq!(topology.nearest_memory(&[9], &[]), Some(0));
    }

    #[test]
    fn this_machine_has_nodes_or_says_none() {
        let topology = Topology::read();
        assert_eq!(topology.with_memory(), nodes().iter().map(|node| node.number).collect::<Vec<_>>());
        let nowhere = Topology::below(Path::new("/nowhere"), Path::new("/nowhere"));
        assert_eq!(nowhere, Topology::default());
    }
}
