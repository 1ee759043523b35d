//! Clean-first LRU: S. Park, D. Jung, J. Kang, J. Kim, J. Lee, "CFLRU: a replacement algorithm for flash memory", CASES 2006.
//!
//! Evicting a dirty item costs a write to slow memory. So the victim is the oldest clean item in the window (a share of the list
//! at its cold end), and the oldest dirty one only if the window has no clean item. The paper scans the window at each eviction;
//! here the window is two lists, clean and dirty, so that a victim costs constant time. With a window of 0 it is LRU. The policy
//! trades misses for fewer writes: do not use it where writing back costs nothing.

use super::list::{Links, List, last_of};
use super::{Departure, Domain, Evict, Item, Origin, Touch};
use crate::Id;
use crate::column::{Bits, Column};
use tiermem_base::Rng;

#[derive(Clone, Copy, Debug, Default)]
struct Lists {
    /// Above the window.
    working: List,
    /// The window, in the same order.
    clean: List,
    dirty: List,
}

impl Lists {
    fn len(&self) -> u32 {
        self.working.len + self.clean.len + self.dirty.len
    }

    /// The list that gives first, and those after it.
    fn in_order(&self) -> [&List; 3] {
        [&self.clean, &self.dirty, &self.working]
    }
}

/// Lists with a window, one set per domain.
#[derive(Clone, Debug)]
pub struct Cflru {
    links: Column<Links>,
    dirty: Bits,
    in_window: Bits,
    domains: Vec<Lists>,
    /// The window's share of the items, in 1/1024.
    window_share: u32,
}

impl Cflru {
    /// Lists for each of `domains`; `window_share` of 1024 items of a domain are in its window.
    pub fn new(domains: usize, window_share: u32) -> Self {
        Cflru {
            links: Column::default(),
            dirty: Bits::default(),
            in_window: Bits::default(),
            domains: vec![Lists::default(); domains],
            window_share: window_share.min(1024),
        }
    }

    fn list(&mut self, id: Id, domain: usize) -> &mut List {
        let lists = &mut self.domains[domain];
        match (self.in_window.get(id), self.dirty.get(id)) {
            (false, _) => &mut lists.working,
            (true, false) => &mut lists.clean,
            (true, true) => &mut lists.dirty,
        }
    }

    fn leave(&mut self, id: Id, domain: usize) {
        let mut list = *self.list(id, domain);
        list.unlink(&mut self.links, id);
        *self.list(id, domain) = list;
    }

    fn enter(&mut self, id: Id, domain: usize) {
        self.in_window.set(id, false);
        self.domains[domain].working.push_head(&mut self.links, id);
        self.fill_window(domain);
    }

    /// The oldest of the working part fall into the window until that has its share.
    fn fill_window(&mut self, domain: usize) {
        let lists = &mut self.domains[domain];
        let working = lists.len() - (u64::from(lists.len()) * u64::from(self.window_share) / 1024) as u32;
        while lists.working.len > working {
            let falling = lists.working.tail;
            lists.working.unlink(&mut self.links, falling);
            let list = if self.dirty.get(falling) { &mut lists.dirty } else { &mut lists.clean };
            list.push_head(&mut self.links, falling);
            self.in_window.set(falling, true);
        }
    }
}

impl Evict for Cflru {
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        self.links.grow_to(id);
        self.dirty.grow_to(id);
        self.in_window.grow_to(id);
        if let Some(item) = origin.new_item() {
            self.dirty.set(id, item.dirty);
        }
        self.enter(id, domain.0 as usize);
    }

    /// Within the window, clean and dirty items have lists of their own: `go_before` counts items of the same kind.
    fn insert_low(&mut self, id: Id, domain: Domain, item: Item, go_before: u32) {
        self.links.grow_to(id);
        self.dirty.grow_to(id);
        self.in_window.grow_to(id);
        self.dirty.set(id, item.dirty);
        let lists = &mut self.domains[domain.0 as usize];
        let window = lists.clean.len + lists.dirty.len;
        let in_window = go_before < window;
        self.in_window.set(id, in_window);
        let (list, behind) = match (in_window, item.dirty) {
            (false, _) => (&mut lists.working, go_before - window),
            (true, false) => (&mut lists.clean, go_before),
            (true, true) => (&mut lists.dirty, go_before),
        };
        list.insert_low(&mut self.links, id, behind);
        self.fill_window(domain.0 as usize);
    }

    fn hit(&mut self, id: Id, touch: Touch, domain: impl FnOnce() -> Domain) {
        let domain = domain().0 as usize;
        self.leave(id, domain);
        if touch.write {
            self.dirty.set(id, true);
        }
        self.enter(id, domain);
    }

    fn remove(&mut self, id: Id, domain: Domain, _departure: Departure) {
        self.leave(id, domain.0 as usize);
        self.fill_window(domain.0 as usize);
    }

    fn victim(
        &mut self,
        domain: Domain,
        _now: u64,
        _rng: &mut Rng,
        may_go: impl Fn(Id) -> bool,
    ) -> Option<Id> {
        let lists = &self.domains[domain.0 as usize];
        lists.in_order().into_iter().find_map(|list| list.last_that(&self.links, &may_go))
    }

    fn hottest(&self, domain: Domain, count: usize, visit: impl FnMut(Id)) {
        self.domains[domain.0 as usize].working.first(&self.links, count, visit);
    }

    fn coldest(&self, domain: Domain, count: usize, mut visit: impl FnMut(Id)) {
        last_of(self.domains[domain.0 as usize].in_order(), &self.links, count, &mut visit);
    }

    fn clear(&mut self) {
        self.links = Column::default();
        self.dirty = Bits::default();
        self.in_window = Bits::default();
        self.domains.fill(Lists::default());
    }

    fn len(&self, domain: Domain) -> u32 {
        self.domains[domain.0 as usize].len()
    }

    fn metadata_bytes(&self) -> u64 {
        let domains = (self.domains.capacity() * size_of::<Lists>()) as u64;
        self.links.bytes() + self.dirty.bytes() + self.in_window.bytes() + domains
    }
}
