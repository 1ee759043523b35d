//! A heap of items whose keys change: four-ary, with each item's position in a column.

use super::list::REFUSALS_MAX;
use crate::Id;
use crate::column::Column;

const ARITY: usize = 4;

/// The positions of items in their heaps; several heaps over disjoint items share one.
pub type Positions = Column<u32>;

/// Items by a 64-bit key, the smallest on top. Every call but the queries takes logarithmic time.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    entries: Vec<(u64, Id)>,
}

impl Heap {
    /// Items held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The item on top and its key.
    #[inline]
    pub fn top(&self) -> Option<(u64, Id)> {
        self.entries.first().copied()
    }

    /// The key of an item that is in this heap.
    #[inline]
    pub fn key(&self, positions: &Positions, id: Id) -> u64 {
        self.entries[positions.get(id) as usize].0
    }

    /// The smallest that may go. When the top may not, the search is among the first entries only, where small keys are,
    /// and may miss the second smallest.
    pub fn top_that(&self, may_go: impl Fn(Id) -> bool) -> Option<Id> {
        let (_, top) = self.top()?;
        if may_go(top) {
            return Some(top);
        }
        let near = self.entries.iter().take(REFUSALS_MAX).filter(|(_, id)| may_go(*id));
        near.min_by_key(|(key, _)| *key).map(|(_, id)| *id)
    }

    /// Enters an item.
    pub fn push(&mut self, positions: &mut Positions, id: Id, key: u64) {
        positions.grow_to(id);
        self.entries.push((key, id));
        self.up(positions, self.entries.len() - 1);
    }

    /// Gives an item another key.
    pub fn update(&mut self, positions: &mut Positions, id: Id, key: u64) {
        let at = positions.get(id) as usize;
        let old = std::mem::replace(&mut self.entries[at].0, key);
        if key < old {
            self.up(positions, at);
        } else {
            self.down(positions, at);
        }
    }

    /// Takes an item out.
    pub fn remove(&mut self, positions: &mut Positions, id: Id) {
        let at = positions.get(id) as usize;
        debug_assert_eq!(self.entries[at].1, id);
        let (key, _) = self.entries.swap_remove(at);
        if at == self.entries.len() {
            return;
        }
        if self.entries[at].0 < key {
            self.up(positions, at);
        } else {
            self.down(positions, at);
        }
    }

    /// Gives every item the key that `key` says, in linear time.
    pub fn rekey(&mut self, positions: &mut Positions, key: impl Fn(Id) -> u64) {
        self.entries.iter_mut().for_each(|entry| entry.0 = key(entry.1));
        for at in (0..self.entries.len().div_ceil(ARITY)).rev() {
            self.down(positions, at);
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.entries = Vec::new();
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<(u64, Id)>()) as u64
    }

    fn up(&mut self, positions: &mut Positions, mut at: usize) {
        let entry = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.entries[parent].0 <= entry.0 {
                break;
            }
            self.put(positions, at, self.entries[parent]);
            at = parent;
        }
        self.put(positions, at, entry);
    }

    fn down(&mut self, positions: &mut Positions, mut at: usize) {
        let entry = self.entries[at];
        loop {
            let first = at * ARITY + 1;
            let children = first..(first + ARITY).min(self.entries.len());
            let Some(least) = children.min_by_key(|&child| self.entries[child].0) else { break };
            if self.entries[least].0 >= entry.0 {
                break;
            }
            self.put(positions, at, self.entries[least]);
            at = least;
        }
        self.put(positions, at, entry);
    }

    #[inline]
    fn put(&mut self, positions: &mut Positions, at: usize, entry: (u64, Id)) {
        self.entries[at] = entry;
        *positions.at(entry.1) = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn equals_a_map(ops in prop::collection::vec((0u8..6, 0u32..60, 0u64..1000), 1..1500)) {
            let (mut heap, mut positions) = (Heap::default(), Positions::default());
            let mut naive = BTreeMap::new();
            for (at, (what, id, key)) in ops.into_iter().enumerate() {
                // Distinct keys, so that the top is one item.
                let key = key << 32 | at as u64;
                match (naive.contains_key(&id), what) {
                    (true, 0) => {
                        heap.remove(&mut positions, Id(id));
                        naive.remove(&id);
                    }
                    (_, 5) => {
                        // Another order, with distinct keys again.
                        naive.iter_mut().for_each(|(id, held)| *held = (*held >> 33) << 32 | u64::from(*id));
                        let (naive, at) = (&naive, &mut positions);
                        heap.rekey(at, |id| naive[&id.0]);
                    }
                    (held, _) => {
                        if held {
                            heap.update(&mut positions, Id(id), key);
                        } else {
                            heap.push(&mut positions, Id(id), key);
                        }
                        naive.insert(id, key);
                    }
                }
                let least = naive.iter().min_by_key(|(_, key)| **key);
                prop_assert_eq!(heap.top(), least.map(|(&id, &key)| (key, Id(id))));
                prop_assert_eq!(heap.len(), naive.len());
                for (&id, &key) in &naive {
                    prop_assert_eq!(heap.key(&positions, Id(id)), key);
                }
            }
        }
    }
}
