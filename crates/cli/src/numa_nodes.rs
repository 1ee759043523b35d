//! NUMA nodes of this machine that are fast and slow memory.

use anyhow::anyhow;
use tiermem_sys::numa::Topology;

use crate::failure::Failure;

/// The node of fast memory, the first with processors unless another one is asked for, and that of slow memory, the nearest other
/// one. `None` if there is no other.
pub fn fast_and_slow(fast: Option<u32>, slow: Option<u32>) -> Result<Option<[u32; 2]>, Failure> {
    let topology = Topology::read();
    let fast = fast.or_else(|| topology.with_cpus().first().copied()).unwrap_or(0);
    let Some(slow) = slow.or_else(|| topology.nearest_other(fast)) else { return Ok(None) };
    if fast == slow {
        return Err(Failure::usage(anyhow!("fast and slow memory are both node {fast}")));
    }
    for node in [fast, slow] {
        if !topology.with_memory().contains(&node) {
            return Err(Failure::usage(anyhow!("this machine has no node {node} with memory")));
        }
    }
    Ok(Some([fast, slow]))
}
