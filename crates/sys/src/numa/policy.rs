//! From which nodes memory comes: of a mapping, of the calling thread, of a program that is going to be started.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::mapping::{MapError, Mapping};

/// The kernel knows so many nodes at most.
const NODES_MAX: u32 = 1024;
const WORD_BITS: u32 = libc::c_ulong::BITS;
// Modes of the kernel's `linux/mempolicy.h`.
const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_PREFERRED: libc::c_int = 1;
const MPOL_BIND: libc::c_int = 2;
const MPOL_INTERLEAVE: libc::c_int = 3;
const MPOL_WEIGHTED_INTERLEAVE: libc::c_int = 6;

/// A set of nodes, as the kernel wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSet {
    words: [libc::c_ulong; (NODES_MAX / WORD_BITS) as usize],
}

impl NodeSet {
    /// Of these nodes.
    ///
    /// # Errors
    /// Invalid input for a number that no node can have.
    pub fn of(nodes: &[u32]) -> io::Result<Self> {
        let mut set = NodeSet { words: [0; (NODES_MAX / WORD_BITS) as usize] };
        for node in nodes {
            let word = set.words.get_mut((node / WORD_BITS) as usize);
            *word.ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % WORD_BITS);
        }
        Ok(set)
    }

    /// The numbers of its nodes.
    pub fn numbers(&self) -> Vec<u32> {
        let has = |node: &u32| self.words[(node / WORD_BITS) as usize] & (1 << (node % WORD_BITS)) != 0;
        (0..NODES_MAX).filter(has).collect()
    }
}

/// From which nodes a thread, and all that it starts, takes its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// From the node of the processor on which the thread runs, and from others once that is full.
    Default,
    /// From these nodes and no others: a program that wants more is ended by the kernel.
    Bind(NodeSet),
    /// From this node, and from others once it is full.
    Preferred(u32),
    /// From each of these nodes in turn.
    Interleave(NodeSet),
    /// From each of these nodes in turn, from each so often as its weight says ([`crate::numa::weights`]). From kernel 6.9 on.
    WeightedInterleave(NodeSet),
}

impl MemoryPolicy {
    fn mode(&self) -> (libc::c_int, Option<NodeSet>) {
        match *self {
            MemoryPolicy::Default => (MPOL_DEFAULT, None),
            MemoryPolicy::Bind(nodes) => (MPOL_BIND, Some(nodes)),
            // A node that none can be is left to the kernel to refuse: with no node at all it means the local one.
            MemoryPolicy::Preferred(node) => (MPOL_PREFERRED, NodeSet::of(&[node]).ok()),
            MemoryPolicy::Interleave(nodes) => (MPOL_INTERLEAVE, Some(nodes)),
            MemoryPolicy::WeightedInterleave(nodes) => (MPOL_WEIGHTED_INTERLEAVE, Some(nodes)),
        }
    }

    /// Makes it the policy of the calling thread and of what that starts from now on.
    ///
    /// # Errors
    /// Invalid input (`EINVAL`) for nodes without memory, for those that the process may not use (cpusets), and for a mode
    /// that the kernel does not know; not supported (`ENOSYS`) by a kernel without NUMA.
    pub fn set_for_thread(&self) -> io::Result<()> {
        let (mode, nodes) = self.mode();
        if let MemoryPolicy::Preferred(NODES_MAX..) = self {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (mask, bits) = nodes
            .as_ref()
            .map_or((std::ptr::null(), 0), |nodes| (nodes.words.as_ptr(), NODES_MAX as libc::c_ulong + 1));
        // SAFETY: the mask outlives the call, which reads one bit less than it is told; the call changes where memory comes
        // from and none of what it holds.
        match unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Makes it the policy of a program that is going to be started, and of what that starts.
    pub fn set_for_child(self, command: &mut Command) {
        let ask = move || self.set_for_thread();
        // SAFETY: between fork and exec the closure makes one system call, which takes no locks and allocates nothing.
        unsafe { command.pre_exec(ask) };
    }
}

/// Makes all memory that the mapping will take come from one node. Call it before anything is written there.
pub fn bind(mapping: &mut Mapping, node: u32) -> Result<(), MapError> {
    let bytes = mapping.bytes_mut();
    let refused = |bytes: &[u8], source| MapError { bytes: bytes.len(), source };
    let mask = NodeSet::of(&[node]).map_err(|_| refused(bytes, rustix::io::Errno::INVAL))?;
    // SAFETY: the range is a live mapping of our own, held exclusively, and mbind changes none of its contents; the mask
    // outlives the call, which reads one bit less than it is told.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            bytes.as_mut_ptr(),
            bytes.len(),
            MPOL_BIND as libc::c_ulong,
            mask.words.as_ptr(),
            NODES_MAX as usize + 1,
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
    use std::fs;

    use super::*;

    fn policies(node: u32) -> [MemoryPolicy; 4] {
        let nodes = NodeSet::of(&[node]).unwrap();
        [
            MemoryPolicy::Default,
            MemoryPolicy::Bind(nodes),
            MemoryPolicy::Preferred(node),
            MemoryPolicy::Interleave(nodes),
        ]
    }

    #[test]
    fn sets_have_the_nodes_that_they_are_given() {
        assert_eq!(NodeSet::of(&[0, 63, 64, 1023]).unwrap().numbers(), [0, 63, 64, 1023]);
        assert!(NodeSet::of(&[1024]).is_err());
        assert!(NodeSet::of(&[]).unwrap().numbers().is_empty());
    }

    #[test]
    fn a_program_has_the_policy_that_it_is_started_with() {
        let Some(node) = crate::numa::nodes().first().map(|node| node.number) else { return };
        let names = [
            "default".to_owned(),
            format!("bind:{node}"),
            format!("prefer:{node}"),
            format!("interleave:{node}"),
        ];
        for (policy, name) in policies(node).into_iter().zip(names) {
            let mut command = Command::new("cat");
            policy.set_for_child(command.arg("/proc/self/numa_maps"));
            let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
            assert!(text.is_empty() || text.contains(&format!(" {name} ")), "{policy:?}: {text}");
        }
    }

    #[test]
    fn nodes_that_are_not_there_are_refused() {
        let set = NodeSet::of(&[1023]).unwrap();
        let refused = [
            MemoryPolicy::Bind(set),
            MemoryPolicy::Preferred(1023),
            MemoryPolicy::Preferred(5000),
            MemoryPolicy::Interleave(set),
        ];
        for policy in refused {
            // A thread of its own, should it be taken.
            std::thread::spawn(move || assert!(policy.set_for_thread().is_err(), "{policy:?}"))
                .join()
                .unwrap();
            let mut command = Command::new("true");
            policy.set_for_child(&mut command);
            assert!(command.status().is_err());
        }
    }

    #[test]
    fn memory_comes_from_the_node_that_is_asked() {
        let Some(node) = crate::numa::nodes().first().copied() else { return };
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
