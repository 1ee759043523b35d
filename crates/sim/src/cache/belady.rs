//! Belady's MIN, the bound that policies are measured against: L. A. Belady, "A study of replacement algorithms for a
//! virtual-storage computer", IBM Systems Journal 5(2), 1966.
//!
//! The victim is the object whose next access is farthest. Every miss is brought in, as by the other policies. With sizes in
//! objects no policy that brings every miss in has fewer misses. With sizes in bytes it is no bound: the best choice among
//! objects of different sizes is a knapsack (NP-hard), and this one still looks at the next access alone.

use std::sync::Arc;

use tiermem_base::Op;
use tiermem_policy::Id;
use tiermem_policy::column::Column;
use tiermem_policy::evict::heap::{Heap, Positions};
use tiermem_policy::flat::{Cache, Capacity, Counts, Request};

use super::Batch;
use crate::next_use::{NEVER, next_uses};

/// Marks an object that is not held.
const ABSENT: u32 = 0;

/// For each request of a trace, the number of the next request for its key: 4 bytes a request. A deletion counts as no
/// access, and what is deleted before its next access has none.
#[derive(Clone, Debug, Default)]
pub struct Future(Arc<Vec<u32>>);

impl Future {
    /// Looks through a trace from its end. `None` if it has 2^32 - 1 requests or more.
    pub fn of(batches: &[Arc<Batch>]) -> Option<Future> {
        let count: usize = batches.iter().map(|batch| batch.requests.len()).sum();
        let keys = batches.last().map_or(0, |batch| batch.keys);
        if count >= NEVER as usize {
            return None;
        }
        let backward = batches.iter().rev().flat_map(|batch| batch.requests.iter().rev());
        let backward = backward.map(|request| (request.key, request.op == Op::Del));
        let (next, _) = next_uses((count, keys as usize), backward);
        Some(Future(Arc::new(next)))
    }
}

/// A cache that knows the future.
#[derive(Clone, Debug)]
pub struct Belady {
    next: Future,
    /// The number of the request that comes.
    at: usize,
    capacity: Capacity,
    used: u64,
    /// Size of each object held, plus one.
    sizes: Column<u32>,
    /// The farthest next access on top.
    heap: Heap,
    positions: Positions,
    counts: Counts,
}

impl Belady {
    /// An empty cache at the start of the trace that `next` was made from.
    pub fn new(next: Future, capacity: Capacity) -> Self {
        Belady {
            next,
            at: 0,
            capacity,
            used: 0,
            sizes: Column::default(),
            heap: Heap::default(),
            positions: Positions::default(),
            counts: Counts::default(),
        }
    }

    fn forget(&mut self, id: Id) {
        self.heap.remove(&mut self.positions, id);
        let size = std::mem::replace(self.sizes.at(id), ABSENT);
        self.used -= u64::from(size - 1);
    }

    fn make_room(&mut self, size: u64) {
        while self.used + size > self.capacity.units() {
            let Some((_, farthest)) = self.heap.top() else { break };
            self.forget(farthest);
        }
    }

    fn access(&mut self, request: Request, next: u32) {
        let id = Id(request.key);
        let held = self.sizes.get(id);
        if request.op == Op::Del {
            if held != ABSENT {
                self.forget(id);
            }
            return;
        }
        self.counts.requests += 1;
        self.counts.bytes += u64::from(request.size);
        let size = match self.capacity {
            Capacity::Objects(_) => 1,
            Capacity::Bytes(_) => request.size.min(u32::MAX - 1),
        };
        let rank = u64::from(u32::MAX - next);
        if held != ABSENT {
            self.heap.update(&mut self.positions, id, rank);
            if request.op == Op::Get || size == held - 1 {
                return;
            }
            // Written with another size: it enters anew, but found.
            self.forget(id);
        } else {
            self.counts.misses += 1;
            self.counts.miss_bytes += u64::from(request.size);
        }
        if u64::from(size) <= self.capacity.units() {
            self.make_room(u64::from(size));
            self.used += u64::from(size);
            *self.sizes.at(id) = size + 1;
            self.heap.push(&mut self.positions, id, rank);
        }
    }
}

impl Cache for Belady {
    fn run(&mut self, requests: &[Request], keys: u32) {
        if keys > 0 {
            self.sizes.grow_to(Id(keys - 1));
        }
        let future = self.next.0.clone();
        for (request, next) in requests.iter().zip(&future[self.at..]) {
            self.access(*request, *next);
        }
        self.at += requests.len();
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn len(&self) -> u64 {
        self.heap.len() as u64
    }

    fn metadata_bytes(&self) -> u64 {
        self.sizes.bytes() + self.heap.bytes() + self.positions.bytes() + (4 * self.next.0.len()) as u64
    }
}
