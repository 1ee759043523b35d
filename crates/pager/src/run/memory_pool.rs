//! A pool of memory: local DRAM, and memory of another node, under one program.

use std::io;
use std::process::Command;

use tiermem_sys::affinity;
use tiermem_sys::control_group::{Group, bytes_by_node};
use tiermem_sys::inherited::without_huge_pages;
use tiermem_sys::numa::{self, Policy, Topology};

use crate::control::PoolMemory;
use crate::steer::Nodes;

/// The memory of two nodes, as a program has it (Yang 2024, section 4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPool {
    /// Of the limit of DRAM, what lies on the local node. The rest lies on the remote one.
    pub local_bytes: u64,
    /// Both nodes.
    pub nodes: Nodes,
}

impl MemoryPool {
    /// Has a program that is going to be started take its memory from the remote node, in pages of 4 KiB, and run on those processors of the
    /// local one that this process may use. What belongs to the local node is brought there.
    ///
    /// Most of what comes to memory while a program is short of it belongs to the remote node, from which pages leave. Taken from the local
    /// node, each page that is read from flash would have to be moved.
    ///
    /// # Errors
    /// If this process may not use the remote node, or no processor of the local one.
    pub fn prepare(&self, command: &mut Command) -> io::Result<()> {
        let Nodes { local, remote } = self.nodes;
        let remote = Policy::PreferredMany(vec![remote]);
        remote.check()?;
        numa::set_child_policy(command, &remote)?;
        // A huge page has pages of both nodes, and moves as a whole: it would go to and fro.
        without_huge_pages(command);
        let allowed = affinity::thread_cores()?;
        let topology = Topology::read();
        let of_node = topology.place(local).map_or(&[][..], |place| &place.cpus);
        let cores: Vec<u32> = of_node.iter().copied().filter(|core| allowed.contains(core)).collect();
        affinity::pin_child(command, &cores)
    }

    /// What bounds changes of the limit of DRAM.
    pub fn bounds(&self) -> PoolMemory {
        let node = numa::nodes().into_iter().find(|node| node.number == self.nodes.remote);
        PoolMemory { local_bytes: self.local_bytes, node_bytes: node.map_or(0, |node| node.bytes) }
    }

    /// The bytes of a group that lie on both nodes, as the kernel tells.
    pub fn use_of(&self, group: &Group) -> Option<PoolBytes> {
        let by_node = bytes_by_node(group).ok()?;
        let of = |node| by_node.get(&node).copied().unwrap_or(0);
        Some(PoolBytes { local: of(self.nodes.local), remote: of(self.nodes.remote) })
    }
}

/// Bytes on both nodes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolBytes {
    /// On the local node.
    pub local: u64,
    /// On the remote one.
    pub remote: u64,
}

impl PoolBytes {
    /// The most on each.
    pub fn most(self, other: PoolBytes) -> PoolBytes {
        PoolBytes { local: self.local.max(other.local), remote: self.remote.max(other.remote) }
    }
}
