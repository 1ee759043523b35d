//! NUMA nodes of this machine.

use std::fs;
use std::path::Path;

/// Where the kernel tells of them.
const FOLDER: &str = "/sys/devices/system/node";

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
    nodes_below(Path::new(FOLDER))
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

/// The free memory of a node, in bytes; none if the kernel does not tell. Memory held by file caches comes on top.
pub fn free_bytes(node: u32) -> Option<u64> {
    let text = fs::read_to_string(Path::new(FOLDER).join(format!("node{node}/meminfo"))).ok()?;
    let line = text.lines().find_map(|line| line.split_once("MemFree:"))?.1;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The tier of memory in which the kernel puts a node: faster memory has a lower number, and the memory of a CXL device a higher
/// one than that of processors. None if it has no memory, or the kernel does not tell (before Linux 6.1).
pub fn tier_of(node: u32) -> Option<u32> {
    tier_below(Path::new("/sys/devices/virtual/memory_tiering"), node)
}

fn tier_below(root: &Path, node: u32) -> Option<u32> {
    // Each folder `memory_tierN` has the list of its nodes.
    let mut tiers = fs::read_dir(root).ok()?.flatten().filter_map(|entry| {
        let tier = entry.file_name().to_str()?.strip_prefix("memory_tier")?.parse().ok()?;
        let list = fs::read_to_string(entry.path().join("nodelist")).ok()?;
        numbers(&list).contains(&node).then_some(tier)
    });
    tiers.next()
}

/// The cores of the node that has this one; none where the kernel does not tell.
pub fn cores_beside(core: u32) -> Vec<u32> {
    cores_beside_below(Path::new(FOLDER), core)
}

fn cores_beside_below(root: &Path, core: u32) -> Vec<u32> {
    let cores_of = |node: u32| {
        numbers(&fs::read_to_string(root.join(format!("node{node}/cpulist"))).unwrap_or_default())
    };
    let nodes = numbers(&fs::read_to_string(root.join("has_cpu")).unwrap_or_default());
    nodes.into_iter().map(cores_of).find(|cores| cores.contains(&core)).unwrap_or_default()
}

/// A node with what belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its number.
    pub number: u32,
    /// Its memory in bytes; 0 if it has processors only.
    pub bytes: u64,
    /// Its processors; none if it has memory only.
    pub cpus: Vec<u32>,
    /// Other nodes and how far they are, by the firmware's measure: 10 is the node itself, 20 takes twice as long.
    pub distances: Vec<(u32, u32)>,
}

/// All nodes of a machine, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The nodes.
    pub places: Vec<NodeInfo>,
}

impl Topology {
    /// Reads the nodes of this machine. No nodes where the kernel does not tell.
    pub fn read() -> Self {
        Self::below(Path::new(FOLDER))
    }

    fn below(root: &Path) -> Self {
        let text = |name: String| fs::read_to_string(root.join(name)).unwrap_or_default();
        let online = numbers(&text("online".to_owned()));
        let memory = nodes_below(root);
        let place = |&number: &u32| {
            // A distance for each node that is online, itself too.
            let distances = text(format!("node{number}/distance"));
            let distances = online
                .iter()
                .zip(distances.split_whitespace())
                .filter_map(|(&node, distance)| Some((node, distance.parse().ok()?)));
            NodeInfo {
                number,
                bytes: memory.iter().find(|node| node.number == number).map_or(0, |node| node.bytes),
                cpus: numbers(&text(format!("node{number}/cpulist"))),
                distances: distances.filter(|(node, _)| *node != number).collect(),
            }
        };
        Topology { places: online.iter().map(place).collect() }
    }

    /// The node of this number.
    pub fn place(&self, node: u32) -> Option<&NodeInfo> {
        self.places.iter().find(|place| place.number == node)
    }

    /// The node that has this processor.
    pub fn node_of_cpu(&self, cpu: u32) -> Option<u32> {
        self.places.iter().find(|place| place.cpus.contains(&cpu)).map(|place| place.number)
    }

    /// Nodes with memory, in the order of their numbers.
    pub fn with_memory(&self) -> Vec<u32> {
        self.places.iter().filter(|place| place.bytes > 0).map(|place| place.number).collect()
    }

    /// Nodes with processors, in the order of their numbers.
    pub fn with_cpus(&self) -> Vec<u32> {
        self.places.iter().filter(|place| !place.cpus.is_empty()).map(|place| place.number).collect()
    }

