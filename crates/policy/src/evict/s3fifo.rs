//! S3-FIFO: J. Yang, Y. Zhang, Z. Qiu, Y. Yue, K. V. Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023,
//! section 4 and algorithm 1.
//!
//! New items enter a small queue (10% of the capacity). Items used more than once there move on to the main queue; the others are
//! evicted and leave a ghost. A key with a ghost enters the main queue at once. The main queue is CLOCK with counters up to 3. A
//! hit adds to a counter and does nothing else.
//!
//! The algorithm leaves two things open, which are as in the authors' own simulator: whether a key has a ghost is asked before
//! room is made for it; and until the first eviction, items for which the small queue has no room enter the main queue.
//!
//! It suits skewed workloads with many one-hit wonders. It does not suit items that are used exactly twice, at a distance longer
//! than the small queue.

use super::ghosts::{Ghosts, fold};
use super::list::{List, Node, REFUSALS_MAX, last_of};
use super::{Departure, Domain, Evict, Origin, Touch};
use crate::Id;
use crate::column::Column;
use tiermem_base::Rng;

/// Uses in the small queue that make an item move on to the main queue: more than one, as in the paper.
const MOVE_AT: u8 = 2;
const COUNT_MAX: u8 = 3;
/// The share of the small queue.
const SMALL_SHARE: f64 = 0.1;
/// The ghosts' sizes sum up to no more than this share, which is the main queue's.
const GHOST_SHARE: f64 = 0.9;
/// Bit of a state that says that the item is in the main queue; below it is the count.
const MAIN: u8 = 4;

#[derive(Clone, Debug, Default)]
struct Queues {
    small: List,
    main: List,
    ghosts: Ghosts,
    /// The key that was last found among the ghosts, until it enters.
    returning: Option<u32>,
    /// Whether something has gone for want of room.
    has_evicted: bool,
    capacity: u64,
}

impl Queues {
    fn capacity(&self) -> u64 {
        self.capacity.max(self.small.size + self.main.size)
    }

    fn small_limit(&self) -> u64 {
        (self.capacity() as f64 * SMALL_SHARE) as u64
    }

    fn is_small_first(&self) -> bool {
        self.small.size >= self.small_limit().max(1) || self.main.len == 0
    }
}

/// Queues and ghosts, one set per domain.
#[derive(Clone, Debug)]
pub struct S3Fifo {
    nodes: Column<Node>,
    states: Column<u8>,
    domains: Vec<Queues>,
}

impl S3Fifo {
    /// A set of queues for each capacity.
    pub fn new(capacities: impl IntoIterator<Item = u64>) -> Self {
        let queues = |capacity| Queues { capacity, ..Queues::default() };
        S3Fifo {
            nodes: Column::default(),
            states: Column::default(),
            domains: capacities.into_iter().map(queues).collect(),
        }
    }

    /// The first of the small queue, from its tail, that was not used enough; others move on.
    fn small_victim(&mut self, domain: usize, may_go: &impl Fn(Id) -> bool) -> Option<Id> {
        let queues = &mut self.domains[domain];
        let mut id = queues.small.tail;
        let mut refusals = 0;
        while id != Id::NONE && refusals < REFUSALS_MAX {
            let before = super::list::Linked::links(self.nodes.cell(id)).prev;
            if !may_go(id) {
                refusals += 1;
            } else if self.states.get(id) < MOVE_AT {
                return Some(id);
            } else {
                queues.small.unlink(&mut self.nodes, id);
                queues.main.push_head(&mut self.nodes, id);
                *self.states.at(id) = MAIN;
            }
            id = before;
        }
        None
    }

    fn main_victim(&mut self, domain: usize, may_go: &impl Fn(Id) -> bool) -> Option<Id> {
        let states = &mut self.states;
        self.domains[domain].main.second_chance(&mut self.nodes, may_go, |id| {
            let state = states.at(id);
            let spared = *state > MAIN;
            *state -= u8::from(spared);
            spared
        })
    }
}

