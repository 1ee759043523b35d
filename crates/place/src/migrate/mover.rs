//! Page mover: finds where pages of a process lie, and moves them.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use tiermem_sys::numa;

/// Bytes of a page.
pub(super) const PAGE_BYTES: u64 = 4096;
/// The kernel's answers for a page that is not in memory, and for an address without a mapping.
const ABSENT: [i32; 2] = [-2, -14];

/// The pages of a process.
pub trait Pages {
    /// On which node each page lies; a number below 0 is an error number.
    ///
    /// # Errors
    /// If the process has gone or may not be asked.
    fn nodes(&mut self, addresses: &[u64], nodes: &mut [i32]) -> io::Result<()>;

    /// Moves pages to a node; `status` then has the node of each page, or an error number below 0.
    ///
    /// # Errors
    /// If the process has gone or may not be asked, and if there is no such node.
    fn move_to(&mut self, addresses: &[u64], node: u32, status: &mut [i32]) -> io::Result<()>;

    /// The time of a clock that never goes back.
    fn clock(&mut self) -> Duration;
}

/// The pages of a real process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessPages {
    pid: u32,
    begun: Instant,
}

impl ProcessPages {
    /// Those of a process with this number.
    pub fn of(pid: u32) -> Self {
        ProcessPages { pid, begun: Instant::now() }
    }
}

impl Pages for ProcessPages {
    fn nodes(&mut self, addresses: &[u64], nodes: &mut [i32]) -> io::Result<()> {
        numa::nodes_of(self.pid, addresses, nodes)
    }

    fn move_to(&mut self, addresses: &[u64], node: u32, status: &mut [i32]) -> io::Result<()> {
        numa::move_to(self.pid, addresses, node, status).map(drop)
    }

    fn clock(&mut self) -> Duration {
        self.begun.elapsed()
    }
}

/// Outcome of one move by pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Pages that are in memory.
    pub present: u64,
    /// Those of them that are in the right place now.
    pub there: u64,
}

impl Moved {
    /// Whether nearly all of them do; a page that another thread is just using may be left behind.
    pub fn is_done(&self) -> bool {
        self.there * 10 >= self.present * 9
    }
}

/// Moves pages, and counts.
#[derive(Debug)]
pub struct Mover<P> {
    pages: P,
    /// Pages that were moved.
    pub moved: u64,
    /// Pages that could not be moved, by the kernel's error number.
    pub failed: BTreeMap<i32, u64>,
    /// The time that moving took.
    pub took: Duration,
    addresses: Vec<u64>,
    status: Vec<i32>,
}

impl<P: Pages> Mover<P> {
    /// Of these pages.
    pub fn new(pages: P) -> Self {
        Mover {
            pages,
            moved: 0,
            failed: BTreeMap::new(),
            took: Duration::ZERO,
            addresses: Vec::new(),
            status: Vec::new(),
        }
    }

    /// Moves the pages between two addresses to a node.
    ///
    /// # Errors
    /// If the process has gone or may not be touched.
    pub fn move_range(&mut self, start: u64, end: u64, node: u32) -> io::Result<Moved> {
        let begun = self.pages.clock();
        self.addresses.clear();
        self.addresses.extend((start..end).step_by(PAGE_BYTES as usize));
        self.status.resize(self.addresses.len(), 0);
        // Pages that are there already do not count as moved.
        self.pages.nodes(&self.addresses, &mut self.status)?;
        let target = node.cast_signed();
        let mut at = 0;
        let status = &self.status;
        self.addresses.retain(|_| {
            at += 1;
            status[at - 1] != target && !ABSENT.contains(&status[at - 1])
        });
        let mut moved = Moved::default();
        moved.there = self.status.iter().filter(|status| **status == target).count() as u64;
        moved.present = moved.there + self.addresses.len() as u64;
        if !self.addresses.is_empty() {
            self.status.resize(self.addresses.len(), 0);
            self.pages.move_to(&self.addresses, node, &mut self.status)?;
            for status in &self.status {
                if *status == target {
                    moved.there += 1;
                    self.moved += 1;
                } else {
                    *self.failed.entry(*status).or_default() += 1;
                }
            }
        }
        self.took += self.pages.clock().saturating_sub(begun);
        Ok(moved)
    }

    /// Of some pages spread over a range: how many lie on each of two nodes.
    ///
    /// # Errors
    /// If the process has gone or may not be asked.
    pub fn sample(&mut self, start: u64, end: u64, nodes: [u32; 2]) -> io::Result<[u64; 2]> {
        /// Pages that are asked for.
        const PAGES: u64 = 8;
        let step = ((end - start) / PAGES / PAGE_BYTES).max(1) * PAGE_BYTES;
        self.addresses.clear();
        self.addresses.extend((start..end).step_by(step as usize));
        self.status.resize(self.addresses.len(), 0);
        self.pages.nodes(&self.addresses, &mut self.status)?;
        let on =
            |node: u32| self.status.iter().filter(|status| **status == node.cast_signed()).count() as u64;
        Ok(nodes.map(on))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages on two nodes; those of odd number cannot be moved.
    struct Fake(BTreeMap<u64, i32>);

    impl Pages for Fake {
        fn nodes(&mut self, addresses: &[u64], nodes: &mut [i32]) -> io::Result<()> {
            for (address, node) in addresses.iter().zip(nodes) {
                *node = self.0.get(address).copied().unwrap_or(-2);
            }
            Ok(())
        }

        fn move_to(&mut self, addresses: &[u64], node: u32, status: &mut [i32]) -> io::Result<()> {
            for (address, status) in addresses.iter().zip(status) {
                match self.0.get_mut(address) {
                    Some(place) if (address / PAGE_BYTES).is_multiple_of(2) => {
                        *place = node.cast_signed();
                        *status = *place;
                    }
                    Some(_) => *status = -16,
                    None => *status = -2,
                }
            }
            Ok(())
        }

        fn clock(&mut self) -> Duration {
            Duration::ZERO
        }
    }

    #[test]
    fn pages_are_moved_once_and_those_that_cannot_be_are_counted() {
        let pages = Fake((0..10).map(|page| (page * PAGE_BYTES, i32::from(page == 4))).collect());
        let mut mover = Mover::new(pages);
        let moved = mover.move_range(0, 20 * PAGE_BYTES, 1).unwrap();
        assert_eq!(moved, Moved { present: 10, there: 5 });
        assert!(!moved.is_done());
        assert_eq!((mover.moved, mover.failed.get(&-16)), (4, Some(&5)));
        assert_eq!(mover.sample(0, 10 * PAGE_BYTES, [0, 1]).unwrap(), [5, 5]);
        // What lies there already costs nothing.
        mover.move_range(0, PAGE_BYTES, 1).unwrap();
        assert_eq!(mover.moved, 4);
    }
}
