//! Strategies by name: where the memory of a program should be allocated, and what that means on a machine.

use std::fmt;
use std::str::FromStr;

use tiermem_sys::numa::{Policy, Topology};

/// Where the memory of a program comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Strategy {
    /// As the kernel does without being told: the node of the processor that touches a page first, while it has room.
    Default,
    /// The nodes of the processors that the program runs on, and no others.
    Local,
    /// The nearest other node that has memory, and no others.
    Remote,
    /// All nodes in turn.
    Interleave,
    /// All nodes in turn, each so often as its weight says, in the order of their numbers.
    Weighted(Vec<u8>),
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(list) = text.strip_prefix("weighted=") {
            let weight = |text: &str| text.parse::<u8>().ok().filter(|weight| *weight > 0);
            let weights: Option<Vec<u8>> = list.split(':').map(weight).collect();
            return weights.filter(|weights| weights.len() > 1).map(Strategy::Weighted).ok_or_else(|| {
                format!("{list:?} are not weights: numbers from 1 to 255 such as 3:1, one for each node")
            });
        }
        match text {
            "default" => Ok(Strategy::Default),
            "local" => Ok(Strategy::Local),
            "remote" => Ok(Strategy::Remote),
            "interleave" => Ok(Strategy::Interleave),
            _ => Err(format!(
                "there is no strategy {text:?}: local, remote, interleave, weighted=W:W or default"
            )),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Default => out.write_str("default"),
            Strategy::Local => out.write_str("local"),
            Strategy::Remote => out.write_str("remote"),
            Strategy::Interleave => out.write_str("interleave"),
            Strategy::Weighted(weights) => {
                let weights: Vec<_> = weights.iter().map(u8::to_string).collect();
                write!(out, "weighted={}", weights.join(":"))
            }
        }
    }
}

/// Errors of a strategy that the machine cannot provide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// The kernel knows no nodes.
    #[error("the placement {0} needs a kernel that knows memory nodes (CONFIG_NUMA); this one tells of none")]
    NoNodes(Strategy),
    /// All memory is on the nodes where the program runs.
    #[error(
        "the placement {strategy} needs a second node with memory; this machine has memory on node {} only{}",
        list(nodes),
        if nodes.len() > 1 { ", and the program runs on all of them (--cpus chooses others)" } else { "" }
    )]
    OneNode {
        /// The strategy.
        strategy: Strategy,
        /// The nodes that have memory.
        nodes: Vec<u32>,
    },
    /// Not as many weights as nodes.
    #[error("the placement {strategy} has {weights} weights; this machine has {} nodes with memory ({})", nodes.len(), list(nodes))]
    Weights {
        /// The strategy.
        strategy: Strategy,
        /// How many there are.
        weights: usize,
        /// The nodes that have memory.
        nodes: Vec<u32>,
    },
    /// The kernel cannot interleave by weights.
    #[error(
        "the placement {0} needs a kernel from 6.9 on, which has /sys/kernel/mm/mempolicy/weighted_interleave; this one has not"
    )]
    NoWeights(Strategy),
}

fn list(nodes: &[u32]) -> String {
    nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// A strategy on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The requested strategy.
    pub strategy: Strategy,
    /// The kernel's memory policy.
    pub policy: Policy,
    /// The weight of each node, for interleaving by weights.
    pub weights: Vec<(u32, u8)>,
    /// The nodes from which memory may come.
    pub nodes: Vec<u32>,
}

impl Placement {
    /// As the kernel does without being told.
    pub fn default_on(topology: &Topology) -> Self {
        Placement {
            strategy: Strategy::Default,
            policy: Policy::Default,
            weights: Vec::new(),
            nodes: topology.with_memory(),
        }
    }
}

