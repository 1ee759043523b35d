//! SIEVE: Y. Zhang, J. Yang, Y. Yue, Y. Vigfusson, K. V. Rashmi, "SIEVE is simpler than LRU", NSDI 2024, section 3.
//!
//! One queue in the order of entry, one bit per item, one hand. The hand walks from tail to head: a marked item is unmarked and
//! stays where it is, an unmarked item is evicted. So new items are judged soon after they enter, while old popular items stay
//! behind the hand. No parameters. Do not use it for block workloads with scans: the paper's section 6 shows that it does not
//! resist them.

use super::list::{Links, List, REFUSALS_MAX};
use super::{Departure, Domain, Evict, Origin, Touch};
use crate::Id;
use crate::column::{Bits, Column};
use tiermem_base::Rng;

#[derive(Clone, Copy, Debug)]
struct Queue {
    list: List,
    /// The item that is judged next; `NONE`: the tail.
    hand: Id,
}

const EMPTY: Queue = Queue { list: List { head: Id::NONE, tail: Id::NONE, len: 0, size: 0 }, hand: Id::NONE };

/// Queues with hands, one per domain.
#[derive(Clone, Debug)]
pub struct Sieve {
    links: Column<Links>,
    visited: Bits,
    queues: Vec<Queue>,
}

impl Sieve {
    /// A queue for each of `domains`.
    pub fn new(domains: usize) -> Self {
        Sieve { links: Column::default(), visited: Bits::default(), queues: vec![EMPTY; domains] }
    }
}

impl Evict for Sieve {
    #[inline]
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        self.links.grow_to(id);
        self.visited.grow_to(id);
        self.visited.set(id, origin.is_hot());
        self.queues[domain.0 as usize].list.push_head(&mut self.links, id);
    }

    #[inline]
    fn hit(&mut self, id: Id, _touch: Touch, _domain: impl FnOnce() -> Domain) {
        self.visited.set(id, true);
    }

    #[inline]
    fn mark(&self, id: Id) -> Option<&u64> {
        self.visited.word(id)
    }

    #[inline]
    fn remove(&mut self, id: Id, domain: Domain, _departure: Departure) {
        let queue = &mut self.queues[domain.0 as usize];
        let links = queue.list.unlink(&mut self.links, id);
        if queue.hand == id {
            queue.hand = links.prev;
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
        let queue = &mut self.queues[domain.0 as usize];
        let mut refusals = 0;
        while queue.list.len > 0 && refusals < REFUSALS_MAX {
            let id = if queue.hand == Id::NONE { queue.list.tail } else { queue.hand };
            queue.hand = id;
            if !may_go(id) {
                refusals += 1;
            } else if self.visited.get(id) {
                self.visited.set(id, false);
            } else {
                return Some(id);
            }
            queue.hand = self.links.get(id).prev;
        }
        None
    }

    fn hottest(&self, domain: Domain, count: usize, visit: impl FnMut(Id)) {
        self.queues[domain.0 as usize].list.first(&self.links, count, visit);
    }

    /// The items that the hand comes to next, without those that were visited.
    fn coldest(&self, domain: Domain, count: usize, mut visit: impl FnMut(Id)) {
        let Queue { list, hand } = self.queues[domain.0 as usize];
        let mut id = if hand == Id::NONE { list.tail } else { hand };
        for _ in 0..count.min(list.len as usize) {
            visit(id);
            let before = self.links.get(id).prev;
            id = if before == Id::NONE { list.tail } else { before };
        }
    }

    fn clear(&mut self) {
        *self = Sieve::new(self.queues.len());
    }

    fn len(&self, domain: Domain) -> u32 {
        self.queues[domain.0 as usize].list.len
    }

    fn metadata_bytes(&self) -> u64 {
        self.links.bytes() + self.visited.bytes() + (self.queues.capacity() * size_of::<Queue>()) as u64
    }
}