impl Evict for S3Fifo {
    #[inline]
    fn miss(&mut self, domain: Domain, key: u64) {
        let queues = &mut self.domains[domain.0 as usize];
        let key = fold(key);
        if queues.returning != Some(key) {
            queues.returning = queues.ghosts.take(key).map(|_| key);
        }
    }

    #[inline]
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        self.nodes.grow_to(id);
        self.states.grow_to(id);
        let queues = &mut self.domains[domain.0 as usize];
        let mut to_main = origin.is_hot();
        if let Some(item) = origin.new_item() {
            let node = Node::new(item.key, item.size);
            to_main |= queues.returning == Some(node.key) || queues.ghosts.take(node.key).is_some();
            to_main |= !queues.has_evicted && queues.small.size >= queues.small_limit().max(1);
            queues.returning = None;
            *self.nodes.at(id) = node;
        }
        *self.states.at(id) = if to_main { MAIN } else { 0 };
        let queue = if to_main { &mut queues.main } else { &mut queues.small };
        queue.push_head(&mut self.nodes, id);
    }

    #[inline]
    fn hit(&mut self, id: Id, _touch: Touch, _domain: impl FnOnce() -> Domain) {
        let state = self.states.at(id);
        *state += u8::from(*state & COUNT_MAX < COUNT_MAX);
    }

    fn resize(&mut self, id: Id, domain: Domain, size: u32) {
        let queues = &mut self.domains[domain.0 as usize];
        let queue = if self.states.get(id) & MAIN != 0 { &mut queues.main } else { &mut queues.small };
        let old = std::mem::replace(&mut self.nodes.at(id).size, size);
        queue.size = queue.size - u64::from(old) + u64::from(size);
    }

    #[inline]
    fn remove(&mut self, id: Id, domain: Domain, departure: Departure) {
        let queues = &mut self.domains[domain.0 as usize];
        queues.has_evicted |= departure == Departure::Evicted;
        if self.states.get(id) & MAIN != 0 {
            queues.main.unlink(&mut self.nodes, id);
            return;
        }
        let capacity = queues.capacity();
        queues.small.unlink(&mut self.nodes, id);
        if departure == Departure::Evicted {
            let limit = (capacity as f64 * GHOST_SHARE) as u64;
            let node = self.nodes.cell(id);
            queues.ghosts.push(node.key, node.size);
            queues.ghosts.shrink_to(limit);
        }
    }

    #[inline]
    fn victim(
        &mut self,
        domain: Domain,
        _now: u64,
        _rng: &mut Rng,
        may_go: impl Fn(Id) -> bool,
    ) -> Option<Id> {
        let at = domain.0 as usize;
        let small = if self.domains[at].is_small_first() { self.small_victim(at, &may_go) } else { None };
        small.or_else(|| self.main_victim(at, &may_go)).or_else(|| self.small_victim(at, &may_go))
    }

    fn hottest(&self, domain: Domain, count: usize, visit: impl FnMut(Id)) {
        self.domains[domain.0 as usize].main.first(&self.nodes, count, visit);
    }

    /// The items that are judged next, in the queue that evicts next; items that were used enough are spared.
    fn coldest(&self, domain: Domain, count: usize, mut visit: impl FnMut(Id)) {
        let queues = &self.domains[domain.0 as usize];
        let order = match queues.is_small_first() {
            true => [&queues.small, &queues.main],
            false => [&queues.main, &queues.small],
        };
        last_of(order, &self.nodes, count, &mut visit);
    }

    fn clear(&mut self) {
        let capacities: Vec<u64> = self.domains.iter().map(|queues| queues.capacity).collect();
        *self = S3Fifo::new(capacities);
    }

    fn len(&self, domain: Domain) -> u32 {
        let queues = &self.domains[domain.0 as usize];
        queues.small.len + queues.main.len
    }

    fn metadata_bytes(&self) -> u64 {
        let ghosts: u64 = self.domains.iter().map(|queues| queues.ghosts.bytes()).sum();
        let domains = (self.domains.capacity() * size_of::<Queues>()) as u64;
        self.nodes.bytes() + self.states.bytes() + ghosts + domains
    }
}
