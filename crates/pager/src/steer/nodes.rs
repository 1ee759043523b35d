//! The nodes of a pool, and pages that lie in another node than the core has them in.
//!
//! The kernel puts a page that faults, or is fetched, on the remote node: that is what the program and the fetching thread ask for. So most
//! pages come to where the core expects them. While local memory fills they do not, and neither where a node is full. A page scan finds
//! these, and they are brought to where the core has them.

use tiermem_policy::paging::PageRange;
use tiermem_sys::numa;

use super::spaces::Spaces;

/// Pages whose node is asked for at once.
const ASKED_AT_ONCE: u64 = 1 << 16;
/// Pages that are brought to their nodes after one scan at most: the next one finds the others.
const MOVED_MAX: usize = 1 << 14;

/// The nodes of the tiers of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Local memory, the first tier.
    pub local: u32,
    /// Memory of another node, the second.
    pub remote: u32,
}

impl Nodes {
    /// The node of a tier; `None`: it is none of memory.
    pub fn of_tier(&self, tier: u8) -> Option<u32> {
        [self.local, self.remote].get(usize::from(tier)).copied()
    }

    /// Of pages that are in memory those that lie elsewhere than `tier_of` says, with their node; `None` of it: the page is left alone.
    pub fn misplaced(
        &self,
        present: &[PageRange],
        spaces: &Spaces,
        tier_of: impl Fn(u64) -> Option<u8>,
    ) -> Vec<(u64, u32)> {
        let mut misplaced = Vec::new();
        for range in present {
            for first in (range.first..range.end).step_by(ASKED_AT_ONCE as usize) {
                let pages = first..range.end.min(first + ASKED_AT_ONCE);
                let addresses: Vec<u64> = pages.clone().map(|page| spaces.place_of(page).address).collect();
                let mut found = vec![0; addresses.len()];
                // A process that has gone has no pages.
                if numa::nodes_of(spaces.place_of(first).pid, &addresses, &mut found).is_err() {
                    break;
                }
                let wrong = pages.zip(found).filter_map(|(page, found)| {
                    let node = self.of_tier(tier_of(page)?)?;
                    // What has gone meanwhile lies on no node.
                    let found = u32::try_from(found).ok()?;
                    (found != node).then_some((page, node))
                });
                misplaced.extend(wrong.take(MOVED_MAX - misplaced.len()));
            }
        }
        misplaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_of_memory_have_nodes() {
        let nodes = Nodes { local: 3, remote: 1 };
        assert_eq!([0, 1, 2].map(|tier| nodes.of_tier(tier)), [Some(3), Some(1), None]);
    }

    #[test]
    fn pages_that_lie_elsewhere_are_found() {
        let Some(node) = numa::nodes().first().map(|node| node.number) else { return };
        let memory = vec![1_u8; 100 * 4096];
        let mut spaces = Spaces::new(None);
        let first = spaces.page(std::process::id(), memory.as_ptr() as u64 + 4095).unwrap();
        let present =
            [PageRange { first, end: first + 50 }, PageRange { first: first + 60, end: first + 70 }];
        // All lie on the only node, or on the first of several; none has another number.
        let nodes = Nodes { local: node, remote: node + 1000 };
        let found = |tier_of: &dyn Fn(u64) -> Option<u8>| nodes.misplaced(&present, &spaces, tier_of);
        assert_eq!(found(&|_| Some(0)).len() + found(&|_| Some(2)).len() + found(&|_| None).len(), 0);
        let odd = found(&|page| Some((page % 2) as u8));
        assert_eq!(odd.len(), 30);
        assert!(odd.iter().all(|(page, to)| page % 2 == 1 && *to == node + 1000));
    }
}
