//! The nodes of a pool, and pages that lie in another node than the core has them in.
//!
//! The kernel puts a page that faults, or is fetched, on the remote node: that is what the program and the fetching thread ask for. So most
//! pages come to where the core expects them. While local memory fills they do not, and neither where a node is full. A page scan finds
//! these, and they are brought to where the core has them.

use std::ops::Range;

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

    /// Of pages that are in memory those that lie elsewhere than `tier_of` says, with their node; `None` of it: the page is left alone. It begins
    /// at page `from` and goes round, until there are many; tells where to go on.
    pub fn misplaced(
        &self,
        present: &[PageRange],
        from: u64,
        spaces: &Spaces,
        tier_of: impl Fn(u64) -> Option<u8>,
    ) -> (Vec<(u64, u32)>, u64) {
        let (before, behind) = (0..from, from..u64::MAX);
        let mut misplaced = Vec::new();
        for part in [behind, before] {
            let parts = present.iter().map(|range| range.first.max(part.start)..range.end.min(part.end));
            for pages in parts.flat_map(at_once) {
                let nodes = nodes_of(pages.clone(), spaces);
                for (page, found) in pages.zip(nodes) {
                    let node = tier_of(page).and_then(|tier| self.of_tier(tier));
                    misplaced.extend(
                        found.zip(node).filter(|(found, node)| found != node).map(|(_, node)| (page, node)),
                    );
                    if misplaced.len() == MOVED_MAX {
                        return (misplaced, page + 1);
                    }
                }
            }
        }
        (misplaced, 0)
    }

    /// Of pages that are in memory those on the local node.
    pub fn on_local(&self, present: &[PageRange], spaces: &Spaces) -> Vec<PageRange> {
        let mut local: Vec<PageRange> = Vec::new();
        for pages in present.iter().map(|range| range.first..range.end).flat_map(at_once) {
            for (page, _) in
                pages.clone().zip(nodes_of(pages, spaces)).filter(|(_, node)| *node == Some(self.local))
            {
                match local.last_mut() {
                    Some(last) if last.end == page => last.end += 1,
                    _ => local.push(PageRange { first: page, end: page + 1 }),
                }
            }
        }
        local
    }
}

/// A range in parts whose nodes are asked for at once.
fn at_once(pages: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = pages.end;
    pages.step_by(ASKED_AT_ONCE as usize).map(move |first| first..end.min(first + ASKED_AT_ONCE))
}

/// The node of each page of a process; `None` for what has gone meanwhile.
fn nodes_of(pages: Range<u64>, spaces: &Spaces) -> Vec<Option<u32>> {
    let addresses: Vec<u64> = pages.clone().map(|page| spaces.place_of(page).address).collect();
    let mut found = vec![-1; addresses.len()];
    // A process that has gone has no pages.
    let _ = numa::nodes_of(spaces.place_of(pages.start).pid, &addresses, &mut found);
    found.into_iter().map(|node| u32::try_from(node).ok()).collect()
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
        let found =
            |from, tier_of: &dyn Fn(u64) -> Option<u8>| nodes.misplaced(&present, from, &spaces, tier_of);
        for same in [&|_| Some(0), &|_| Some(2), &|_| None] as [&dyn Fn(u64) -> Option<u8>; 3] {
            assert_eq!(found(0, same), (Vec::new(), 0));
        }
        let (odd, next) = found(0, &|page| Some((page % 2) as u8));
        assert_eq!((odd.len(), next), (30, 0));
        assert!(odd.iter().all(|(page, to)| page % 2 == 1 && *to == node + 1000));
        // From the middle on, then from the beginning.
        let (round, _) = found(first + 30, &|_| Some(1));
        assert_eq!((round.len(), round[0].0, round[59].0), (60, first + 30, first + 29));
        assert_eq!(nodes.on_local(&present, &spaces), present);
        let other = Nodes { local: node + 1000, remote: node };
        assert_eq!(other.on_local(&present, &spaces), []);
    }

    #[test]
    fn where_very_many_are_misplaced_the_next_scan_goes_on() {
        let Some(node) = numa::nodes().first().map(|node| node.number) else { return };
        let pages = MOVED_MAX as u64 + 100;
        let memory = vec![1_u8; (pages as usize + 1) * 4096];
        let mut spaces = Spaces::new(None);
        let first = spaces.page(std::process::id(), memory.as_ptr() as u64 + 4095).unwrap();
        let nodes = Nodes { local: node + 1000, remote: node };
        let (one, next) =
            nodes.misplaced(&[PageRange { first, end: first + pages }], 0, &spaces, |_| Some(0));
        assert_eq!((one.len(), next), (MOVED_MAX, first + MOVED_MAX as u64));
        let (other, _) =
            nodes.misplaced(&[PageRange { first, end: first + pages }], next, &spaces, |_| Some(0));
        assert_eq!(other[0].0, next);
    }
}