    /// Other nodes with memory, the nearest first; of equally near ones, the one with the lower number.
    pub fn others(&self, node: u32) -> Vec<u32> {
        let distances = self.place(node).map_or(&[][..], |place| &place.distances);
        let far =
            |other: u32| distances.iter().find(|(to, _)| *to == other).map_or(u32::MAX, |(_, far)| *far);
        let mut others: Vec<u32> = self.with_memory().into_iter().filter(|&other| other != node).collect();
        others.sort_by_key(|&other| (far(other), other));
        others
    }

    /// The nearest other node with memory.
    pub fn nearest_other(&self, node: u32) -> Option<u32> {
        self.others(node).first().copied()
    }
}

/// The numbers of a list such as `0-2,5`, in the order in which they stand there; none if it is no such list.
pub fn list(text: &str) -> Option<Vec<u32>> {
    let is_number = |text: &str| text.parse::<u32>().is_ok_and(|number| number < 1 << 16);
    let is_part = |part: &str| match part.split_once('-') {
        Some((first, last)) => is_number(first) && is_number(last),
        None => is_number(part),
    };
    text.split(',').all(is_part).then(|| parts(text, u32::from(u16::MAX)))
}

/// The numbers of a list such as `0-2,5`. What cannot be read counts for nothing.
fn numbers(list: &str) -> Vec<u32> {
    // Large machines have some thousands of processors.
    parts(list, 8191)
}

fn parts(list: &str, most: u32) -> Vec<u32> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            numbers.extend(first..=last.min(most));
        }
    }
    numbers
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
    fn lists_from_people_are_read_strictly() {
        assert_eq!(list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(list("7"), Some(vec![7]));
        for wrong in ["", "a", "1,", "1-", "-1", "1-2-3", "99999999", "0-99999999"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nodes_have_processors_memory_and_distances() {
        let root = std::env::temp_dir().join(format!("tiermem-places-{}", std::process::id()));
        for (node, cpus, kib, distances) in [
            (0, "0-1", 4, "10 30 20 21"),
            (1, "", 8, "30 10 20 20"),
            (2, "", 8, "20 20 10 20"),
            (4, "2", 0, "21 20 20 10"),
        ] {
            let folder = root.join(format!("node{node}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cpulist"), format!("{cpus}\n")).unwrap();
            fs::write(folder.join("distance"), format!("{distances}\n")).unwrap();
            fs::write(folder.join("meminfo"), format!("Node {node} MemTotal:   {kib} kB\n")).unwrap();
        }
        fs::write(root.join("online"), "0-2,4\n").unwrap();
        fs::write(root.join("has_memory"), "0-2\n").unwrap();
        let topology = Topology::below(&root);
        fs::remove_dir_all(root).unwrap();
        assert_eq!(
            topology.place(0),
            Some(&NodeInfo {
                number: 0,
                bytes: 4096,
                cpus: vec![0, 1],
                distances: vec![(1, 30), (2, 20), (4, 21)]
            })
        );
        assert_eq!((topology.with_memory(), topology.with_cpus()), (vec![0, 1, 2], vec![0, 4]));
        assert_eq!(
            (topology.others(0), topology.others(1)),
            (vec![2, 1], vec![0, 2].into_iter().rev().collect())
        );
        assert_eq!((topology.nearest_other(4), topology.nearest_other(0)), (Some(1), Some(2)));
        assert_eq!((topology.node_of_cpu(2), topology.node_of_cpu(3)), (Some(4), None));
        assert_eq!(Topology::default().nearest_other(0), None);
    }

    #[test]
    fn this_machine_has_a_node_for_itself() {
        let topology = Topology::read();
        for node in topology.with_cpus() {
            let cpu = topology.place(node).unwrap().cpus[0];
            assert_eq!(topology.node_of_cpu(cpu), Some(node));
        }
        assert_eq!(topology.with_memory(), nodes().iter().map(|node| node.number).collect::<Vec<_>>());
    }

    #[test]
    fn a_node_has_a_tier_and_free_memory() {
        let root = std::env::temp_dir().join(format!("tiermem-memory-tiers-{}", std::process::id()));
        for (tier, nodes) in [("memory_tier4", "0,3\n"), ("memory_tier22", "2\n"), ("power", "1\n")] {
            fs::create_dir_all(root.join(tier)).unwrap();
            fs::write(root.join(tier).join("nodelist"), nodes).unwrap();
        }
        assert_eq!([0, 1, 2].map(|node| tier_below(&root, node)), [Some(4), None, Some(22)]);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(tier_below(&root, 0), None);
        for node in nodes() {
            assert!(free_bytes(node.number).is_none_or(|bytes| bytes <= node.bytes));
        }
    }
}
