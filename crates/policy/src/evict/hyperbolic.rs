//! Hyperbolic caching: A. Blankstein, S. Sen, M. J. Freedman, "Hyperbolic caching: flexible caching for web applications", USENIX
//! ATC 2017, sections 2 and 3.
//!
//! The priority of an item is its number of accesses divided by the requests since it entered (and by its size, where sizes
//! count). Priorities fall at different speeds, so no order can be kept: the victim is the item with the least priority among
//! [`SAMPLES`] drawn at random. It suits workloads whose items differ in popularity and keep it; it is slow to evict what was
//! popular for long.

use super::sample::Sampled;
use super::{Departure, Domain, Evict, Origin, Touch};
use crate::Id;
use tiermem_base::Rng;

/// Items drawn for a victim, as in the paper.
pub const SAMPLES: u32 = 64;

#[derive(Clone, Copy, Debug, Default)]
struct State {
    since: u32,
    accesses: u32,
    size: u32,
}

impl State {
    fn priority(&self, now: u64) -> f64 {
        let age = (now as u32).wrapping_sub(self.since).max(1);
        f64::from(self.accesses) / (f64::from(age) * f64::from(self.size.max(1)))
    }
}

/// Items with counts, one array per domain.
#[derive(Clone, Debug)]
pub struct Hyperbolic {
    items: Sampled<State>,
}

impl Hyperbolic {
    /// An array for each of `domains`.
    pub fn new(domains: usize) -> Self {
        Hyperbolic { items: Sampled::new(domains) }
    }
}

impl Evict for Hyperbolic {
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        let state = match origin.new_item() {
            Some(item) => {
                State { since: item.now as u32, accesses: 1 + u32::from(origin.is_hot()), size: item.size }
            }
            None => self.items.parked(id),
        };
        self.items.insert(id, domain.0 as usize, state);
    }

    #[inline]
    fn hit(&mut self, id: Id, _touch: Touch, domain: impl FnOnce() -> Domain) {
        let state = self.items.at(id, domain().0 as usize);
        state.accesses = state.accesses.saturating_add(1);
    }

    fn resize(&mut self, id: Id, domain: Domain, size: u32) {
        self.items.at(id, domain.0 as usize).size = size;
    }

    fn remove(&mut self, id: Id, domain: Domain, departure: Departure) {
        let state = self.items.remove(id, domain.0 as usize);
        if departure == Departure::Moved {
            self.items.park(id, state);
        }
    }

    fn victim(&mut self, domain: Domain, now: u64, rng: &mut Rng, may_go: impl Fn(Id) -> bool) -> Option<Id> {
        let before = |a: &State, b: &State| a.priority(now) < b.priority(now);
        self.items.least_of(domain.0 as usize, SAMPLES, rng, may_go, before)
    }

    fn clear(&mut self) {
        self.items.clear();
    }

    fn len(&self, domain: Domain) -> u32 {
        self.items.len(domain.0 as usize) as u32
    }

    fn metadata_bytes(&self) -> u64 {
        self.items.bytes()
    }
}
