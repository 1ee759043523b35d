//! DRAM device: the process's own memory, on any node or on one NUMA node.

use super::Memory;
use tiermem_base::Bytes;
use tiermem_sys::mapping::{MapError, Mapping};
use tiermem_sys::numa::{self, Node};
use tiermem_sys::populate::Populate;

/// Why a node gives no memory.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// It is not there.
    #[error("there is no NUMA node {node} with memory here: {}", describe(nodes))]
    NoNode {
        /// The node that was asked for.
        node: u32,
        /// The nodes that exist.
        nodes: Vec<Node>,
    },
    /// It has less.
    #[error("NUMA node {node} has {has} of memory: make the tier smaller, or choose another node")]
    TooSmall {
        /// The node.
        node: u32,
        /// What it has.
        has: Bytes,
    },
    /// The system refuses.
    #[error(transparent)]
    Map(#[from] MapError),
}

fn describe(nodes: &[Node]) -> String {
    let each = |node: &Node| format!("{} ({})", node.number, Bytes(node.bytes));
    match nodes {
        [] => "this system shows none".to_owned(),
        nodes => format!("there are {}", nodes.iter().map(each).collect::<Vec<_>>().join(", ")),
    }
}

/// DRAM: costs what it costs.
#[derive(Debug)]
pub struct Dram {
    mapping: Mapping,
}

impl Dram {
    /// Reserves `len` bytes; memory is taken as they are written.
    pub fn new(len: usize) -> Result<Self, MapError> {
        Ok(Dram { mapping: Mapping::anonymous(len)? })
    }

    /// Memory of one node only: another socket's, or a CXL expander that the kernel shows as a node without processors.
    ///
    /// # Errors
    /// When there is no node of this number, or it has less memory than that: a
    /// node that cannot provide the memory bound to it would end the process later.
    pub fn on_node(len: usize, node: u32) -> Result<Self, NodeError> {
        let nodes = numa::nodes();
        match nodes.iter().find(|known| known.number == node) {
            None => Err(NodeError::NoNode { node, nodes }),
            Some(known) if known.bytes < len as u64 => {
                Err(NodeError::TooSmall { node, has: Bytes(known.bytes) })
            }
            Some(_) => {
                let mut mapping = Mapping::anonymous(len).map_err(NodeError::Map)?;
                numa::bind(&mut mapping, node).map_err(NodeError::Map)?;
                Ok(Dram { mapping })
            }
        }
    }
}

impl Memory for Dram {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.mapping.bytes()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.mapping.bytes_mut()
    }

    fn discard(&mut self, offset: usize, len: usize) {
        self.mapping.discard(offset, len);
    }

    fn populate(&self) -> Option<Populate> {
        self.mapping.populate()
    }

    #[inline]
    fn touch_read(&self, _len: u64) -> f64 {
        0.0
    }

    #[inline]
    fn touch_write(&self, _len: u64) -> f64 {
        0.0
    }
}
