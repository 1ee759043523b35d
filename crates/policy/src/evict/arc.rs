//! ARC, the adaptive replacement cache: N. Megiddo, D. S. Modha, "ARC: a self-tuning, low overhead replacement cache",
//! FAST 2003, figure 4.
//!
//! Two LRU lists, of items used once lately (T1) and more often (T2), each with ghosts of what fell out of it (B1, B2).
//! A miss on a ghost of B1 says that T1 should have been longer, one on B2 that T2 should: that moves the target
//! size p of T1. With sizes, p moves by the size of the ghost. No parameters. Not for engines at full speed: each hit moves
//! an item in a list; and with demotions from elsewhere its two histories are not what the paper means by them.

use super::ghosts::{Ghosts, fold};
use super::list::{List, Node, last_of};
use super::{Departure, Domain, Evict, Origin, Touch};
use crate::Id;
use crate::column::{Bits, Column};
use tiermem_base::Rng;

/// Where the key that is about to enter was remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ghost {
    Recent,
    Frequent,
}

#[derive(Clone, Debug, Default)]
struct Lists {
    /// T1 and B1.
    recent: List,
    recent_ghosts: Ghosts,
    /// T2 and B2.
    frequent: List,
    frequent_ghosts: Ghosts,
    /// p, the target size of T1.
    target: f64,
    returning: Option<(u32, Ghost)>,
    capacity: u64,
}

impl Lists {
    fn capacity(&self) -> u64 {
        self.capacity.max(self.recent.size + self.frequent.size)
    }

    /// The list that gives next, and the other: REPLACE, and the second part of case IV. With B1 empty and T1 as large as the cache, T1
    /// gives.
    fn in_order(&self) -> [&List; 2] {
        let recent = self.recent.size as f64;
        let from_frequent = self.returning.is_some_and(|(_, ghost)| ghost == Ghost::Frequent);
        match recent > self.target || from_frequent && recent >= self.target {
            true => [&self.recent, &self.frequent],
            false => [&self.frequent, &self.recent],
        }
    }

    /// How far a ghost moves the target: its size times how many more ghosts the other side has, at least once.
    fn step(size: u32, own: &Ghosts, other: &Ghosts) -> f64 {
        f64::from(size) * (other.size() as f64 / own.size().max(1) as f64).max(1.0)
    }
}

/// Lists and ghosts, one set per domain.
#[derive(Clone, Debug)]
pub struct Arc {
    nodes: Column<Node>,
    in_frequent: Bits,
    domains: Vec<Lists>,
}

impl Arc {
    /// A set of lists for each capacity.
    pub fn new(capacities: impl IntoIterator<Item = u64>) -> Self {
        let lists = |capacity| Lists { capacity, ..Lists::default() };
        Arc {
            nodes: Column::default(),
            in_frequent: Bits::default(),
            domains: capacities.into_iter().map(lists).collect(),
        }
    }
}

