//! Least frequently used (LFU), with or without ageing.
//!
//! Plain LFU orders items by the number of accesses since entry. It never forgets: an item that was popular once stays. Dynamic
//! ageing (LFU-DA: M. Arlitt, L. Cherkasova, J. Dilley, R. Friedrich, T. Jin, "Evaluating content management techniques for web
//! proxy caches", ACM SIGMETRICS Performance Evaluation Review 27(4), 2000) adds to the count the age of the domain, which is the
//! rank of the last victim, taken at the item's last access; so new items need not climb from zero. Equal ranks leave in the
//! order of last access.
//!
//! A hit costs logarithmic time (a heap). Do not use it in engines at full speed, nor plain LFU for workloads that change.

use super::heap::{Heap, Positions};
use super::{Departure, Domain, Evict, Origin, Touch};
use crate::Id;
use crate::column::{Column, SparseColumn};
use tiermem_base::Rng;

#[derive(Clone, Debug, Default)]
struct Order {
    heap: Heap,
    /// The rank of the last victim; stays 0 without ageing.
    age: u32,
}

/// Heaps by frequency, one per domain.
#[derive(Clone, Debug)]
pub struct Lfu {
    counts: Column<u32>,
    positions: Positions,
    orders: Vec<Order>,
    /// The last use of items on their way to another place.
    parked: SparseColumn<u32>,
    ageing: bool,
}

fn key(rank: u32, now: u64) -> u64 {
    u64::from(rank) << 32 | now & u64::from(u32::MAX)
}

impl Lfu {
    /// A heap for each of `domains`; `ageing` makes it LFU-DA.
    pub fn new(domains: usize, ageing: bool) -> Self {
        let orders = vec![Order::default(); domains];
        Lfu {
            counts: Column::default(),
            positions: Positions::default(),
            orders,
            parked: SparseColumn::default(),
            ageing,
        }
    }
}

impl Evict for Lfu {
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        self.counts.grow_to(id);
        let count = self.counts.at(id);
        let last = match origin.new_item() {
            Some(item) => {
                *count = 1 + u32::from(origin.is_hot());
                item.now
            }
            None => u64::from(self.parked.get(id)),
        };
        let order = &mut self.orders[domain.0 as usize];
        order.heap.push(&mut self.positions, id, key(count.saturating_add(order.age), last));
    }

    fn hit(&mut self, id: Id, touch: Touch, domain: impl FnOnce() -> Domain) {
        let count = self.counts.at(id);
        *count = count.saturating_add(1);
        let order = &mut self.orders[domain().0 as usize];
        order.heap.update(&mut self.positions, id, key(count.saturating_add(order.age), touch.now));
    }

    fn remove(&mut self, id: Id, domain: Domain, departure: Departure) {
        let order = &mut self.orders[domain.0 as usize];
        let key = order.heap.key(&self.positions, id);
        match departure {
            Departure::Evicted if self.ageing => order.age = (key >> 32) as u32,
            Departure::Moved => *self.parked.at(id) = key as u32,
            Departure::Evicted | Departure::Deleted => {}
        }
        order.heap.remove(&mut self.positions, id);
    }

    fn victim(
        &mut self,
        domain: Domain,
        _now: u64,
        _rng: &mut Rng,
        may_go: impl Fn(Id) -> bool,
    ) -> Option<Id> {
        self.orders[domain.0 as usize].heap.top_that(may_go)
    }

    fn clear(&mut self) {
        *self = Lfu::new(self.orders.len(), self.ageing);
    }

    fn len(&self, domain: Domain) -> u32 {
        self.orders[domain.0 as usize].heap.len() as u32
    }

    fn metadata_bytes(&self) -> u64 {
        let heaps: u64 = self.orders.iter().map(|order| order.heap.bytes()).sum();
        self.counts.bytes()
            + self.positions.bytes()
            + self.parked.bytes()
            + heaps
            + (self.orders.capacity() * size_of::<Order>()) as u64
    }
}
