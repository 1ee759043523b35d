//! First in, first out: items leave in the order of entry.
//!
//! It keeps the least state and does no work at a hit, and it has the most misses on workloads with any locality: a baseline for
//! comparisons.

use super::list::{Links, List};
use super::{Departure, Domain, Evict, Origin, Touch};
use crate::Id;
use crate::column::Column;
use tiermem_base::Rng;

/// Queues, one per domain.
#[derive(Clone, Debug)]
pub struct Fifo {
    links: Column<Links>,
    queues: Vec<List>,
}

impl Fifo {
    /// A queue for each of `domains`.
    pub fn new(domains: usize) -> Self {
        Fifo { links: Column::default(), queues: vec![List::default(); domains] }
    }
}

impl Evict for Fifo {
    #[inline]
    fn insert(&mut self, id: Id, domain: Domain, _origin: Origin) {
        self.links.grow_to(id);
        self.queues[domain.0 as usize].push_head(&mut self.links, id);
    }

    #[inline]
    fn hit(&mut self, _id: Id, _touch: Touch, _domain: impl FnOnce() -> Domain) {}

    #[inline]
    fn remove(&mut self, id: Id, domain: Domain, _departure: Departure) {
        self.queues[domain.0 as usize].unlink(&mut self.links, id);
    }

    #[inline]
    fn victim(
        &mut self,
        domain: Domain,
        _now: u64,
        _rng: &mut Rng,
        may_go: impl Fn(Id) -> bool,
    ) -> Option<Id> {
        self.queues[domain.0 as usize].last_that(&self.links, may_go)
    }

    fn hottest(&self, domain: Domain, count: usize, visit: impl FnMut(Id)) {
        self.queues[domain.0 as usize].first(&self.links, count, visit);
    }

    fn coldest(&self, domain: Domain, count: usize, visit: impl FnMut(Id)) {
        self.queues[domain.0 as usize].last(&self.links, count, visit);
    }

    fn clear(&mut self) {
        *self = Fifo::new(self.queues.len());
    }

    fn len(&self, domain: Domain) -> u32 {
        self.queues[domain.0 as usize].len
    }

    fn metadata_bytes(&self) -> u64 {
        self.links.bytes() + (self.queues.capacity() * size_of::<List>()) as u64
    }
}
