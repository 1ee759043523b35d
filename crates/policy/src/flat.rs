//! Flat cache: one tier, without size classes or metadata. It is the cache that miss-ratio curves describe.
//!
//! Keys are dense numbers ([`Request::key`]), the same for every cache that runs over a trace, so that a cache needs no hash
//! table: an item's number is its key's. One pass over a trace can drive any number of caches.

use std::fmt::Debug;

use crate::Id;
use crate::column::{Bits, Column};
use crate::evict::any_policy::WithPolicy;
use crate::evict::{Departure, Domain, Evict, Item, Named, Origin, Touch};
use tiermem_base::{Op, Rng};

/// The unit of a cache's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capacity {
    /// Objects, whatever their size.
    Objects(u64),
    /// Bytes of values.
    Bytes(u64),
}

impl Capacity {
    /// The number, in its unit.
    pub fn units(self) -> u64 {
        match self {
            Capacity::Objects(units) | Capacity::Bytes(units) => units,
        }
    }
}

/// An access whose key has a dense number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key's number: keys are numbered from 0 as they come.
    pub key: u32,
    /// Bytes of the value.
    pub size: u32,
    /// The operation.
    pub op: Op,
}

/// Counts of a cache's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Look-ups and writes.
    pub requests: u64,
    /// Look-ups and writes that did not find their object.
    pub misses: u64,
    /// Bytes of the values asked for or written.
    pub bytes: u64,
    /// Bytes of the requests that missed.
    pub miss_bytes: u64,
}

impl Counts {
    /// The counts since `before`, of the same cache.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            requests: self.requests - before.requests,
            misses: self.misses - before.misses,
            bytes: self.bytes - before.bytes,
            miss_bytes: self.miss_bytes - before.miss_bytes,
        }
    }

    /// Misses over requests; 0 without requests.
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.requests.max(1) as f64
    }

    /// Bytes of misses over bytes of requests; 0 without.
    pub fn byte_miss_ratio(&self) -> f64 {
        self.miss_bytes as f64 / self.bytes.max(1) as f64
    }
}

/// A cache that can be run over pieces of a trace.
pub trait Cache: Send + Debug {
    /// Runs over the next piece. Key numbers are below `keys`, which may grow from call to call.
    fn run(&mut self, requests: &[Request], keys: u32);
    /// Sets the capacity from now on, in objects or bytes like the original one; items in excess are evicted by the policy. A
    /// cache that was computed for one capacity ignores this (the default).
    fn set_capacity(&mut self, units: u64) {
        let _ = units;
    }
    /// The counts so far.
    fn counts(&self) -> Counts;
    /// Objects held.
    fn len(&self) -> u64;
    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes of state held.
    fn metadata_bytes(&self) -> u64;
}

/// A cache that evicts by the policy `E` until the new object fits.
///
/// - A miss brings the object in (look-aside), unless it is larger than the cache.
/// - The size of an object is that of its first access since it came in, and then of each write. An object that a write
///   makes too large for the cache leaves; otherwise others, or itself, make room.
/// - A deletion is no request.
#[derive(Clone, Debug)]
pub struct Flat<E> {
    policy: E,
    capacity: u64,
    /// Sizes of the objects held, where they count.
    sizes: Option<Column<u32>>,
    resident: Bits,
    used: u64,
    rng: Rng,
    counts: Counts,
}

const ALL: Domain = Domain(0);

/// A cache of this capacity by the policy of this name; `seed` decides what policies draw.
pub fn cache(policy: Named, capacity: Capacity, seed: u64) -> Box<dyn Cache> {
    struct Make(Capacity, u64);
    impl WithPolicy for Make {
        type Output = Box<dyn Cache>;
        fn with<E: Evict + Send + Debug + 'static>(self, policy: E) -> Box<dyn Cache> {
            Box::new(Flat::new(policy, self.0, self.1))
        }
    }
    policy.build(1, capacity.units(), Make(capacity, seed))
}

impl<E: Evict> Flat<E> {
    /// An empty cache; the policy has one domain.
    pub fn new(policy: E, capacity: Capacity, seed: u64) -> Self {
        Flat {
            policy,
            capacity: capacity.units(),
            sizes: matches!(capacity, Capacity::Bytes(_)).then(Column::default),
            resident: Bits::default(),
            used: 0,
            rng: Rng::seeded(seed),
            counts: Counts::default(),
        }
    }

    /// The policy, to change its parameters.
    pub fn policy_mut(&mut self) -> &mut E {
        &mut self.policy
    }

    /// An access to a key below the number that [`Cache::run`] was told. Returns whether it was found.
    #[inline]
    fn access(&mut self, request: Request) -> bool {
        let id = Id(request.key);
        let found = self.resident.get(id);
        if request.op == Op::Del {
            if found {
                self.forget(id, Departure::Deleted);
            }
            return false;
        }
        self.counts.requests += 1;
        self.counts.bytes += u64::from(request.size);
        let write = request.op == Op::Set;
        if found {
            let now = self.counts.requests;
            self.policy.hit(id, Touch { now, write }, || ALL);
            if write && self.sizes.is_some() {
                self.resize(id, request.size);
            }
        } else {
            self.counts.misses += 1;
            self.counts.miss_bytes += u64::from(request.size);
            self.admit(id, request.size, write);
        }
        found
    }

