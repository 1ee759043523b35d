//! NUMA memory policies: the nodes from which memory is taken, of one mapping, of a thread, of a program that is going to be
//! started.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;

use super::Mask;
use crate::mapping::{MapError, Mapping};

/// Modes of the kernel's `linux/mempolicy.h`.
const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_BIND: libc::c_int = 2;
const MPOL_INTERLEAVE: libc::c_int = 3;
const MPOL_PREFERRED_MANY: libc::c_int = 5;
const MPOL_WEIGHTED_INTERLEAVE: libc::c_int = 6;

/// From which nodes new pages come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// From the node of the processor that asks, and from others when that is full.
    Default,
    /// From these nodes and no others: a process that needs more is ended.
    Bind(Vec<u32>),
    /// From these nodes, and from others when they are full. Linux 5.15 or newer.
    PreferredMany(Vec<u32>),
    /// From these nodes in turn.
    Interleave(Vec<u32>),
    /// From these nodes in turn, from each as many pages as its [weight](super::Weights). Linux 6.9 or newer.
    WeightedInterleave(Vec<u32>),
}

impl Policy {
    /// The mode and the nodes as the kernel takes them. An error if no node can have such a number.
    fn parts(&self) -> io::Result<(libc::c_int, Mask)> {
        let (mode, nodes): (_, &[u32]) = match self {
            Policy::Default => (MPOL_DEFAULT, &[]),
            Policy::Bind(nodes) => (MPOL_BIND, nodes),
            Policy::PreferredMany(nodes) => (MPOL_PREFERRED_MANY, nodes),
            Policy::Interleave(nodes) => (MPOL_INTERLEAVE, nodes),
            Policy::WeightedInterleave(nodes) => (MPOL_WEIGHTED_INTERLEAVE, nodes),
        };
        Ok((mode, Mask::of(nodes).ok_or(Errno::INVAL)?))
    }

    /// Whether the kernel takes this policy from this process: a thread that is started for it tries.
    ///
    /// # Errors
    /// Invalid input if the kernel does not know the policy, if a node has no memory, or if the process may not use it.
    pub fn check(&self) -> io::Result<()> {
        let policy = self.clone();
        let tried = std::thread::Builder::new().spawn(move || set_thread_policy(&policy))?;
        tried.join().unwrap_or_else(|_| Err(io::Error::other("the thread that tried it has failed")))
    }
}

/// Makes memory that the calling thread touches first come from where the policy says.
///
/// # Errors
/// Those of [`Policy::check`].
pub fn set_thread_policy(policy: &Policy) -> io::Result<()> {
    let (mode, mask) = policy.parts()?;
    set(mode, &mask)
}

/// Has a program that is going to be started, and all that it starts, take memory from where the policy says, whatever the
/// policy of this process is.
///
/// # Errors
/// Invalid input if no node can have such a number. What the kernel refuses is told when the program is started;
/// [`Policy::check`] tells it before.
pub fn set_child_policy(command: &mut Command, policy: &Policy) -> io::Result<()> {
    let (mode, mask) = policy.parts()?;
    // SAFETY: between fork and exec the closure makes one system call, which takes no locks and allocates nothing; an error
    // of the system is a number.
    unsafe { command.pre_exec(move || set(mode, &mask)) };
    Ok(())
}

fn set(mode: libc::c_int, mask: &Mask) -> io::Result<()> {
    // SAFETY: the mask outlives the call, which reads one bit less than it is told, and changes none of our memory.
    match unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask.0.as_ptr(), Mask::bits()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes all memory that the mapping will take come from one node. Call it before anything is written there.
pub fn bind(mapping: &mut Mapping, node: u32) -> Result<(), MapError> {
    let bytes = mapping.bytes_mut();
    let refused = |bytes: &[u8], source| MapError { bytes: bytes.len(), source };
    let mask = Mask::of(&[node]).ok_or_else(|| refused(bytes, Errno::INVAL))?;
    // SAFETY: the range is a live mapping of our own, held exclusively, and mbind changes none of its contents; the mask
    // outlives the call, which reads one bit less than it is told.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            bytes.as_mut_ptr(),
            bytes.len(),
            MPOL_BIND,
            mask.0.as_ptr(),
            Mask::bits(),
            0,
        )
    };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(refused(bytes, Errno::from_io_error(&error).unwrap_or(Errno::IO)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::process::Stdio;

    use super::*;
    use crate::numa::nodes;

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

    /// The policies that `/proc` tells of a program that was started with this one.
    fn policies_of_child(policy: &Policy) -> String {
        let mut command = Command::new("cat");
        command.arg("/proc/self/numa_maps").stdout(Stdio::piped());
        set_child_policy(&mut command, policy).unwrap();
        let mut child = command.spawn().unwrap();
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        child.wait().unwrap();
        text
    }

    #[test]
    fn a_child_has_the_policy() {
        let Some(node) = nodes().first().map(|node| node.number) else { return };
        if fs::read_to_string("/proc/self/numa_maps").is_err() {
            return;
        }
        for (policy, name) in [
            (Policy::Default, " default ".to_owned()),
            (Policy::Bind(vec![node]), format!(" bind:{node} ")),
            (Policy::Interleave(vec![node]), format!(" interleave:{node} ")),
        ] {
            let text = policies_of_child(&policy);
            assert!(text.contains(&name), "{policy:?}: {text}");
        }
        // Kernels are older than some policies.
        for (policy, name) in [
            (Policy::PreferredMany(vec![node]), "prefer (many):"),
            (Policy::WeightedInterleave(vec![node]), "weighted interleave:"),
        ] {
            if policy.check().is_ok() {
                let text = policies_of_child(&policy);
                assert!(text.contains(name), "{policy:?}: {text}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for policy in [Policy::Bind(vec![1023]), Policy::Bind(vec![1 << 20]), Policy::Bind(Vec::new())] {
            assert_eq!(policy.check().unwrap_err().kind(), io::ErrorKind::InvalidInput, "{policy:?}");
        }
        assert!(Policy::Default.check().is_ok());
        let mut command = Command::new("true");
        assert!(set_child_policy(&mut command, &Policy::Bind(vec![1024])).is_err());
        set_child_policy(&mut command, &Policy::Bind(vec![1023])).unwrap();
        assert!(command.spawn().is_err());
    }
}