impl Evict for Arc {
    fn miss(&mut self, domain: Domain, key: u64) {
        let lists = &mut self.domains[domain.0 as usize];
        let key = fold(key);
        if lists.returning.is_some_and(|(returning, _)| returning == key) {
            return;
        }
        // Cases II and III: the sizes of B1 and B2 count with the ghost still in its place.
        let up = |size| Lists::step(size, &lists.recent_ghosts, &lists.frequent_ghosts);
        let down = |size| Lists::step(size, &lists.frequent_ghosts, &lists.recent_ghosts);
        let (up, down) = (up(1), down(1));
        lists.returning = if let Some(size) = lists.recent_ghosts.take(key) {
            lists.target = (lists.target + up * f64::from(size)).min(lists.capacity() as f64);
            Some((key, Ghost::Recent))
        } else if let Some(size) = lists.frequent_ghosts.take(key) {
            lists.target = (lists.target - down * f64::from(size)).max(0.0);
            Some((key, Ghost::Frequent))
        } else {
            None
        };
    }

    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        self.nodes.grow_to(id);
        self.in_frequent.grow_to(id);
        let mut frequent = origin.is_hot();
        if let Some(item) = origin.new_item() {
            self.miss(domain, item.key);
            *self.nodes.at(id) = Node::new(item.key, item.size);
            frequent |= self.domains[domain.0 as usize].returning.take().is_some();
        }
        let lists = &mut self.domains[domain.0 as usize];
        self.in_frequent.set(id, frequent);
        let list = if frequent { &mut lists.frequent } else { &mut lists.recent };
        list.push_head(&mut self.nodes, id);
        // Case IV: T1 and B1 hold no more than the capacity, all four no more than twice that.
        let capacity = lists.capacity();
        lists.recent_ghosts.shrink_to(capacity.saturating_sub(lists.recent.size));
        let others = lists.recent.size + lists.frequent.size + lists.recent_ghosts.size();
        lists.frequent_ghosts.shrink_to((2 * capacity).saturating_sub(others));
    }

    fn hit(&mut self, id: Id, _touch: Touch, domain: impl FnOnce() -> Domain) {
        let lists = &mut self.domains[domain().0 as usize];
        if self.in_frequent.get(id) {
            lists.frequent.move_to_head(&mut self.nodes, id);
        } else {
            lists.recent.unlink(&mut self.nodes, id);
            lists.frequent.push_head(&mut self.nodes, id);
            self.in_frequent.set(id, true);
        }
    }

    fn resize(&mut self, id: Id, domain: Domain, size: u32) {
        let lists = &mut self.domains[domain.0 as usize];
        let list = if self.in_frequent.get(id) { &mut lists.frequent } else { &mut lists.recent };
        let old = std::mem::replace(&mut self.nodes.at(id).size, size);
        list.size = list.size - u64::from(old) + u64::from(size);
    }

    fn remove(&mut self, id: Id, domain: Domain, departure: Departure) {
        let lists = &mut self.domains[domain.0 as usize];
        let node = *self.nodes.cell(id);
        // Where nothing is inserted afterwards, as when a tier demotes, this bounds the ghosts.
        let limit = 2 * lists.capacity().max(1);
        let (list, ghosts) = match self.in_frequent.get(id) {
            true => (&mut lists.frequent, &mut lists.frequent_ghosts),
            false => (&mut lists.recent, &mut lists.recent_ghosts),
        };
        list.unlink(&mut self.nodes, id);
        if departure == Departure::Evicted {
            ghosts.push(node.key, node.size);
            ghosts.shrink_to(limit);
        }
    }

    fn victim(
        &mut self,
        domain: Domain,
        _now: u64,
        _rng: &mut Rng,
        may_go: impl Fn(Id) -> bool,
    ) -> Option<Id> {
        let lists = self.domains[domain.0 as usize].in_order();
        lists.into_iter().find_map(|list| list.last_that(&self.nodes, &may_go))
    }

    fn hottest(&self, domain: Domain, count: usize, visit: impl FnMut(Id)) {
        self.domains[domain.0 as usize].frequent.first(&self.nodes, count, visit);
    }

    fn coldest(&self, domain: Domain, count: usize, mut visit: impl FnMut(Id)) {
        last_of(self.domains[domain.0 as usize].in_order(), &self.nodes, count, &mut visit);
    }

    fn clear(&mut self) {
        let capacities: Vec<u64> = self.domains.iter().map(|lists| lists.capacity).collect();
        *self = Arc::new(capacities);
    }

    fn len(&self, domain: Domain) -> u32 {
        let lists = &self.domains[domain.0 as usize];
        lists.recent.len + lists.frequent.len
    }

    fn metadata_bytes(&self) -> u64 {
        let ghosts = |lists: &Lists| lists.recent_ghosts.bytes() + lists.frequent_ghosts.bytes();
        let domains = (self.domains.capacity() * size_of::<Lists>()) as u64;
        self.nodes.bytes() + self.in_frequent.bytes() + self.domains.iter().map(ghosts).sum::<u64>() + domains
    }
}
