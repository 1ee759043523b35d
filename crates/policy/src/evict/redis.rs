//! K-LRU as Redis does it, with an eviction pool (Wang 2024, section 2.2.1).
//!
//! The pool keeps sixteen candidates from one eviction to the next, sorted by how long they had been idle when they were drawn.
//! Each eviction draws K items and merges each into the pool if the pool has a free place or holds a less idle candidate. The
//! victim is the most idle candidate that still exists. Idle times in the pool are not updated: a candidate that was used since
//! it was drawn is evicted all the same. An item may stand in the pool more than once.
//!
//! Two differences to `redis-server`: draws here are independent and uniform, there they are neighbours in the hash table; and
//! the clock here counts requests, there it ticks in milliseconds or more.
//!
//! With the pool K = 5 comes nearer to LRU than pure K-LRU with the same K, at the price of those stale choices.

use super::klru::older;
use super::sample::Sampled;
use super::{Departure, Domain, Evict, Origin, Touch};
use crate::Id;
use tiermem_base::Rng;

/// Places in a pool, as in Redis.
pub const POOL_ITEMS: usize = 16;
/// How often the pool is filled again when none of its candidates may be evicted.
const FILLS_MAX: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: Id,
    /// How long it had been idle when it was drawn, in requests.
    idle: u32,
}

/// The least idle first.
#[derive(Clone, Copy, Debug)]
struct Pool {
    candidates: [Candidate; POOL_ITEMS],
    len: usize,
}

const EMPTY: Pool = Pool { candidates: [Candidate { id: Id::NONE, idle: 0 }; POOL_ITEMS], len: 0 };

impl Pool {
    fn merge(&mut self, one: Candidate) {
        let place = self.candidates[..self.len].partition_point(|other| other.idle < one.idle);
        if self.len < POOL_ITEMS {
            self.candidates.copy_within(place..self.len, place + 1);
            self.candidates[place] = one;
            self.len += 1;
        } else if place > 0 {
            // The least idle makes room; one that is no more idle than it stays outside.
            self.candidates.copy_within(1..place, 0);
            self.candidates[place - 1] = one;
        }
    }

    fn take_most_idle(&mut self) -> Option<Id> {
        self.len = self.len.checked_sub(1)?;
        Some(self.candidates[self.len].id)
    }
}

/// Items with their last use and a pool, one array per domain.
#[derive(Clone, Debug)]
pub struct Redis {
    last: Sampled<u32>,
    pools: Vec<Pool>,
    k: u32,
}

impl Redis {
    /// An array and a pool for each of `domains`; `k` draws (`maxmemory-samples`), at least one.
    pub fn new(domains: usize, k: u32) -> Self {
        Redis { last: Sampled::new(domains), pools: vec![EMPTY; domains], k: k.max(1) }
    }
}

impl Evict for Redis {
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        let last = origin.new_item().map_or_else(|| self.last.parked(id), |item| item.now as u32);
        self.last.insert(id, domain.0 as usize, last);
    }

    #[inline]
    fn hit(&mut self, id: Id, touch: Touch, domain: impl FnOnce() -> Domain) {
        *self.last.at(id, domain().0 as usize) = touch.now as u32;
    }

    fn remove(&mut self, id: Id, domain: Domain, departure: Departure) {
        let last = self.last.remove(id, domain.0 as usize);
        if departure == Departure::Moved {
            self.last.park(id, last);
        }
    }

    fn victim(&mut self, domain: Domain, now: u64, rng: &mut Rng, may_go: impl Fn(Id) -> bool) -> Option<Id> {
        let domain = domain.0 as usize;
        if self.last.len(domain) == 0 {
            return None;
        }
        let pool = &mut self.pools[domain];
        for _ in 0..FILLS_MAX {
            for _ in 0..self.k {
                let entry = self.last.draw(domain, rng);
                pool.merge(Candidate { id: entry.id, idle: (now as u32).wrapping_sub(entry.state) });
            }
            while let Some(id) = pool.take_most_idle() {
                // A number may be another item's by now: that one exists, as a key set anew does.
                if self.last.get(id, domain).is_some() && may_go(id) {
                    return Some(id);
                }
            }
        }
        // All that were drawn are held: the oldest of some more draws, as without a pool.
        self.last.least_of(domain, self.k, rng, may_go, |a, b| older(*a, *b, now))
    }

    fn clear(&mut self) {
        self.last.clear();
        self.pools.fill(EMPTY);
    }

    fn len(&self, domain: Domain) -> u32 {
        self.last.len(domain.0 as usize) as u32
    }

    fn metadata_bytes(&self) -> u64 {
        self.last.bytes() + (self.pools.capacity() * size_of::<Pool>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_pool_is_a_sorted_vector_of_sixteen(draws in prop::collection::vec((0u32..50, 0u32..40), 0..300)) {
            let mut pool = EMPTY;
            let mut naive: Vec<(u32, u32)> = Vec::new();
            for (idle, id) in draws {
                if id == 0 {
                    prop_assert_eq!(pool.take_most_idle(), naive.pop().map(|one| Id(one.1)));
                    continue;
                }
                pool.merge(Candidate { id: Id(id), idle });
                let place = naive.iter().position(|one| one.0 >= idle).unwrap_or(naive.len());
                if naive.len() < POOL_ITEMS {
                    naive.insert(place, (idle, id));
                } else if place > 0 {
                    naive.insert(place, (idle, id));
                    naive.remove(0);
                }
                let held: Vec<_> = pool.candidates[..pool.len].iter().map(|one| (one.idle, one.id.0)).collect();
                prop_assert_eq!(held, naive.clone());
            }
        }
    }
}
