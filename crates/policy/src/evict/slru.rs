//! Segmented LRU: R. Karedla, J. S. Love, B. G. Wherry, "Caching strategies to improve disk system performance", IEEE
//! Computer 27(3), 1994; with n segments as S4LRU (Q. Huang et al., "An analysis of Facebook photo caching", SOSP 2013).
//!
//! New items enter the lowest segment; a hit moves an item to the head of the next one up; what overflows a segment falls
//! to the head of the one below, and out of the lowest. Two segments with 80% protected are the original; four equal ones
//! are S4LRU. Scans pass through the lowest segment only. Not where popularity changes fast: the protected part forgets
//! slowly. With one segment it is plain LRU.

use super::list::{List, Node, last_of};
use super::{Departure, Domain, Evict, Origin, Touch};
use crate::Id;
use crate::column::Column;
use tiermem_base::Rng;

#[derive(Clone, Debug)]
struct Segments {
    /// The lowest first.
    lists: Vec<List>,
    capacity: u64,
}

impl Segments {
    fn size(&self) -> u64 {
        self.lists.iter().map(|list| list.size).sum()
    }
}

/// Segmented lists, one set per domain.
#[derive(Clone, Debug)]
pub struct Slru {
    nodes: Column<Node>,
    segment: Column<u8>,
    domains: Vec<Segments>,
    /// The share of the capacity that each segment may take; the lowest has what the others leave.
    shares: Vec<f64>,
}

impl Slru {
    /// Two segments, the upper with 80% of the capacity.
    pub const PROTECTED: [f64; 2] = [0.2, 0.8];
    /// Four equal segments.
    pub const QUARTERS: [f64; 4] = [0.25; 4];

    /// A set of segments for each capacity; `shares` of it from the lowest segment to the highest, at most 255 of them.
    pub fn new(capacities: impl IntoIterator<Item = u64>, shares: &[f64]) -> Self {
        let lists = vec![List::default(); shares.len().clamp(1, 255)];
        let segments = |capacity| Segments { lists: lists.clone(), capacity };
        Slru {
            nodes: Column::default(),
            segment: Column::default(),
            domains: capacities.into_iter().map(segments).collect(),
            shares: shares.to_vec(),
        }
    }

    /// Puts an item that is in no list at the head of a segment, and lets the overflow fall.
    fn enter(&mut self, id: Id, domain: Domain, segment: usize) {
        let segments = &mut self.domains[domain.0 as usize];
        *self.segment.at(id) = segment as u8;
        segments.lists[segment].push_head(&mut self.nodes, id);
        let capacity = segments.capacity.max(segments.size());
        for at in (1..=segment).rev() {
            let limit = (self.shares[at] * capacity as f64) as u64;
            while segments.lists[at].size > limit {
                let falling = segments.lists[at].tail;
                segments.lists[at].unlink(&mut self.nodes, falling);
                segments.lists[at - 1].push_head(&mut self.nodes, falling);
                *self.segment.at(falling) = at as u8 - 1;
            }
        }
    }

    fn leave(&mut self, id: Id, domain: Domain) {
        let segment = usize::from(self.segment.get(id));
        self.domains[domain.0 as usize].lists[segment].unlink(&mut self.nodes, id);
    }
}

impl Evict for Slru {
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        self.nodes.grow_to(id);
        self.segment.grow_to(id);
        if let Some(item) = origin.new_item() {
            *self.nodes.at(id) = Node::new(item.key, item.size);
        }
        let top = self.shares.len().saturating_sub(1);
        self.enter(id, domain, if origin.is_hot() { top.min(1) } else { 0 });
    }

    #[inline]
    fn hit(&mut self, id: Id, _touch: Touch, domain: impl FnOnce() -> Domain) {
        let domain = domain();
        let segment = usize::from(self.segment.get(id));
        let lists = &mut self.domains[domain.0 as usize].lists;
        if segment + 1 >= lists.len() {
            lists[segment].move_to_head(&mut self.nodes, id);
        } else {
            self.leave(id, domain);
            self.enter(id, domain, segment + 1);
        }
    }

    fn resize(&mut self, id: Id, domain: Domain, size: u32) {
        let segment = usize::from(self.segment.get(id));
        let list = &mut self.domains[domain.0 as usize].lists[segment];
        let old = std::mem::replace(&mut self.nodes.at(id).size, size);
        list.size = list.size - u64::from(old) + u64::from(size);
    }

    fn remove(&mut self, id: Id, domain: Domain, _departure: Departure) {
        self.leave(id, domain);
    }

    fn victim(
        &mut self,
        domain: Domain,
        _now: u64,
        _rng: &mut Rng,
        may_go: impl Fn(Id) -> bool,
    ) -> Option<Id> {
        let lists = &self.domains[domain.0 as usize].lists;
        lists.iter().find_map(|list| list.last_that(&self.nodes, &may_go))
    }

    fn hottest(&self, domain: Domain, count: usize, mut visit: impl FnMut(Id)) {
        let mut left = count;
        for list in self.domains[domain.0 as usize].lists.iter().rev() {
            list.first(&self.nodes, left, &mut visit);
            left = left.saturating_sub(list.len as usize);
        }
    }

    fn coldest(&self, domain: Domain, count: usize, mut visit: impl FnMut(Id)) {
        last_of(self.domains[domain.0 as usize].lists.iter(), &self.nodes, count, &mut visit);
    }

    fn clear(&mut self) {
        let capacities: Vec<u64> = self.domains.iter().map(|segments| segments.capacity).collect();
        *self = Slru::new(capacities, &self.shares);
    }

    fn len(&self, domain: Domain) -> u32 {
        self.domains[domain.0 as usize].lists.iter().map(|list| list.len).sum()
    }

    fn metadata_bytes(&self) -> u64 {
        let lists = self.domains.len() * (size_of::<Segments>() + self.shares.len() * size_of::<List>());
        self.nodes.bytes() + self.segment.bytes() + lists as u64
    }
}
