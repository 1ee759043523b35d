//! Cap on fast memory: limits its free space to what a plan uses, by locking pages on the node.
//!
//! The kernel allocates a page when it is first touched, on the processor's node while
//! that has room, and on the next node then. A node's room is the free memory of its
//! zones above their low watermark: only below that does an allocation go elsewhere.

use std::collections::BTreeMap;
use std::fs::{self, File};

use tiermem_base::Bytes;
use tiermem_model::placement::Plan;
use tiermem_sys::mapping::Mapping;
use tiermem_sys::{affinity, numa};

const ZONES: &str = "/proc/zoneinfo";
const PAGE_BYTES: u64 = 4096;
/// Accepted distance from the wanted size: the kernel counts pages on each processor and adds them up now and then.
const NEAR_BYTES: u64 = 256 << 10;
/// Pages are held and given back at most so often until that is so.
const ROUNDS: usize = 64;
/// Up to so many pages are taken a few at a time.
const PAGES_TAKEN_SLOWLY: u64 = 8192;
/// Pages that a processor's list is filled with at once, at first.
const BATCH_PAGES: usize = 64;
/// Pages that are given back after each of these batches: each one halves the next.
const CALMING_PAGES: usize = 16;

/// A node with a limited amount of room. It has all its room again when this is dropped.
#[derive(Debug)]
pub(super) struct Room {
    node: u32,
    left_bytes: u64,
    files_bytes: u64,
    held: Vec<Mapping>,
}

