//! Where a program's memory is to come from, by name, and what that means on this machine.

use std::fmt;
use std::str::FromStr;

use tiermem_sys::numa::{Policy, Topology};

/// A strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// As the kernel does by itself: from the node of the processor that touches a page first.
    Default,
    /// From the node of the program's processors alone.
    Local,
    /// From the nearest other node alone.
    Remote,
    /// From all nodes in turn.
    Interleave,
    /// From all nodes in turn, from each as many pages as its weight says, nodes in the order of their numbers.
    Weighted(Vec<u8>),
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Default => f.write_str("default"),
            Strategy::Local => f.write_str("local"),
            Strategy::Remote => f.write_str("remote"),
            Strategy::Interleave => f.write_str("interleave"),
            Strategy::Weighted(weights) => {
                let weights: Vec<String> = weights.iter().map(u8::to_string).collect();
                write!(f, "weighted={}", weights.join(":"))
            }
        }
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "default" => Strategy::Default,
            "local" => Strategy::Local,
            "remote" => Strategy::Remote,
            "interleave" => Strategy::Interleave,
            _ => {
                let weights = text.strip_prefix("weighted=").map(|weights| {
                    let weight = |text: &str| text.parse().ok().filter(|weight| *weight > 0);
                    weights.split(':').map(weight).collect::<Option<Vec<u8>>>()
                });
                match weights {
                    Some(Some(weights)) if weights.len() > 1 => Strategy::Weighted(weights),
                    Some(_) => return Err("weights are numbers from 1 to 255, as in weighted=3:1".to_owned()),
                    None => {
                        return Err(format!(
                            "there is no strategy `{text}`; the strategies are default, local, remote, interleave, \
                             weighted=3:1"
                        ));
                    }
                }
            }
        })
    }
}

/// What a strategy is on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The kernel's policy.
    pub policy: Policy,
    /// Weights of nodes that must be set for it.
    pub weights: Vec<(u32, u8)>,
}

/// What a machine lacks for a strategy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the strategy {strategy} needs {needs}")]
pub struct Unavailable {
    strategy: String,
    needs: String,
}

impl Strategy {
    /// What it is for a program that runs on these processors.
    ///
    /// # Errors
    /// What the machine lacks.
    pub fn resolve(&self, topology: &Topology, cpus: &[u32]) -> Result<Resolved, Unavailable> {
        let lacks = |needs: String| Unavailable { strategy: self.to_string(), needs };
        let own = cpus.first().and_then(|cpu| topology.node_of_cpu(*cpu));
        let nodes = topology.with_memory();
        let own = || own.ok_or_else(|| lacks("processors that belong to a node".to_owned()));
        let several = || match nodes.len() {
            0 | 1 => Err(lacks("two nodes with memory, and this machine has one".to_owned())),
            _ => Ok(nodes.clone()),
        };
        let (policy, weights) = match self {
            Strategy::Default => (Policy::Default, Vec::new()),
            Strategy::Local => (Policy::Bind(vec![own()?]), Vec::new()),
            Strategy::Remote => {
                let other = topology.nearest_other(own()?);
                let other = other
                    .ok_or_else(|| lacks("two nodes with memory, and this machine has one".to_owned()))?;
                (Policy::Bind(vec![other]), Vec::new())
            }
            Strategy::Interleave => (Policy::Interleave(several()?), Vec::new()),
            Strategy::Weighted(weights) => {
                let nodes = several()?;
                if nodes.len() != weights.len() {
                    let needs = format!("a weight for each of {} nodes with memory", nodes.len());
                    return Err(lacks(needs));
                }
                (
                    Policy::WeightedInterleave(nodes.clone()),
                    nodes.into_iter().zip(weights.iter().copied()).collect(),
                )
            }
        };
        Ok(Resolved { policy, weights })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_have_names() {
        for name in ["default", "local", "remote", "interleave", "weighted=3:1", "weighted=1:2:255"] {
            assert_eq!(name.parse::<Strategy>().unwrap().to_string(), name);
        }
        for wrong in ["", "weighted", "weighted=3", "weighted=0:1", "weighted=256:1", "lokal"] {
            assert!(wrong.parse::<Strategy>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_machine_of_one_node_has_no_remote_memory() {
        let topology = Topology::read();
        if topology.with_memory().len() != 1 {
            return;
        }
        assert!(Strategy::Default.resolve(&topology, &[0]).is_ok());
        let error = Strategy::Remote.resolve(&topology, &[0]).unwrap_err().to_string();
        assert!(error.contains("two nodes"), "{error}");
        assert!(Strategy::Weighted(vec![3, 1]).resolve(&topology, &[0]).is_err());
    }
}
