//! NUMA: the machine's nodes and their memory, memory policies, and the nodes of pages.

mod files;
mod nodes;
mod pages;
mod policy;
mod ram;
mod weights;

pub use files::cached_bytes;
pub use nodes::{Node, NodeInfo, Topology, cores_beside, free_bytes, list, nodes, tier_of};
pub use pages::{held, move_to, nodes_of};
pub use policy::{Policy, bind, set_child_policy, set_thread_policy};
pub use ram::{Ram, ram};
pub use weights::{Weights, WeightsError};

/// Bits in a word of a mask of nodes.
const WORD_BITS: usize = libc::c_ulong::BITS as usize;
/// The kernel knows 1024 nodes at most.
const NODES_MAX: usize = 1024;

/// A set of nodes as the kernel takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mask([libc::c_ulong; NODES_MAX / WORD_BITS]);

impl Mask {
    /// A mask of these nodes; none if one of them has a number that no node can have.
    fn of(nodes: &[u32]) -> Option<Self> {
        let mut mask = Mask::default();
        for &node in nodes {
            *mask.0.get_mut(node as usize / WORD_BITS)? |= 1 << (node as usize % WORD_BITS);
        }
        Some(mask)
    }

    /// Its length as the kernel is told it, which reads one bit less.
    const fn bits() -> usize {
        NODES_MAX + 1
    }
}