    fn admit(&mut self, id: Id, bytes: u32, write: bool) {
        let size = if self.sizes.is_some() { bytes } else { 1 };
        self.policy.miss(ALL, u64::from(id.0));
        if u64::from(size) > self.capacity {
            return;
        }
        self.make_room(u64::from(size));
        if let Some(sizes) = &mut self.sizes {
            sizes.grow_to(id);
            *sizes.at(id) = size;
        }
        self.resident.set(id, true);
        self.used += u64::from(size);
        let now = self.counts.requests;
        let item = Item { key: u64::from(id.0), size, dirty: write, now };
        self.policy.insert(id, ALL, Origin::Admitted(item));
    }

    fn make_room(&mut self, size: u64) {
        while self.used + size > self.capacity {
            let victim = self.policy.victim(ALL, self.counts.requests, &mut self.rng, |_| true);
            let Some(victim) = victim else { break };
            self.forget(victim, Departure::Evicted);
        }
    }

    fn resize(&mut self, id: Id, size: u32) {
        let Some(sizes) = &mut self.sizes else { return };
        let old = std::mem::replace(sizes.at(id), size);
        if old == size {
            return;
        }
        self.used = self.used - u64::from(old) + u64::from(size);
        self.policy.resize(id, ALL, size);
        if u64::from(size) > self.capacity {
            self.forget(id, Departure::Deleted);
        }
        self.make_room(0);
    }

    fn forget(&mut self, id: Id, departure: Departure) {
        self.policy.remove(id, ALL, departure);
        self.resident.set(id, false);
        self.used -= self.sizes.as_ref().map_or(1, |sizes| u64::from(sizes.get(id)));
    }
}

impl<E: Evict + Send + Debug> Cache for Flat<E> {
    fn run(&mut self, requests: &[Request], keys: u32) {
        if keys > 0 {
            self.resident.grow_to(Id(keys - 1));
        }
        for &request in requests {
            self.access(request);
        }
    }

    fn set_capacity(&mut self, units: u64) {
        self.capacity = units;
        self.make_room(0);
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn len(&self) -> u64 {
        u64::from(self.policy.len(ALL))
    }

    fn metadata_bytes(&self) -> u64 {
        let sizes = self.sizes.as_ref().map_or(0, Column::bytes);
        self.policy.metadata_bytes() + self.resident.bytes() + sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evict::Lru;
    use crate::evict::lru::Bump;

    fn lru(capacity: Capacity) -> Flat<Lru> {
        let mut cache = Flat::new(Lru::new([1.0], Bump::Always), capacity, 0);
        cache.run(&[], 100);
        cache
    }

    fn request(op: Op, key: u32, size: u32) -> Request {
        Request { key, size, op }
    }

    #[test]
    fn lru_hits_exactly_the_last_distinct_keys() {
        let mut cache = lru(Capacity::Objects(2));
        let hits = [1u32, 2, 1, 3, 2, 1].map(|key| cache.access(request(Op::Get, key, 10)));
        assert_eq!(hits, [false, false, true, false, false, false]);
        let counts = cache.counts();
        assert_eq!((counts.requests, counts.misses, counts.bytes, counts.miss_bytes), (6, 5, 60, 50));
    }

    #[test]
    fn bytes_bound_what_is_held() {
        let mut cache = lru(Capacity::Bytes(100));
        for (key, size) in [(1, 60), (2, 60), (3, 200), (2, 60)] {
            cache.access(request(Op::Get, key, size));
            assert!(cache.used <= 100);
        }
        assert_eq!(cache.counts().misses, 3);
    }

    #[test]
    fn a_smaller_capacity_throws_the_oldest_out() {
        let mut cache = lru(Capacity::Objects(4));
        let all: Vec<Request> = (0..4).map(|key| request(Op::Get, key, 1)).collect();
        cache.run(&all, 4);
        cache.set_capacity(2);
        assert_eq!(cache.len(), 2);
        cache.run(&[request(Op::Get, 3, 1), request(Op::Get, 2, 1)], 4);
        assert_eq!(cache.counts().misses, 4);
        cache.set_capacity(3);
        cache.run(&all, 4);
        assert_eq!((cache.len(), cache.counts().misses), (3, 7));
    }

    #[test]
    fn a_write_gives_an_object_its_new_size() {
        let mut cache = lru(Capacity::Bytes(100));
        for key in 0..4 {
            assert!(!cache.access(request(Op::Set, key, 25)));
        }
        // Two others have to go for the growth of the last.
        assert!(cache.access(request(Op::Set, 3, 60)));
        assert_eq!((cache.used, cache.len()), (85, 2));
        // A look-up with another size changes nothing.
        assert!(cache.access(request(Op::Get, 3, 99)));
        assert_eq!(cache.used, 85);
        // Too large to be held: it leaves, the other stays.
        assert!(cache.access(request(Op::Set, 3, 101)));
        assert_eq!((cache.used, cache.len()), (25, 1));
    }

    #[test]
    fn a_deletion_frees_its_place_and_is_no_request() {
        let mut cache = lru(Capacity::Objects(2));
        for (op, key) in [(Op::Get, 1), (Op::Get, 2), (Op::Del, 1), (Op::Del, 9), (Op::Get, 3), (Op::Get, 2)]
        {
            cache.access(request(op, key, 1));
        }
        assert_eq!((cache.counts().requests, cache.counts().misses, cache.len()), (4, 3, 2));
    }
}
