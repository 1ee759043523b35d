//! Interning: dense numbers for sparse keys, so that state per key can be kept in arrays.

/// Gives each 64-bit key a number: 0, 1, 2 … in the order of first sight. Numbers of removed keys are given out again.
///
/// A table of open addressing with linear probing, at most three quarters full: 16 bytes a slot, so 21 to 43 bytes a
/// key. A look-up touches one cache line as a rule, and look-ups of different keys do not wait for each other.
#[derive(Clone, Debug)]
pub struct Interner {
    /// Either a key with its number, or vacant. The length is a power of two.
    slots: Vec<Slot>,
    len: usize,
    /// Numbers given out so far, including those in `free`.
    issued: u32,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    id: u32,
}

const VACANT: Slot = Slot { key: 0, id: u32::MAX };
const SLOTS_MIN: usize = 16;
/// Keys looked up together: more than a core can wait for at once, few enough to stay in its nearest cache.
const GROUP: usize = 32;

impl Default for Interner {
    fn default() -> Self {
        Self::new()
    }
}

impl Interner {
    /// An empty table.
    pub fn new() -> Self {
        Interner { slots: vec![VACANT; SLOTS_MIN], len: 0, issued: 0, free: Vec::new() }
    }

    /// The most keys that can have numbers at a time. A table of them takes 128 GiB.
    pub const KEYS_MAX: usize = u32::MAX as usize;

    /// The number of `key`, and whether it was given just now.
    ///
    /// # Panics
    /// With a new key when [`Self::KEYS_MAX`] others have numbers.
    #[inline]
    pub fn intern(&mut self, key: u64) -> (u32, bool) {
        let at = self.find(key);
        if self.slots[at].id != VACANT.id {
            return (self.slots[at].id, false);
        }
        (self.insert(key, at), true)
    }

    /// The numbers of many keys, in their order; `false` and fewer of them if there are too many keys.
    ///
    /// A group's slots are all read once before they are searched, so that the memory brings them at the same time.
    pub fn intern_all(&mut self, keys: &[u64], mut each: impl FnMut(u32)) -> bool {
        for group in keys.chunks(GROUP) {
            if self.len + GROUP > Self::KEYS_MAX {
                return false;
            }
            let near = group.iter().fold(0, |near, &key| near ^ self.slots[self.home(key)].id);
            std::hint::black_box(near);
            group.iter().for_each(|&key| each(self.intern(key).0));
        }
        true
    }

    /// The number of `key`, if it has one.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u32> {
        let id = self.slots[self.find(key)].id;
        (id != VACANT.id).then_some(id)
    }

    /// Forgets `key`; the number that it had.
    pub fn remove(&mut self, key: u64) -> Option<u32> {
        let mut hole = self.find(key);
        let id = self.slots[hole].id;
        if id == VACANT.id {
            return None;
        }
        // No key may stand behind a vacant slot on its way from home: keys that would are moved up.
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.id == VACANT.id {
                break;
            }
            let from_home = at.wrapping_sub(self.home(slot.key)) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = VACANT;
        self.len -= 1;
        self.free.push(id);
        Some(id)
    }

    /// Every key with its number, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.slots.iter().filter(|slot| slot.id != VACANT.id).map(|slot| (slot.key, slot.id))
    }

    /// Keys that have a number now.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no key has a number.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The largest number ever given plus one: the length that an array indexed by numbers needs.
    pub fn id_bound(&self) -> usize {
        self.issued as usize
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        (self.slots.capacity() * size_of::<Slot>() + self.free.capacity() * size_of::<u32>()) as u64
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        // Folded multiplication: all bits of the key reach all bits of the result.
        let product = u128::from(key ^ 0x2D35_8DCC_AA6C_78A5) * 0x9E37_79B9_7F4A_7C15;
        ((product >> 64) as u64 ^ product as u64) as usize & (self.slots.len() - 1)
    }

    /// The slot of `key`, or the vacant one where it would go.
    #[inline]
    fn find(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        loop {
            let slot = self.slots[at];
            if slot.id == VACANT.id || slot.key == key {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn insert(&mut self, key: u64, mut at: usize) -> u32 {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.grow();
            at = self.find(key);
        }
        let id = self.free.pop().unwrap_or_else(|| {
            assert!(self.issued < VACANT.id, "an interner holds at most 2^32 - 1 keys");
            self.issued += 1;
            self.issued - 1
        });
        self.slots[at] = Slot { key, id };
        self.len += 1;
        id
    }

    fn grow(&mut self) {
        let grown = vec![VACANT; self.slots.len() * 2];
        for slot in std::mem::replace(&mut self.slots, grown) {
            if slot.id != VACANT.id {
                let at = self.find(slot.key);
                self.slots[at] = slot;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_come_in_the_order_of_first_sight() {
        let mut interner = Interner::new();
        let ids: Vec<_> = [7, u64::MAX, 0, 7, 0].iter().map(|&key| interner.intern(key)).collect();
        assert_eq!(ids, [(0, true), (1, true), (2, true), (0, false), (2, false)]);
        assert_eq!((interner.len(), interner.id_bound(), interner.get(1)), (3, 3, None));
        let mut all = Vec::new();
        assert!(interner.intern_all(&(0..100).collect::<Vec<_>>(), |id| all.push(id)));
        assert_eq!((all[0], all[1], all[7], all[99]), (2, 3, 0, 100));
    }

    proptest! {
        /// Few keys, so that they collide and come back.
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec((0u64..200, any::<bool>()), 0..2000)) {
            let mut interner = Interner::new();
            let mut model: HashMap<u64, u32> = HashMap::new();
            for (key, keep) in steps {
                // Low bits zero: a poor hash would put all of them at the same slots.
                let key = key << 40;
                if keep {
                    let (id, new) = interner.intern(key);
                    prop_assert_eq!(new, !model.contains_key(&key));
                    prop_assert!(new == model.values().all(|&other| other != id));
                    prop_assert_eq!(*model.entry(key).or_insert(id), id);
                } else {
                    prop_assert_eq!(interner.remove(key), model.remove(&key));
                }
                prop_assert_eq!(interner.len(), model.len());
            }
            for (&key, &id) in &model {
                prop_assert_eq!(interner.get(key), Some(id));
            }
            let entries: HashMap<u64, u32> = interner.entries().collect();
            prop_assert_eq!((entries.len(), entries), (model.len(), model));
        }
    }
}
