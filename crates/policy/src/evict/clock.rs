//! CLOCK, or FIFO with reinsertion: F. J. Corbató, "A paging experiment with the Multics system", 1968.
//!
//! A hit counts up to `2^bits - 1` in the item's counter. An item that reaches the tail with a counter above zero pays one
//! and goes back to the head. One bit is the classic second chance; two come close to LFU on skewed workloads. A burst
//! of marks can make one victim cost a walk through the whole queue (amortised constant: each step uses up a hit); not
//! for drivers that bound each call.

use super::list::{Links, List};
use super::{Departure, Domain, Evict, Origin, Touch};
use crate::Id;
use crate::column::Column;
use tiermem_base::Rng;

/// Queues with counters, one per domain.
#[derive(Clone, Debug)]
pub struct Clock {
    links: Column<Links>,
    counters: Column<u8>,
    queues: Vec<List>,
    count_max: u8,
}

impl Clock {
    /// A queue for each of `domains`; counters of `bits` bits, 1 to 8.
    pub fn new(domains: usize, bits: u32) -> Self {
        Clock {
            links: Column::default(),
            counters: Column::default(),
            queues: vec![List::default(); domains],
            count_max: u8::MAX >> (8 - bits.clamp(1, 8)),
        }
    }
}

impl Evict for Clock {
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        self.links.grow_to(id);
        self.counters.grow_to(id);
        *self.counters.at(id) = u8::from(origin.is_hot());
        self.queues[domain.0 as usize].push_head(&mut self.links, id);
    }

    #[inline]
    fn hit(&mut self, id: Id, _touch: Touch, _domain: impl FnOnce() -> Domain) {
        let counter = self.counters.at(id);
        *counter += u8::from(*counter < self.count_max);
    }

    fn remove(&mut self, id: Id, domain: Domain, _departure: Departure) {
        self.queues[domain.0 as usize].unlink(&mut self.links, id);
    }

    fn victim(
        &mut self,
        domain: Domain,
        _now: u64,
        _rng: &mut Rng,
        may_go: impl Fn(Id) -> bool,
    ) -> Option<Id> {
        let counters = &mut self.counters;
        self.queues[domain.0 as usize].second_chance(&mut self.links, may_go, |id| {
            let counter = counters.at(id);
            let spared = *counter > 0;
            *counter -= u8::from(spared);
            spared
        })
    }

    fn hottest(&self, domain: Domain, count: usize, visit: impl FnMut(Id)) {
        self.queues[domain.0 as usize].first(&self.links, count, visit);
    }

    fn coldest(&self, domain: Domain, count: usize, visit: impl FnMut(Id)) {
        self.queues[domain.0 as usize].last(&self.links, count, visit);
    }

    fn clear(&mut self) {
        self.links = Column::default();
        self.counters = Column::default();
        self.queues.fill(List::default());
    }

    fn len(&self, domain: Domain) -> u32 {
        self.queues[domain.0 as usize].len
    }

    fn metadata_bytes(&self) -> u64 {
        self.links.bytes() + self.counters.bytes() + (self.queues.capacity() * size_of::<List>()) as u64
    }
}
