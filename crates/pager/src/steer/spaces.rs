//! Address spaces of a program's processes, as the core sees them: one number for each page of all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tiermem_model::placement::Plan;
use tiermem_place::capture::mappings::maps::{self, MapLine};
use tiermem_place::migrate::PlannedStretch;
use tiermem_policy::paging::{Event, PageRange, PageState};
use tiermem_sys::page_scan::{Occupied, PageScan};
use tiermem_sys::pidfd::PidFd;

use super::plan::{FollowedPlan, PlanFound};

const PAGE_LOG2: u32 = 12;
/// An address has 57 bits at most, so a page's number within its process has 45.
const SPACE_LOG2: u32 = 45;
/// Mappings are read again for an address that lies in none, but no more often than that.
const MAPS_APART: Duration = Duration::from_millis(5);
/// And reading them takes one part in this number of the time at most: there may be very many.
const MAPS_SHARE: u32 = 20;

/// The processes of a program, each with its place among the numbers of pages.
#[derive(Debug, Default)]
pub struct Spaces {
    spaces: Vec<Space>,
    by_pid: BTreeMap<u32, usize>,
    plan: Option<FollowedPlan>,
    /// Processes in the address spaces of others: what they have is told of these.
    guests: BTreeSet<u32>,
}

/// Where a page is.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its process.
    pub process: &'a Arc<PidFd>,
    /// The number of that.
    pub pid: u32,
    /// Its address there.
    pub address: u64,
}

/// One process.
#[derive(Debug)]
struct Space {
    pid: u32,
    /// Shared with advice that is under way.
    process: Arc<PidFd>,
    /// Private memory of no file, in order, apart from each other: what is paged to swap and of this process alone.
    ranges: Vec<(u64, u64)>,
    /// When they may be read again for an address that lies in none.
    next_read: Instant,
    is_gone: bool,
}

impl Spaces {
    /// No process yet; a plan is told of the process that it fits.
    pub fn new(plan: Option<Arc<Plan>>) -> Self {
        Spaces { plan: plan.map(FollowedPlan::new), ..Spaces::default() }
    }

    /// How the plan was followed, if there is one.
    pub fn plan_found(&self) -> Option<PlanFound> {
        self.plan.as_ref().map(FollowedPlan::found)
    }

    /// The next scan tells the whole plan, to a core that knows nothing.
    pub fn tell_plan_anew(&mut self) {
        self.plan.iter_mut().for_each(FollowedPlan::begin_anew);
    }

    /// The number of the page at an address of a process; `None` for memory that is left to the kernel: files, what several processes
    /// share, and processes that have gone.
    pub fn page(&mut self, pid: u32, address: u64) -> Option<u64> {
        let at = match self.by_pid.get(&pid) {
            Some(at) => *at,
            None => self.enter(pid)?,
        };
        let space = &mut self.spaces[at];
        if !space.holds(address) && Instant::now() >= space.next_read {
            space.read();
        }
        space.holds(address).then(|| number(at, address))
    }

    /// Has a process among them, before anything has happened in it.
    pub fn watch(&mut self, pid: u32) {
        if !self.by_pid.contains_key(&pid) {
            // One that has gone needs nothing.
            let _ = self.enter(pid);
        }
    }

    /// Leaves a process out which has the address space of another; what was told of it is taken back.
    pub fn leave_out(&mut self, pid: u32, mut tell: impl FnMut(Event)) {
        self.guests.insert(pid);
        if let Some(at) = self.by_pid.remove(&pid) {
            let space = &mut self.spaces[at];
            space.is_gone = true;
            for (start, end) in std::mem::take(&mut space.ranges) {
                tell(Event::Unmapped { pages: pages(at, start, end) });
            }
        }
    }

    /// The processes that have not gone.
    pub fn living(&self) -> Vec<u32> {
        self.by_pid.keys().copied().collect()
    }

    /// The pages of a range of addresses of a process that is known.
    pub fn pages_of(&self, pid: u32, (start, end): (u64, u64)) -> Option<PageRange> {
        (start < end).then(|| self.by_pid.get(&pid).map(|at| pages(*at, start, end))).flatten()
    }

    fn enter(&mut self, pid: u32) -> Option<usize> {
        if self.guests.contains(&pid) {
            return None;
        }
        let process = Arc::new(PidFd::open(pid).ok()?);
        let mut space = Space { pid, process, ranges: Vec::new(), next_read: Instant::now(), is_gone: false };
        space.read();
        let at = self.spaces.len();
        self.spaces.push(space);
        self.by_pid.insert(pid, at);
        Some(at)
    }

    /// Where a page is.
    pub fn place_of(&self, page: u64) -> Place<'_> {
        let (at, address) = ((page >> SPACE_LOG2) as usize, (page & ((1 << SPACE_LOG2) - 1)) << PAGE_LOG2);
        let Space { pid, process, .. } = &self.spaces[at];
        Place { process, pid: *pid, address }
    }

    /// Whether two pages are of one process.
    pub fn are_of_one(page: u64, other: u64) -> bool {
        page >> SPACE_LOG2 == other >> SPACE_LOG2
    }

    /// Looks at the pages of all processes, and tells where each is; also what is mapped no longer.
    pub fn scan(&mut self, mut tell: impl FnMut(Event)) {
        for at in 0..self.spaces.len() {
            let space = &mut self.spaces[at];
            if space.is_gone {
                continue;
            }
            let before = std::mem::take(&mut space.ranges);
            let lines = space.read();
            for (first, end) in without(&before, &space.ranges) {
                tell(Event::Unmapped { pages: pages(at, first, end) });
            }
            for PlannedStretch { role, start, end } in
                self.plan.iter_mut().flat_map(|plan| plan.look(space.pid, &lines))
            {
                // What is left to the kernel is in no plan of ours.
                for (start, end) in within(&space.ranges, (start, end)) {
                    tell(Event::Planned { pages: pages(at, start, end), role });
                }
            }
            // A process that has gone has no mappings, which was told; its number may come back as another.
            let _ = space.tell(at, &mut tell);
            if space.is_gone {
                self.by_pid.retain(|_, other| *other != at);
            }
        }
    }
}