/// The nodes to which these processors belong, in the order of their numbers.
fn nodes_of(topology: &Topology, cpus: &[u32]) -> Vec<u32> {
    let mut nodes: Vec<u32> = cpus.iter().filter_map(|&cpu| topology.node_of_cpu(cpu)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// The node with memory that is nearest to any of these and none of `but`; the lowest number of several.
fn nearest(topology: &Topology, from: &[u32], but: &[u32]) -> Option<u32> {
    let distance = |to: u32| {
        let places = from.iter().filter_map(|&node| topology.place(node));
        let distances = places.flat_map(|place| &place.distances).filter(|(node, _)| *node == to);
        distances.map(|(_, distance)| *distance).min().unwrap_or(u32::MAX)
    };
    let others = topology.with_memory().into_iter().filter(|node| !but.contains(node));
    others.min_by_key(|&node| (distance(node), node))
}

/// The nodes on which memory is near to these processors: their own, or the nearest one if those have none.
fn local_nodes(topology: &Topology, cpus: &[u32]) -> Vec<u32> {
    let own = nodes_of(topology, cpus);
    let memory = topology.with_memory();
    let local: Vec<u32> = own.iter().copied().filter(|node| memory.contains(node)).collect();
    match local.is_empty() {
        true => nearest(topology, &own, &[]).into_iter().collect(),
        false => local,
    }
}

impl Strategy {
    /// The placement of this strategy for a program that runs on these processors.
    /// `weights_known` says whether the kernel supports weighted interleaving.
    ///
    /// # Errors
    /// If the machine lacks something.
    pub fn resolve(
        &self,
        topology: &Topology,
        cpus: &[u32],
        weights_known: bool,
    ) -> Result<Placement, StrategyError> {
        let all = topology.with_memory();
        if *self == Strategy::Default {
            return Ok(Placement::default_on(topology));
        }
        let one_node = || StrategyError::OneNode { strategy: self.clone(), nodes: all.clone() };
        let local = local_nodes(topology, cpus);
        if local.is_empty() {
            return Err(StrategyError::NoNodes(self.clone()));
        }
        let (policy, weights, nodes) = match self {
            Strategy::Default => (Policy::Default, Vec::new(), all),
            Strategy::Local => (Policy::Bind(local.clone()), Vec::new(), local),
            Strategy::Remote => {
                let remote = nearest(topology, &local, &local).ok_or_else(one_node)?;
                (Policy::Bind(vec![remote]), Vec::new(), vec![remote])
            }
            Strategy::Interleave if all.len() < 2 => return Err(one_node()),
            Strategy::Interleave => (Policy::Interleave(all.clone()), Vec::new(), all),
            Strategy::Weighted(_) if all.len() < 2 => return Err(one_node()),
            Strategy::Weighted(_) if !weights_known => return Err(StrategyError::NoWeights(self.clone())),
            Strategy::Weighted(weights) if weights.len() != all.len() => {
                let (strategy, weights) = (self.clone(), weights.len());
                return Err(StrategyError::Weights { strategy, weights, nodes: all });
            }
            Strategy::Weighted(weights) => {
                let pairs = all.iter().copied().zip(weights.iter().copied()).collect();
                (Policy::WeightedInterleave(all.clone()), pairs, all)
            }
        };
        Ok(Placement { strategy: self.clone(), policy, weights, nodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::proptest;
    use tiermem_sys::numa::NodeInfo;

    /// Two sockets of two processors, and a node of memory alone that is nearer to the second.
    fn machine() -> Topology {
        let place = |number, cpus: &[u32], distances: [u32; 3]| NodeInfo {
            number,
            bytes: 1 << 30,
            cpus: cpus.to_vec(),
            distances: (0..3).zip(distances).filter(|(node, _)| *node != number).collect(),
        };
        let places = vec![
            place(0, &[0, 1], [10, 21, 31]),
            place(1, &[2, 3], [21, 10, 14]),
            place(2, &[], [31, 14, 10]),
        ];
        Topology { places }
    }

    fn nodes(strategy: &str, cpus: &[u32]) -> Vec<u32> {
        strategy.parse::<Strategy>().unwrap().resolve(&machine(), cpus, true).unwrap().nodes
    }

    #[test]
    fn local_is_where_the_program_runs_and_remote_is_the_nearest_other() {
        assert_eq!((nodes("local", &[0]), nodes("remote", &[0])), (vec![0], vec![1]));
        assert_eq!((nodes("local", &[3]), nodes("remote", &[3])), (vec![1], vec![2]));
        assert_eq!((nodes("local", &[0, 2]), nodes("remote", &[0, 2])), (vec![0, 1], vec![2]));
        assert_eq!((nodes("interleave", &[0]), nodes("default", &[0])), (vec![0, 1, 2], vec![0, 1, 2]));
        let mut memoryless = machine();
        memoryless.places[1].bytes = 0;
        assert_eq!(Strategy::Local.resolve(&memoryless, &[2], true).unwrap().nodes, [2]);
    }

    #[test]
    fn weights_belong_to_nodes() {
        let weighted: Strategy = "weighted=3:1:1".parse().unwrap();
        assert_eq!(weighted.resolve(&machine(), &[0], true).unwrap().weights, [(0, 3), (1, 1), (2, 1)]);
        let said = |strategy: &str, known| {
            strategy.parse::<Strategy>().unwrap().resolve(&machine(), &[0], known).unwrap_err().to_string()
        };
        assert!(
            said("weighted=3:1", true)
                .contains("has 2 weights; this machine has 3 nodes with memory (0, 1, 2)")
        );
        assert!(said("weighted=3:1:1", false).contains("from 6.9 on"));
    }

    #[test]
    fn what_the_machine_lacks_is_said() {
        let mut one = machine();
        one.places.truncate(1);
        for name in ["remote", "interleave", "weighted=3:1"] {
            let error = name.parse::<Strategy>().unwrap().resolve(&one, &[0], true).unwrap_err();
            let expected = format!(
                "the placement {name} needs a second node with memory; this machine has memory on node 0 only"
            );
            assert_eq!(error.to_string(), expected);
        }
        assert!(Strategy::Local.resolve(&one, &[0], true).is_ok());
        assert!(Strategy::Default.resolve(&Topology::default(), &[0], true).is_ok());
        let nowhere = Strategy::Local.resolve(&Topology::default(), &[0], true).unwrap_err();
        assert!(nowhere.to_string().contains("CONFIG_NUMA"));
        let mut full = machine();
        full.places.truncate(2);
        assert!(Strategy::Remote.resolve(&full, &[0, 2], true).unwrap_err().to_string().contains("--cpus"));
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["default", "local", "remote", "interleave", "weighted=255:1:7"] {
            assert_eq!(name.parse::<Strategy>().unwrap().to_string(), name);
        }
        for wrong in [
            "",
            "Local",
            "weighted",
            "weighted=",
            "weighted=3",
            "weighted=0:1",
            "weighted=256:1",
            "weighted=a:b",
        ] {
            assert!(wrong.parse::<Strategy>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn noise_is_an_error_and_no_panic(text in "\\PC*") {
            let _ = text.parse::<Strategy>();
        }
    }
}
