//! 2Q, the full version: T. Johnson, D. Shasha, "2Q: a low overhead high performance buffer management replacement algorithm",
//! VLDB 1994, section 3.
//!
//! New items enter a queue (`A1in`, 25% of the capacity). An item evicted from it leaves a ghost (`A1out`, keys worth 50% of the
//! capacity); a key with a ghost enters the LRU list `Am`. A hit in the queue changes nothing. So an item that is used again only
//! shortly after its entry never gets into the list. Do not use it where most reuses are farther apart than the ghosts reach.

use super::ghosts::{Ghosts, fold};
use super::list::{List, Node, last_of};
use super::{Departure, Domain, Evict, Origin, Touch};
use crate::Id;
use crate::column::{Bits, Column};
use tiermem_base::Rng;

/// The paper's Kin and Kout, as shares of the capacity.
const IN_SHARE: f64 = 0.25;
const OUT_SHARE: f64 = 0.5;

#[derive(Clone, Debug, Default)]
struct Queues {
    incoming: List,
    main: List,
    ghosts: Ghosts,
    /// The key that was last found among the ghosts, until it enters.
    returning: Option<u32>,
    capacity: u64,
}

impl Queues {
    fn limit(&self, share: f64) -> u64 {
        (self.capacity.max(self.incoming.size + self.main.size) as f64 * share) as u64
    }

    /// The queue that gives next, and the other.
    fn in_order(&self) -> [&List; 2] {
        match self.incoming.size > self.limit(IN_SHARE) {
            true => [&self.incoming, &self.main],
            false => [&self.main, &self.incoming],
        }
    }
}

/// Queue, list and ghosts, one set per domain.
#[derive(Clone, Debug)]
pub struct TwoQ {
    nodes: Column<Node>,
    in_main: Bits,
    domains: Vec<Queues>,
}

impl TwoQ {
    /// A set of queues for each capacity.
    pub fn new(capacities: impl IntoIterator<Item = u64>) -> Self {
        let queues = |capacity| Queues { capacity, ..Queues::default() };
        TwoQ {
            nodes: Column::default(),
            in_main: Bits::default(),
            domains: capacities.into_iter().map(queues).collect(),
        }
    }
}

impl Evict for TwoQ {
    fn miss(&mut self, domain: Domain, key: u64) {
        let queues = &mut self.domains[domain.0 as usize];
        let key = fold(key);
        if queues.returning != Some(key) {
            queues.returning = queues.ghosts.take(key).map(|_| key);
        }
    }

    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        self.nodes.grow_to(id);
        self.in_main.grow_to(id);
        let queues = &mut self.domains[domain.0 as usize];
        let mut to_main = origin.is_hot();
        if let Some(item) = origin.new_item() {
            let node = Node::new(item.key, item.size);
            to_main |= queues.returning == Some(node.key) || queues.ghosts.take(node.key).is_some();
            queues.returning = None;
            *self.nodes.at(id) = node;
        }
        self.in_main.set(id, to_main);
        let queue = if to_main { &mut queues.main } else { &mut queues.incoming };
        queue.push_head(&mut self.nodes, id);
    }

    #[inline]
    fn hit(&mut self, id: Id, _touch: Touch, domain: impl FnOnce() -> Domain) {
        if self.in_main.get(id) {
            self.domains[domain().0 as usize].main.move_to_head(&mut self.nodes, id);
        }
    }

    fn resize(&mut self, id: Id, domain: Domain, size: u32) {
        let queues = &mut self.domains[domain.0 as usize];
        let queue = if self.in_main.get(id) { &mut queues.main } else { &mut queues.incoming };
        let old = std::mem::replace(&mut self.nodes.at(id).size, size);
        queue.size = queue.size - u64::from(old) + u64::from(size);
    }

    fn remove(&mut self, id: Id, domain: Domain, departure: Departure) {
        let queues = &mut self.domains[domain.0 as usize];
        let limit = queues.limit(OUT_SHARE);
        if self.in_main.get(id) {
            queues.main.unlink(&mut self.nodes, id);
            return;
        }
        queues.incoming.unlink(&mut self.nodes, id);
        if departure == Departure::Evicted {
            let node = self.nodes.cell(id);
            queues.ghosts.push(node.key, node.size);
            queues.ghosts.shrink_to(limit);
        }
    }

    fn victim(
        &mut self,
        domain: Domain,
        _now: u64,
        _rng: &mut Rng,
        may_go: impl Fn(Id) -> bool,
    ) -> Option<Id> {
        let queues = self.domains[domain.0 as usize].in_order();
        queues.into_iter().find_map(|queue| queue.last_that(&self.nodes, &may_go))
    }

    fn hottest(&self, domain: Domain, count: usize, visit: impl FnMut(Id)) {
        self.domains[domain.0 as usize].main.first(&self.nodes, count, visit);
    }

    fn coldest(&self, domain: Domain, count: usize, mut visit: impl FnMut(Id)) {
        last_of(self.domains[domain.0 as usize].in_order(), &self.nodes, count, &mut visit);
    }

    fn clear(&mut self) {
        let capacities: Vec<u64> = self.domains.iter().map(|queues| queues.capacity).collect();
        *self = TwoQ::new(capacities);
    }

    fn len(&self, domain: Domain) -> u32 {
        let queues = &self.domains[domain.0 as usize];
        queues.incoming.len + queues.main.len
    }

    fn metadata_bytes(&self) -> u64 {
        let ghosts: u64 = self.domains.iter().map(|queues| queues.ghosts.bytes()).sum();
        let domains = (self.domains.capacity() * size_of::<Queues>()) as u64;
        self.nodes.bytes() + self.in_main.bytes() + ghosts + domains
    }
}