impl Space {
    fn holds(&self, address: u64) -> bool {
        let at = self.ranges.partition_point(|(_, end)| *end <= address);
        self.ranges.get(at).is_some_and(|(start, _)| *start <= address)
    }

    /// Reads what is mapped, and returns all of it.
    fn read(&mut self) -> Vec<MapLine> {
        let begun = Instant::now();
        let lines = fs::read_to_string(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
        let lines = maps::parse(&lines).unwrap_or_default();
        self.is_gone = lines.is_empty();
        self.ranges = joined(lines.iter().filter(|line| is_steered(line)).map(|line| (line.start, line.end)));
        self.next_read = Instant::now() + MAPS_APART.max(begun.elapsed() * MAPS_SHARE);
        lines
    }

    fn tell(&self, at: usize, tell: &mut impl FnMut(Event)) -> io::Result<()> {
        let mut scan = PageScan::open(self.pid)?;
        for &(start, end) in &self.ranges {
            let mut next = start;
            let mut absent = |from: u64, to: u64| {
                if from < to {
                    tell(Event::Found { pages: pages(at, from, to), state: PageState::Absent });
                }
            };
            let mut found = Vec::new();
            scan.occupied(start, end, |range, occupied| found.push((range, occupied)))?;
            for (range, _) in &found {
                absent(next, range.start);
                next = range.end;
            }
            absent(next, end);
            for (range, occupied) in found {
                let pages = pages(at, range.start, range.end);
                let state = match occupied {
                    Occupied::Memory => PageState::Present,
                    Occupied::Swap => PageState::Swapped,
                };
                tell(Event::Found { pages, state });
            }
        }
        Ok(())
    }
}

/// Private memory without a file, but for what the kernel maps into every process.
fn is_steered(line: &MapLine) -> bool {
    line.is_private_memory()
}

fn number(at: usize, address: u64) -> u64 {
    (at as u64) << SPACE_LOG2 | address >> PAGE_LOG2
}

fn pages(at: usize, start: u64, end: u64) -> PageRange {
    PageRange { first: number(at, start), end: number(at, end - 1) + 1 }
}

/// Ranges in order, neighbours joined.
fn joined(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match all.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => all.push((start, end)),
        }
    }
    all
}

/// The parts of a stretch that lie in ranges, which are in order.
fn within(ranges: &[(u64, u64)], (start, end): (u64, u64)) -> impl Iterator<Item = (u64, u64)> + use<'_> {
    let first = ranges.partition_point(|range| range.1 <= start);
    ranges[first..]
        .iter()
        .map(move |range| (range.0.max(start), range.1.min(end)))
        .take_while(|(from, to)| from < to)
}

/// The parts of ranges that lie in none of others; all are in order.
fn without(ranges: &[(u64, u64)], others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    for &(start, end) in ranges {
        let mut next = start;
        let first = others.partition_point(|(_, other_end)| *other_end <= start);
        for &(other_start, other_end) in
            others[first..].iter().take_while(|(other_start, _)| *other_start < end)
        {
            if next < other_start {
                left.push((next, other_start));
            }
            next = other_end;
        }
        if next < end {
            left.push((next, end));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_without_others_are_what_only_they_have() {
        let ranges = [(0, 10), (20, 30), (40, 50)];
        assert_eq!(without(&ranges, &[]), ranges);
        assert_eq!(without(&ranges, &ranges), []);
        assert_eq!(without(&ranges, &[(2, 4), (8, 22), (45, 99)]), [(0, 2), (4, 8), (22, 30), (40, 45)]);
        assert_eq!(within(&ranges, (5, 45)).collect::<Vec<_>>(), [(5, 10), (20, 30), (40, 45)]);
        assert_eq!(within(&ranges, (10, 20)).count() + within(&ranges, (60, 70)).count(), 0);
        assert_eq!(joined([(0, 5), (5, 7), (8, 9)].into_iter()), [(0, 7), (8, 9)]);
    }

    #[test]
    fn own_memory_is_steered_and_files_are_not() {
        let own = std::process::id();
        let mut spaces = Spaces::default();
        let boxed = Box::new([1_u8; 4096]);
        let page = spaces.page(own, boxed.as_ptr().addr() as u64).unwrap();
        assert_eq!(spaces.place_of(page).address, boxed.as_ptr().addr() as u64 & !4095);
        // Code lies in a file.
        assert_eq!(spaces.page(own, own_memory_is_steered_and_files_are_not as fn() as usize as u64), None);
        assert_eq!(spaces.page(u32::MAX, 0x1000), None);
        let (mut any, mut found) = (false, false);
        spaces.scan(|event| {
            if let Event::Found { pages, state: PageState::Present } = event {
                any = true;
                found |= pages.holds(page);
            }
        });
        assert_eq!(any, found, "kernels before 6.7 have no scan");
    }
}
