//! LRU stack distances in one pass: Olken's method with a bit per access time instead of a tree of keys.

/// Distances of keys that are given as dense numbers, such as those of [`tiermem_base::intern::Interner`].
///
/// Each access takes the next *slot*; a bit tells whether the slot is the last access of its key. The distance of a
/// key is the number of bits from its slot on, counted by a Fenwick tree over words of 64 slots: O(log M) steps. When
/// the slots are used up, the set ones move together, so that there are never more than 4 slots for each key (or 4096).
/// That is 4 bytes per key and less than one byte for its slots.
#[derive(Clone, Debug)]
pub struct StackDistances {
    /// For each key, the slot of its last access.
    slot_of: Vec<u32>,
    bits: Vec<u64>,
    /// Fenwick tree over the population counts of `bits`; `tree[0]` is unused.
    tree: Vec<u32>,
    next_slot: usize,
}

const WORD: usize = u64::BITS as usize;
const SLOTS_MIN: usize = 4096;

impl Default for StackDistances {
    fn default() -> Self {
        StackDistances::new()
    }
}

impl StackDistances {
    /// No key has been seen.
    pub fn new() -> Self {
        let words = SLOTS_MIN / WORD;
        StackDistances { slot_of: Vec::new(), bits: vec![0; words], tree: vec![0; words + 1], next_slot: 0 }
    }

    /// Distinct keys seen.
    pub fn keys(&self) -> usize {
        self.slot_of.len()
    }

    /// An access to the key with this number. The first access to the n-th new key must come with number n (from 0) and
    /// gives `None`; a later one gives the distinct keys accessed since the last access to it, itself included: the
    /// number of objects that the smallest LRU cache holds in which this access is a hit.
    #[inline]
    pub fn access(&mut self, id: u32) -> Option<u64> {
        if self.next_slot == self.bits.len() * WORD {
            self.compact();
        }
        let slot = self.next_slot;
        self.next_slot += 1;
        let distance = match self.slot_of.get_mut(id as usize) {
            Some(last) => {
                let old = std::mem::replace(last, slot as u32) as usize;
                let distance = self.slot_of.len() as u64 - self.before(old);
                self.bits[old / WORD] &= !(1 << (old % WORD));
                self.add(old / WORD, u32::MAX);
                Some(distance)
            }
            None => {
                debug_assert_eq!(id as usize, self.slot_of.len(), "numbers are given in order");
                self.slot_of.push(slot as u32);
                None
            }
        };
        self.bits[slot / WORD] |= 1 << (slot % WORD);
        self.add(slot / WORD, 1);
        distance
    }

    /// Adds to a word's count, modulo 2^32: `u32::MAX` takes one away.
    #[inline]
    fn add(&mut self, word: usize, change: u32) {
        let mut at = word + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(change);
            at += at & at.wrapping_neg();
        }
    }

    /// Set bits before a slot.
    #[inline]
    fn before(&self, slot: usize) -> u64 {
        let mut at = slot / WORD;
        let mut count = u64::from((self.bits[at] & ((1 << (slot % WORD)) - 1)).count_ones());
        while at > 0 {
            count += u64::from(self.tree[at]);
            at &= at - 1;
        }
        count
    }

    /// Moves all set bits together to the front, keeping their order, and makes room.
    #[cold]
    fn compact(&mut self) {
        let mut before = 0;
        let starts: Vec<u32> = self
            .bits
            .iter()
            .map(|word| {
                let start = before;
                before += word.count_ones();
                start
            })
            .collect();
        for slot in &mut self.slot_of {
            let (word, bit) = (*slot as usize / WORD, *slot as usize % WORD);
            *slot = starts[word] + (self.bits[word] & ((1 << bit) - 1)).count_ones();
        }
        let keys = self.slot_of.len();
        let words = ((2 * keys).next_power_of_two().max(SLOTS_MIN)) / WORD;
        self.bits.clear();
        self.bits.resize(words, 0);
        self.bits[..keys / WORD].fill(u64::MAX);
        if !keys.is_multiple_of(WORD) {
            self.bits[keys / WORD] = (1 << (keys % WORD)) - 1;
        }
        self.tree.clear();
        self.tree.resize(words + 1, 0);
        for word in 0..words {
            let count = self.bits[word].count_ones();
            if count > 0 {
                self.add(word, count);
            }
        }
        self.next_slot = keys;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The list itself, most recent first.
    fn naive(accesses: &[u32]) -> Vec<Option<u64>> {
        let mut stack: Vec<u32> = Vec::new();
        let access = |id: &u32| {
            let found = stack.iter().position(|other| other == id);
            if let Some(at) = found {
                stack.remove(at);
            }
            stack.insert(0, *id);
            found.map(|at| at as u64 + 1)
        };
        accesses.iter().map(access).collect()
    }

    /// Renumbers keys in the order of first sight.
    fn dense(keys: &[u32]) -> Vec<u32> {
        let mut interner = tiermem_base::intern::Interner::new();
        keys.iter().map(|key| interner.intern(u64::from(*key)).0).collect()
    }

    proptest! {
        #[test]
        fn distances_are_positions_in_the_stack(keys in prop::collection::vec(0u32..40, 0..400)) {
            let accesses = dense(&keys);
            let mut stack = StackDistances::new();
            let distances: Vec<_> = accesses.iter().map(|id| stack.access(*id)).collect();
            prop_assert_eq!(distances, naive(&accesses));
        }
    }

    #[test]
    fn moving_together_changes_nothing() {
        // Enough accesses to use the slots up many times, with few keys and with many.
        for objects in [1, 63, 64, 65, 1000, 5000] {
            let mut rng = tiermem_base::Rng::seeded(objects);
            let keys: Vec<u32> = (0..30_000).map(|_| rng.below(objects) as u32).collect();
            let accesses = dense(&keys);
            let mut stack = StackDistances::new();
            let distances: Vec<_> = accesses.iter().map(|id| stack.access(*id)).collect();
            assert_eq!(distances, naive(&accesses), "{objects}");
            assert!(stack.bits.len() * WORD <= (4 * stack.keys()).max(SLOTS_MIN));
        }
    }
}