impl Room {
    /// Leaves `bytes` of a node to a program that is about to start. Its files that are there
    /// already count as a part of them. `Err` has the reason where that is not possible.
    pub fn leave(node: u32, bytes: u64, plan: &Plan) -> Result<Self, String> {
        let files_bytes = files_there(plan, node);
        let wanted = bytes.saturating_sub(files_bytes);
        let mut room = Room { node, left_bytes: 0, files_bytes, held: Vec::new() };
        for _ in 0..ROUNDS {
            let free = free_memory(node)?;
            let left = free.bytes();
            room.left_bytes = left;
            if left.abs_diff(wanted) <= NEAR_BYTES {
                return Ok(room);
            }
            match (left > wanted, room.held.pop()) {
                (true, last) => {
                    room.held.extend(last);
                    // A little less, as page tables take some too.
                    let over = (left - wanted) / PAGE_BYTES;
                    room.held.push(held(node, &free, over - over / 32)?);
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

    /// A note for the user on what was done.
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

/// Locks this number of pages of a node, or fewer.
///
/// Never more than the processor that takes them has on its list and the zones have above their low watermarks: pages
/// on the lists of other processors are not available to it, and asking for more wakes the kernel's OOM killer.
fn held(node: u32, free: &FreeMemory, pages: u64) -> Result<Mapping, String> {
    let take = |pages: u64| {
        let bytes = pages * PAGE_BYTES;
        let failed = |error: &dyn std::fmt::Display| {
            format!("{} of node {node} cannot be held: {error}; root, or ulimit -l, allows it", Bytes(bytes))
        };
        let bytes = usize::try_from(bytes).map_err(|error| failed(&error))?;
        let mut mapping = Mapping::anonymous(bytes).map_err(|error| failed(&error))?;
        numa::bind(&mut mapping, node).map_err(|error| failed(&error))?;
        if pages <= PAGES_TAKEN_SLOWLY {
            touch_slowly(&mut mapping, node);
        }
        mapping.lock().map_err(|error| failed(&error))?;
        Ok(mapping)
    };
    let (processor, listed) = free.longest_list();
    let on_its_processor = || {
        let listed = affinity::pin_thread(processor).map_or(0, |()| listed);
        take(pages.min(free.unlisted_pages + listed))
    };
    // A thread of its own, so that this one stays where it may run.
    let taken = std::thread::scope(|scope| scope.spawn(on_its_processor).join());
    taken.unwrap_or_else(|_| {
        Err(format!("memory of node {node} cannot be held: the thread that asked for it died"))
    })
}

/// Touches the pages of a mapping without the lists of processors growing meanwhile.
///
/// A processor that takes pages one after the other has its list filled with twice as many each time, up to 8 MiB, which the zone has
/// less then: a wanted amount of room would be met by chance only. Each page given back halves that again.
fn touch_slowly(mapping: &mut Mapping, node: u32) {
    let touch = |bytes: &mut [u8]| bytes.iter_mut().step_by(PAGE_BYTES as usize).for_each(|byte| *byte = 1);
    for batch in mapping.bytes_mut().chunks_mut(BATCH_PAGES * PAGE_BYTES as usize) {
        touch(batch);
        let Ok(mut calming) = Mapping::anonymous(CALMING_PAGES * PAGE_BYTES as usize) else { continue };
        if numa::bind(&mut calming, node).is_ok() {
            touch(calming.bytes_mut());
        }
    }
}

/// Bytes of the plan's files on a node already, of files without shared writable mappings.
fn files_there(plan: &Plan, node: u32) -> u64 {
    let files = plan.regions.iter().filter(|it| !it.permissions.contains('w'));
    let there = files.filter_map(|it| {
        let file = File::open(it.path.as_ref()?).ok()?;
        let cached = numa::cached_bytes(&file, it.file_offset, it.bytes).ok()?;
        cached.get(&node).copied()
    });
    there.sum()
}

/// Free memory of a node for new pages of programs before they come from another node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FreeMemory {
    /// Free pages of its zones above what the kernel keeps in them.
    unlisted_pages: u64,
    /// Pages on the list of each processor, which are no room.
    ///
    /// A processor's first touches are served from its list, and the list is filled again from the zone, so it is about as full when
    /// the zone reaches its watermark as before. From then on the kernel looks at the next node first, whatever the list holds.
    /// Lists that are long beside `--fast` (2016 pages at most) and fuller at first than in the end leave the program more.
    listed_pages: BTreeMap<usize, u64>,
}

impl FreeMemory {
    fn bytes(&self) -> u64 {
        self.unlisted_pages * PAGE_BYTES
    }

    /// The processor with most pages on its list, and how many they are.
    fn longest_list(&self) -> (usize, u64) {
        self.listed_pages
            .iter()
            .map(|(&processor, &pages)| (processor, pages))
            .max_by_key(|it| it.1)
            .unwrap_or_default()
    }
}

fn free_memory(node: u32) -> Result<FreeMemory, String> {
    let text = fs::read_to_string(ZONES).map_err(|error| format!("{ZONES} cannot be read: {error}"))?;
    parse_zones(&text).remove(&node).ok_or_else(|| format!("{ZONES} tells of no node {node}"))
}

/// The free memory of each node.
fn parse_zones(zones: &str) -> BTreeMap<u32, FreeMemory> {
    let mut nodes: BTreeMap<u32, FreeMemory> = BTreeMap::new();
    let (mut node, mut free, mut low, mut processor) = (None, 0_u64, 0, 0);
    for line in zones.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            // "Node 0, zone    DMA32"
            (Some("Node"), Some(number), Some("zone")) => {
                (node, free, low) = (number.trim_end_matches(',').parse().ok(), 0, 0);
                if let Some(node) = node {
                    nodes.entry(node).or_default();
                }
            }
            // "  pages free     4321"
            (Some("pages"), Some("free"), Some(pages)) => free = pages.parse().unwrap_or(0),
            (Some("low"), Some(pages), None) => low = pages.parse().unwrap_or(0),
            // "        protection: (0, 700, 700, 700, 700)": by the zone
            // that the request could have used, the highest last.
            (Some("protection:"), ..) => {
                let kept =
                    line.rsplit(['(', ' ', ')']).find_map(|word| word.parse::<u64>().ok()).unwrap_or(0);
                if let Some(found) = node.and_then(|node| nodes.get_mut(&node)) {
                    found.unlisted_pages += free.saturating_sub(low + kept);
                }
            }
            // "    cpu: 0", and then "              count:    63"
            (Some("cpu:"), Some(number), None) => processor = number.parse().unwrap_or(0),
            (Some("count:"), Some(pages), None) => {
                if let Some(found) = node.and_then(|node| nodes.get_mut(&node)) {
                    *found.listed_pages.entry(processor).or_default() += pages.parse().unwrap_or(0);
                }
            }
            _ => {}
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_zones_keep_is_not_left() {
        let zones = "
Node 0, zone      DMA
  per-node stats
      nr_free 7
  pages free     3840
        boost    0
        min      25
        low      31
        protection: (0, 700, 700, 700, 700)
      nr_free_pages 3840
  pagesets
    cpu: 0
              count:    7
              high:     244
    cpu: 1
              count:    2
Node 0, zone    DMA32
  pages free     1000
        low      1031
        protection: (0, 0, 0, 0, 0)
  pagesets
    cpu: 0
              count:    0
    cpu: 1
              count:    90
Node 0, zone   Normal
  pages free     0
        low      0
        protection: (0, 0, 0, 0, 0)
Node 1, zone    DMA32
  pages free     5000
        low      100
        protection: (0, 0, 0, 0, 0)
";
        let near = FreeMemory { unlisted_pages: 3840 - 31 - 700, listed_pages: [(0, 7), (1, 92)].into() };
        assert_eq!((near.bytes() / 4096, near.longest_list()), (3840 - 31 - 700, (1, 92)));
        let far = FreeMemory { unlisted_pages: 4900, listed_pages: BTreeMap::new() };
        assert_eq!((far.bytes() / 4096, far.longest_list()), (4900, (0, 0)));
        assert_eq!(parse_zones(zones), [(0, near), (1, far)].into());
        for broken in ["", "Node x, zone y\nprotection: ()\n", "cpu: 1\ncount: 4\n"] {
            assert!(parse_zones(broken).is_empty());
        }
    }

    #[test]
    fn what_cannot_be_had_is_said() {
        let plan = Plan::default();
        assert!(Room::leave(1022, 4096, &plan).unwrap_err().contains("1022"));
        let reason = Room::leave(0, u64::MAX, &plan).unwrap_err();
        assert!(reason.contains("node 0") && reason.contains("left"), "{reason}");
    }
}
