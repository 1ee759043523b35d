//! A cache of one tier, without size classes or metadata: the object of miss-ratio curves.

use std::collections::HashMap;

use tiermem_base::{Access, Op, Rng};
use tiermem_policy::Id;
use tiermem_policy::evict::{Domain, Evict, Origin};

/// What the cache's size is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// Objects, whatever their size.
    Objects(u64),
    /// Bytes of values.
    Bytes(u64),
}

/// A cache that evicts by the policy `E` until the new object fits.
#[derive(Debug)]
pub struct FlatCache<E> {
    policy: E,
    capacity: Capacity,
    ids: HashMap<u64, Id>,
    /// Key and charge of each number.
    entries: Vec<(u64, u64)>,
    free_ids: Vec<Id>,
    used: u64,
    rng: Rng,
    /// Look-ups and writes.
    pub requests: u64,
    /// Look-ups and writes that did not find their object.
    pub misses: u64,
}

const ALL: Domain = Domain(0);

impl<E: Evict> FlatCache<E> {
    /// An empty cache.
    pub fn new(policy: E, capacity: Capacity) -> Self {
        FlatCache {
            policy,
            capacity,
            ids: HashMap::new(),
            entries: Vec::new(),
            free_ids: Vec::new(),
            used: 0,
            rng: Rng::seeded(0),
            requests: 0,
            misses: 0,
        }
    }

    /// One access; whether the object was there. A miss brings it in (look-aside), unless it is larger than the
    /// cache. The size of an object is that of its first access since it came in.
    pub fn access(&mut self, access: &Access) -> bool {
        if access.op == Op::Del {
            if let Some(id) = self.ids.remove(&access.key) {
                self.forget(id);
            }
            return false;
        }
        self.requests += 1;
        if let Some(&id) = self.ids.get(&access.key) {
            self.policy.hit(id, || ALL);
            return true;
        }
        self.misses += 1;
        let (charge, limit) = match self.capacity {
            Capacity::Objects(limit) => (1, limit),
            Capacity::Bytes(limit) => (u64::from(access.size), limit),
        };
        if charge > limit {
            return false;
        }
        while self.used + charge > limit {
            let Some(victim) = self.policy.victim(ALL, &mut self.rng, |_| true) else { break };
            self.ids.remove(&self.entries[victim.index()].0);
            self.forget(victim);
        }
        let id = self.free_ids.pop().unwrap_or_else(|| {
            self.entries.push((0, 0));
            Id(self.entries.len() as u32 - 1)
        });
        self.entries[id.index()] = (access.key, charge);
        self.ids.insert(access.key, id);
        self.used += charge;
        self.policy.insert(id, ALL, Origin::Admitted);
        false
    }

    fn forget(&mut self, id: Id) {
        self.policy.remove(id, ALL);
        self.used -= self.entries[id.index()].1;
        self.free_ids.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_policy::evict::Lru;
    use tiermem_policy::evict::lru::Bump;

    #[test]
    fn lru_hits_exactly_the_last_distinct_keys() {
        let mut cache = FlatCache::new(Lru::new([1.0], Bump::Always), Capacity::Objects(2));
        let hits: Vec<bool> =
            [1u64, 2, 1, 3, 2, 1].iter().map(|&key| cache.access(&Access::get(0, key, 10))).collect();
        assert_eq!(hits, [false, false, true, false, false, false]);
        assert_eq!((cache.requests, cache.misses), (6, 5));
    }

    #[test]
    fn bytes_bound_what_is_held() {
        let mut cache = FlatCache::new(Lru::new([1.0], Bump::Always), Capacity::Bytes(100));
        for (key, size) in [(1, 60), (2, 60), (3, 200), (2, 60)] {
            cache.access(&Access::get(0, key, size));
            assert!(cache.used <= 100);
        }
        assert_eq!(cache.misses, 3);
    }
}
