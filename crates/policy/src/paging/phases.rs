//! Phases of a plan: sets of pages of which a program uses one at a time, such as experts of a model or the tables of a kind of request.
//!
//! Which phase it is in is known by what is seen. Each first use of a page since it came to DRAM is a vote for the phases that it belongs to;
//! 14 of the last 16 votes decide, which are so by chance in four of 1000 cases where a program uses two phases alike. Then the rest of that phase is fetched, the most important first. What the phase before
//! used needs no telling: by recency it leaves first.
//!
//! What is fetched is paid from a [`Credit`]: a program that uses little of its phases, or jumps from one to the other, has little fetched
//! for nothing.

use std::collections::VecDeque;

use super::page_range::PageRange;
use super::path::Lies;
use crate::prefetch::Demand;
use crate::prefetch::credit::Credit;

/// Phases that are told apart; more are not followed.
const PHASES_MAX: usize = 64;
/// Votes that are remembered, and those that decide.
const VOTES: usize = 16;
const VOTES_MIN: usize = 14;
/// What may be fetched for nothing.
const CREDIT_PAGES: u32 = 1024;
/// Pages that are fetched, and looked at, for one use.
const AT_ONCE: usize = 64;
const LOOKS_MAX: u64 = 4096;

/// All phases, and which one the program is in.
#[derive(Clone, Debug)]
pub(super) struct Phases {
    phases: Vec<Phase>,
    /// For each vote the phases that it was for, one bit each.
    votes: VecDeque<u64>,
    current: Option<usize>,
    credit: Credit,
}

#[derive(Clone, Debug, Default)]
struct Phase {
    number: u16,
    /// The most important first.
    ranges: Vec<PageRange>,
    /// The same in the order of pages, joined where they touch.
    sorted: Vec<PageRange>,
    /// What is looked at next for fetching it: a range, and a page of it.
    next: (usize, u64),
}

impl Default for Phases {
    fn default() -> Self {
        Phases {
            phases: Vec::new(),
            votes: VecDeque::new(),
            current: None,
            credit: Credit::full(CREDIT_PAGES),
        }
    }
}

impl Phases {
    /// Takes these ranges in the place of those before, each with the number of its phase, the most important first. The program stays in the
    /// phase that it is in.
    pub fn set(&mut self, told: &[(u16, PageRange)]) {
        let current = self.current.map(|at| self.phases[at].number);
        self.phases.clear();
        for (number, range) in told {
            let known = self.phases.iter().position(|phase| phase.number == *number);
            let at = known.unwrap_or(self.phases.len());
            if at == PHASES_MAX {
                continue;
            }
            if known.is_none() {
                self.phases.push(Phase { number: *number, ..Phase::default() });
            }
            self.phases[at].ranges.push(*range);
        }
        self.phases.iter_mut().for_each(Phase::sort);
        self.current = self.phases.iter().position(|phase| Some(phase.number) == current);
        self.votes.clear();
    }

    /// Whether a page belongs to any.
    #[cfg(test)]
    pub fn holds(&self, page: u64) -> bool {
        self.phases.iter().any(|phase| phase.holds(page))
    }

    /// A page was used for the first time since it came to DRAM.
    pub fn used(&mut self, page: u64) {
        let bits = self.phases.iter().enumerate();
        let vote = bits.fold(0, |vote, (at, phase)| vote | u64::from(phase.holds(page)) << at);
        if vote == 0 {
            return;
        }
        if self.votes.len() == VOTES {
            self.votes.pop_front();
        }
        self.votes.push_back(vote);
        // What the program uses may belong to several phases: it stays in the one that it is in.
        if self.current.is_some_and(|at| self.votes_for(at) > VOTES - VOTES_MIN) {
            return;
        }
        let chosen = (0..self.phases.len()).max_by_key(|at| (self.votes_for(*at), std::cmp::Reverse(*at)));
        if let Some(at) = chosen.filter(|at| self.votes_for(*at) >= VOTES_MIN && self.current != Some(*at)) {
            self.current = Some(at);
            self.phases[at].begin();
        }
    }

    fn votes_for(&self, at: usize) -> usize {
        self.votes.iter().filter(|vote| *vote >> at & 1 == 1).count()
    }

    /// A page of the phase was used that had been fetched for it.
    pub fn has_paid(&mut self, page: u64, found: Demand) {
        let is_fetched = matches!(found, Demand::PrefetchHit | Demand::LatePrefetch);
        if is_fetched && self.current.is_some_and(|at| self.phases[at].holds(page)) {
            self.credit.earn();
        }
    }

