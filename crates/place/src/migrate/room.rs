//! Limits the free space of fast memory to what a plan uses, by locking pages on the node.
//!
//! The kernel puts a page where it is first touched, on the node of the processor while that has room, and on the next one then. What
//! room it has is what its zones have above their low watermark: only then does an allocation go elsewhere.

use std::collections::BTreeMap;
use std::fs::{self, File};

use tiermem_base::Bytes;
use tiermem_model::placement::Plan;
use tiermem_sys::mapping::Mapping;
use tiermem_sys::numa;

const ZONES: &str = "/proc/zoneinfo";
const PAGE_BYTES: u64 = 4096;
/// So far from what was wanted is near enough: pages that the kernel has set aside for each processor are not counted as free.
const NEAR_BYTES: u64 = 256 << 10;
/// Pages are held and given back at most so often until that is so.
const ROUNDS: usize = 8;

/// A node with so much room left. It has more again when this is dropped.
#[derive(Debug)]
pub(super) struct Room {
    node: u32,
    left_bytes: u64,
    files_bytes: u64,
    held: Vec<Mapping>,
}

impl Room {
    /// Leaves so many bytes of a node to a program that is to be started. What its files have there already is a part of them.
    /// The reason, where that cannot be had.
    pub fn leave(node: u32, bytes: u64, plan: &Plan) -> Result<Self, String> {
        let files_bytes = files_there(plan, node);
        let wanted = bytes.saturating_sub(files_bytes);
        let mut room = Room { node, left_bytes: 0, files_bytes, held: Vec::new() };
        for _ in 0..ROUNDS {
            let left = left_bytes(node)?;
            room.left_bytes = left;
            if left.abs_diff(wanted) <= NEAR_BYTES {
                return Ok(room);
            }
            match (left > wanted, room.held.pop()) {
                (true, last) => {
                    room.held.extend(last);
                    // A little less, as page tables take some too.
                    let over = left - wanted;
                    room.held.push(held(node, over - over / 32)?);
                }
                // Too much: all of what was taken last goes, and the next round takes less.
                (false, Some(last)) => drop(last),
                (false, None) => {
                    return Err(format!(
                        "node {node} has {} left for new pages, and {} were to be: give the program less with --fast, or end \
                         others",
                        Bytes(left),
                        Bytes(wanted)
                    ));
                }
            }
        }
        Err(format!(
            "node {node} does not come to have {} left: others take and give memory there",
            Bytes(wanted)
        ))
    }

    /// What was done, for the user.
    pub fn note(&self) -> String {
        let held: u64 = self.held.iter().map(|it| it.bytes().len() as u64).sum();
        format!(
            "node {} had {} left for new pages when the program began, as {} were held there; files of the program had {} there \
             already",
            self.node,
            Bytes(self.left_bytes),
            Bytes(held),
            Bytes(self.files_bytes)
        )
    }
}

/// Pages of a node that are ours.
fn held(node: u32, bytes: u64) -> Result<Mapping, String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("{} of node {node} cannot be held: {error}; root, or ulimit -l, allows it", Bytes(bytes))
    };
    let bytes = usize::try_from(bytes / PAGE_BYTES * PAGE_BYTES).map_err(|error| failed(&error))?;
    let mut mapping = Mapping::anonymous(bytes).map_err(|error| failed(&error))?;
    numa::bind(&mut mapping, node).map_err(|error| failed(&error))?;
    mapping.lock().map_err(|error| failed(&error))?;
    Ok(mapping)
}

/// Of the plan's files that nobody writes through their mappings: what lies on a node already.
fn files_there(plan: &Plan, node: u32) -> u64 {
    let files = plan.regions.iter().filter(|it| !it.permissions.contains('w'));
    let there = files.filter_map(|it| {
        let file = File::open(it.path.as_ref()?).ok()?;
        let cached = numa::cached_bytes(&file, it.file_offset, it.bytes).ok()?;
        cached.get(&node).copied()
    });
    there.sum()
}

/// What a node has for new pages of programs before they come from another one.
fn left_bytes(node: u32) -> Result<u64, String> {
    let text = fs::read_to_string(ZONES).map_err(|error| format!("{ZONES} cannot be read: {error}"))?;
    let pages = left_pages(&text);
    pages.get(&node).map(|pages| pages * PAGE_BYTES).ok_or_else(|| format!("{ZONES} tells of no node {node}"))
}

/// Of each node, the free pages of its zones above what the kernel keeps in them.
fn left_pages(zones: &str) -> BTreeMap<u32, u64> {
    let mut left: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut node, mut free, mut low) = (None, 0_u64, 0);
    for line in zones.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            // "Node 0, zone    DMA32"
            (Some("Node"), Some(number), Some("zone")) => {
                (node, free, low) = (number.trim_end_matches(',').parse().ok(), 0, 0);
                if let Some(node) = node {
                    left.entry(node).or_default();
                }
            }
            // "  pages free     4321"
            (Some("pages"), Some("free"), Some(pages)) => free = pages.parse().unwrap_or(0),
            (Some("low"), Some(pages), None) => low = pages.parse().unwrap_or(0),
            // "        protection: (0, 700, 700, 700, 700)": from those who could have come from a zone above, the most last.
            (Some("protection:"), ..) => {
                let kept =
                    line.rsplit(['(', ' ', ')']).find_map(|word| word.parse::<u64>().ok()).unwrap_or(0);
                if let Some(left) = node.and_then(|node| left.get_mut(&node)) {
                    *left += free.saturating_sub(low + kept);
                }
            }
            _ => {}
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_zones_keep_is_not_left() {
        let zones = "Node 0, zone      DMA\n  per-node stats\n      nr_free 7\n  pages free     3840\n        boost    0\n        \
                     min      25\n        low      31\n        protection: (0, 700, 700, 700, 700)\n      nr_free_pages 3840\n\
                     Node 0, zone    DMA32\n  pages free     1000\n        low      1031\n        protection: (0, 0, 0, 0, 0)\n\
                     Node 0, zone   Normal\n  pages free     0\n        low      0\n        protection: (0, 0, 0, 0, 0)\n\
                     Node 1, zone    DMA32\n  pages free     5000\n        low      100\n        protection: (0, 0, 0, 0, 0)\n";
        assert_eq!(left_pages(zones), [(0, 3840 - 31 - 700), (1, 4900)].into());
        assert!(left_pages("").is_empty() && left_pages("Node x, zone y\nprotection: ()\n").is_empty());
    }

    #[test]
    fn what_cannot_be_had_is_said() {
        let plan = Plan::default();
        assert!(Room::leave(1022, 4096, &plan).unwrap_err().contains("1022"));
        let reason = Room::leave(0, u64::MAX, &plan).unwrap_err();
        assert!(reason.contains("node 0") && reason.contains("left"), "{reason}");
    }
}
