//! Move speed of pages between two nodes of this machine: the base
//! of a plan's lead times and rate (Fisher 2025, section 5.1).

use std::io;

use tiermem_sys::mapping::Mapping;
use tiermem_sys::numa;

use super::mover::{Mover, PAGE_BYTES, ProcessPages};

/// Bytes moved to and fro: more than caches hold, as far as there is room for it.
const BYTES: u64 = 128 << 20;
/// At most such a part of what is free on either node.
const FREE_SHARE: u64 = 4;
/// Ways to and fro that are timed.
const ROUNDS: usize = 3;

/// Bytes a second that one thread moves from one node to the other and back, the median of
/// several rounds, with memory of this process in pages of the size that the kernel chooses.
///
/// # Errors
/// If a node has no memory or is full, or if the kernel does not let pages be moved.
pub fn measure(nodes: [u32; 2]) -> io::Result<f64> {
    let free = nodes.iter().filter_map(|node| numa::free_bytes(*node)).min().unwrap_or(0);
    let bytes = BYTES.min(free / FREE_SHARE) / PAGE_BYTES * PAGE_BYTES;
    if bytes == 0 {
        return Err(io::Error::other(format!(
            "nodes {} and {} have no room to move pages",
            nodes[0], nodes[1]
        )));
    }
    let mut mapping =
        Mapping::anonymous(bytes as usize).map_err(|error| io::Error::other(error.to_string()))?;
    mapping.bytes_mut().fill(1);
    let start = mapping.bytes().as_ptr().addr() as u64;
    let mut mover = Mover::new(ProcessPages::of(std::process::id()));
    // From wherever they were touched, which does not count.
    mover.move_range(start, start + bytes, nodes[0])?;
    let mut rates = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let (took, moved) = (mover.took, mover.moved);
        for node in [nodes[1], nodes[0]] {
            if !mover.move_range(start, start + bytes, node)?.is_done() {
                return Err(io::Error::other(format!(
                    "most pages stay where they are instead of node {node}"
                )));
            }
        }
        let bytes = ((mover.moved - moved) * PAGE_BYTES) as f64;
        rates.push(bytes / (mover.took - took).as_secs_f64().max(1e-9));
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[ROUNDS / 2])
}