    /// A page is used: wishes for more of its phase, if that is the one that the program is in. Whether it has wished for any.
    pub fn fetch(&mut self, page: u64, mut lies: impl FnMut(u64) -> Lies, wanted: &mut Vec<u64>) -> bool {
        // A program that uses another phase as well does not do what the plan says.
        let is_sure = |at: &usize| self.votes_for(*at) >= VOTES_MIN;
        let current = self.current.filter(is_sure).map(|at| &mut self.phases[at]);
        let Some(phase) = current.filter(|phase| phase.holds(page)) else { return false };
        let (mut looks, before) = (0, wanted.len());
        while looks < LOOKS_MAX && wanted.len() - before < AT_ONCE && self.credit.pages() > 0 {
            let Some(next) = phase.step() else { break };
            looks += 1;
            if lies(next) == Lies::Below {
                self.credit.spend();
                wanted.push(next);
            }
        }
        wanted.len() > before
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let ranges = |phase: &Phase| phase.ranges.capacity() + phase.sorted.capacity();
        let bytes = self.phases.iter().map(ranges).sum::<usize>() * size_of::<PageRange>()
            + self.phases.capacity() * size_of::<Phase>()
            + self.votes.capacity() * size_of::<u64>();
        bytes as u64
    }
}

impl Phase {
    fn sort(&mut self) {
        let mut sorted = self.ranges.clone();
        sorted.sort_unstable_by_key(|range| range.first);
        for range in sorted {
            match self.sorted.last_mut() {
                Some(last) if last.end >= range.first => last.end = last.end.max(range.end),
                _ => self.sorted.push(range),
            }
        }
        self.begin();
    }

    fn holds(&self, page: u64) -> bool {
        let at = self.sorted.partition_point(|range| range.end <= page);
        self.sorted.get(at).is_some_and(|range| range.holds(page))
    }

    /// All of it is looked at, from the beginning.
    fn begin(&mut self) {
        self.next = (0, self.ranges.first().map_or(0, |range| range.first));
    }

    /// The next page to look at.
    fn step(&mut self) -> Option<u64> {
        let (at, page) = self.next;
        let range = self.ranges.get(at)?;
        self.next = match page + 1 < range.end {
            true => (at, page + 1),
            false => (at + 1, self.ranges.get(at + 1).map_or(0, |range| range.first)),
        };
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, end: u64) -> PageRange {
        PageRange { first, end }
    }

    /// Two phases, of which the last pages of the first are the first ones of the second.
    fn two() -> Phases {
        let mut phases = Phases::default();
        phases.set(&[
            (7, range(500, 1000)),
            (7, range(0, 500)),
            (9, range(900, 1900)),
            (7, range(5000, 9000)),
        ]);
        phases
    }

    fn fetched(phases: &mut Phases, page: u64) -> Vec<u64> {
        let mut wanted = Vec::new();
        phases.used(page);
        phases.fetch(page, |_| Lies::Below, &mut wanted);
        wanted
    }

    #[test]
    fn the_rest_of_a_phase_is_fetched_once_it_is_known_the_most_important_first() {
        let mut phases = two();
        assert!((0..13).all(|page| fetched(&mut phases, page).is_empty()));
        assert_eq!(fetched(&mut phases, 13), (500..564).collect::<Vec<_>>());
        assert_eq!(fetched(&mut phases, 14), (564..628).collect::<Vec<_>>());
        // What belongs to both changes nothing, and what is of no phase says nothing.
        assert!((900..999).all(|page| {
            phases.used(page);
            phases.current == Some(0)
        }));
        assert!(fetched(&mut phases, 2000).is_empty());
        assert!((1000..1013).all(|page| {
            phases.used(page);
            phases.current == Some(0)
        }));
        phases.used(1013);
        assert_eq!(phases.current, Some(1));
        // A plan that is told anew finds the program where it was.
        phases.set(&[(9, range(900, 1900)), (7, range(0, 1000))]);
        assert_eq!(phases.current, Some(0));
        phases.set(&[(7, range(0, 1000))]);
        assert_eq!(phases.current, None);
    }

    #[test]
    fn what_is_not_used_is_fetched_no_more() {
        let mut phases = two();
        (0..16).for_each(|page| phases.used(page));
        let all: usize = (0..100).map(|page| fetched(&mut phases, page).len()).sum();
        assert_eq!(all, CREDIT_PAGES as usize);
        (0..10).for_each(|page| phases.has_paid(page, Demand::PrefetchHit));
        // Of another phase, or not fetched.
        phases.has_paid(1500, Demand::PrefetchHit);
        phases.has_paid(10, Demand::Hit);
        assert_eq!((0..100).map(|page| fetched(&mut phases, page).len()).sum::<usize>(), 20);
    }

    #[test]
    fn what_lies_in_dram_costs_nothing_and_few_looks_are_made_for_one_use() {
        let mut phases = Phases::default();
        phases.set(&[(0, range(0, 1 << 40))]);
        (0..16).for_each(|page| phases.used(page));
        let mut wanted = Vec::new();
        assert!(!phases.fetch(3, |_| Lies::Here, &mut wanted));
        assert!(phases.fetch(3, |_| Lies::Below, &mut wanted));
        assert_eq!(wanted.first(), Some(&LOOKS_MAX));
        assert!(phases.metadata_bytes() > 0);
    }
}
