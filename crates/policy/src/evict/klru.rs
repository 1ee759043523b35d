//! K-LRU: the victim is the least recently used of K items drawn at random with replacement (Wang 2024, section 2.2.1, without
//! Redis's eviction pool; for that see [`super::redis`]).
//!
//! K = 1 is random replacement, K = 16 is practically LRU. No list is kept: a hit writes one time stamp. The victim's rank by
//! age, as a share q of the domain, has the distribution q^K, on which models of K-LRU build. Each victim costs K reads at random
//! places: do not use it where K would have to be large.

use super::sample::Sampled;
use super::{Departure, Domain, Evict, Origin, Touch};
use crate::Id;
use tiermem_base::Rng;

/// Whether `a` was used before `b`, both times before `now`. Times are the low 32 bits of requests and wrap.
#[inline]
pub(super) fn older(a: u32, b: u32, now: u64) -> bool {
    (now as u32).wrapping_sub(a) > (now as u32).wrapping_sub(b)
}

/// Items with their last use, one array per domain.
#[derive(Clone, Debug)]
pub struct KLru {
    last: Sampled<u32>,
    k: u32,
}

impl KLru {
    /// An array for each of `domains`; `k` draws, at least one.
    pub fn new(domains: usize, k: u32) -> Self {
        KLru { last: Sampled::new(domains), k: k.max(1) }
    }

    /// Sets the number of items drawn for each victim from now on, at least one.
    pub fn set_k(&mut self, k: u32) {
        self.k = k.max(1);
    }
}

impl Evict for KLru {
    #[inline]
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        let last = origin.new_item().map_or_else(|| self.last.parked(id), |item| item.now as u32);
        self.last.insert(id, domain.0 as usize, last);
    }

    #[inline]
    fn hit(&mut self, id: Id, touch: Touch, domain: impl FnOnce() -> Domain) {
        *self.last.at(id, domain().0 as usize) = touch.now as u32;
    }

    #[inline]
    fn remove(&mut self, id: Id, domain: Domain, departure: Departure) {
        let last = self.last.remove(id, domain.0 as usize);
        if departure == Departure::Moved {
            self.last.park(id, last);
        }
    }

    #[inline]
    fn victim(&mut self, domain: Domain, now: u64, rng: &mut Rng, may_go: impl Fn(Id) -> bool) -> Option<Id> {
        self.last.least_of(domain.0 as usize, self.k, rng, may_go, |a, b| older(*a, *b, now))
    }

    fn clear(&mut self) {
        self.last.clear();
    }

    fn len(&self, domain: Domain) -> u32 {
        self.last.len(domain.0 as usize) as u32
    }

    fn metadata_bytes(&self) -> u64 {
        self.last.bytes()
    }
}
