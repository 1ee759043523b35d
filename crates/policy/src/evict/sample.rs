//! Sampling of items: each domain is a plain array, so that a random item costs one draw and one read.

use crate::Id;
use crate::column::{Column, SparseColumn};
use tiermem_base::Rng;

/// An item and what its policy knows of it, side by side.
#[derive(Clone, Copy, Debug)]
pub struct Entry<T> {
    /// The item.
    pub id: Id,
    /// Its state.
    pub state: T,
}

/// Arrays of items, one per domain.
#[derive(Clone, Debug)]
pub struct Sampled<T> {
    domains: Vec<Vec<Entry<T>>>,
    positions: Column<u32>,
    /// The states of items on their way to another place.
    parked: SparseColumn<T>,
}

impl<T: Copy + Default> Sampled<T> {
    /// An array for each of `domains`.
    pub fn new(domains: usize) -> Self {
        Sampled {
            domains: vec![Vec::new(); domains],
            positions: Column::default(),
            parked: SparseColumn::default(),
        }
    }

    /// Enters an item.
    #[inline]
    pub fn insert(&mut self, id: Id, domain: usize, state: T) {
        self.positions.grow_to(id);
        let entries = &mut self.domains[domain];
        *self.positions.at(id) = entries.len() as u32;
        entries.push(Entry { id, state });
    }

    /// The item's state to change.
    #[inline]
    pub fn at(&mut self, id: Id, domain: usize) -> &mut T {
        &mut self.domains[domain][self.positions.get(id) as usize].state
    }

    /// The state that the item has, if it is in this domain.
    #[inline]
    pub fn get(&self, id: Id, domain: usize) -> Option<T> {
        let entry = self.domains[domain].get(self.positions.get(id) as usize)?;
        (entry.id == id).then_some(entry.state)
    }

    /// Takes an item out; the last of the array takes its place.
    #[inline]
    pub fn remove(&mut self, id: Id, domain: usize) -> T {
        let at = self.positions.get(id) as usize;
        let entries = &mut self.domains[domain];
        let gone = entries.swap_remove(at);
        debug_assert_eq!(gone.id, id);
        if let Some(moved) = entries.get(at) {
            *self.positions.at(moved.id) = at as u32;
        }
        gone.state
    }

    /// Keeps the state of an item that is between two places.
    pub fn park(&mut self, id: Id, state: T) {
        *self.parked.at(id) = state;
    }

    /// The state that was parked.
    pub fn parked(&self, id: Id) -> T {
        self.parked.get(id)
    }

    /// Draws an item of the domain, each with the same probability. The domain must not be empty.
    #[inline]
    pub fn draw(&self, domain: usize, rng: &mut Rng) -> Entry<T> {
        let entries = &self.domains[domain];
        entries[rng.below(entries.len() as u64) as usize]
    }

    /// The item that is `least` (`a` before `b`) among `count` draws with replacement; refused draws do not count. `None` if no
    /// item drawn may be evicted.
    #[inline]
    pub fn least_of(
        &self,
        domain: usize,
        count: u32,
        rng: &mut Rng,
        may_go: impl Fn(Id) -> bool,
        before: impl Fn(&T, &T) -> bool,
    ) -> Option<Id> {
        if self.domains[domain].is_empty() {
            return None;
        }
        let mut least: Option<Entry<T>> = None;
        let (mut drawn, mut refusals) = (0, 0);
        while drawn < count && refusals < super::list::REFUSALS_MAX {
            let entry = self.draw(domain, rng);
            if !may_go(entry.id) {
                refusals += 1;
                continue;
            }
            drawn += 1;
            if least.is_none_or(|least| before(&entry.state, &least.state)) {
                least = Some(entry);
            }
        }
        least.map(|entry| entry.id)
    }

    /// Items in a domain.
    pub fn len(&self, domain: usize) -> usize {
        self.domains[domain].len()
    }

    /// How many domains there are.
    pub fn domains(&self) -> usize {
        self.domains.len()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Sampled::new(self.domains.len());
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let entries: usize = self.domains.iter().map(Vec::capacity).sum();
        self.positions.bytes()
            + self.parked.bytes()
            + (entries * size_of::<Entry<T>>() + self.domains.capacity() * size_of::<Vec<Entry<T>>>()) as u64
    }
}
