//! Ghosts: the keys of items that were evicted, in a bounded queue, oldest first, with membership.
//!
//! A table of eight-byte slots (linear probing, at most half full) answers membership, and a ring keeps the order. A key that is
//! taken out of the middle leaves a stale entry in the ring. Stale entries are skipped at the front, and swept out when they
//! outnumber the others. So every call takes constant time, amortised, and nothing is iterated in the order of hashes.

use std::collections::VecDeque;

/// The 32 bits of a key that ghosts are known by. Keys below 2^32 - 1, such as a simulator's dense numbers, stay what they
/// are; among hashes a million ghosts make one stranger in four thousand look like an old acquaintance.
#[inline]
pub fn fold(key: u64) -> u32 {
    let folded = (key ^ key >> 32) as u32;
    if folded == EMPTY { 0 } else { folded }
}

/// No key: [`fold`] never gives it.
const EMPTY: u32 = u32::MAX;
const SLOTS_MIN: usize = 16;
/// Stale entries of the ring that are not worth sweeping.
const STALE_MIN: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u32,
    /// The ring entry that counts, as a number that the first entry ever had being 0; wraps.
    at: u32,
}

const FREE: Slot = Slot { key: EMPTY, at: 0 };

/// The queue of ghosts.
#[derive(Clone, Debug, Default)]
pub struct Ghosts {
    slots: Vec<Slot>,
    ring: VecDeque<(u32, u32)>,
    /// The number of the ring's front.
    front: u32,
    len: usize,
    size: u64,
}

impl Ghosts {
    /// Ghosts held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The sum of their sizes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the key is among them.
    pub fn contains(&self, key: u32) -> bool {
        self.find(key).is_some()
    }

    /// Enters a key as the newest; one that was there is renewed.
    pub fn push(&mut self, key: u32, size: u32) {
        self.take(key);
        if 2 * (self.len + 1) > self.slots.len() {
            self.grow();
        }
        if self.ring.len() > 2 * self.len + STALE_MIN {
            self.sweep();
        }
        let at = self.front.wrapping_add(self.ring.len() as u32);
        self.ring.push_back((key, size));
        self.place(Slot { key, at });
        self.len += 1;
        self.size += u64::from(size);
    }

    /// Takes a key out; its size, if it was there.
    pub fn take(&mut self, key: u32) -> Option<u32> {
        let slot = self.find(key)?;
        let size = self.ring[self.slots[slot].at.wrapping_sub(self.front) as usize].1;
        self.free(slot);
        self.len -= 1;
        self.size -= u64::from(size);
        Some(size)
    }

    /// Takes the oldest out; its key and size.
    pub fn take_oldest(&mut self) -> Option<(u32, u32)> {
        while let Some((key, size)) = self.ring.pop_front() {
            let at = self.front;
            self.front = at.wrapping_add(1);
            if let Some(slot) = self.find(key)
                && self.slots[slot].at == at
            {
                self.free(slot);
                self.len -= 1;
                self.size -= u64::from(size);
                return Some((key, size));
            }
        }
        None
    }

    /// Lets the oldest go until the sizes sum up to no more than `size`.
    pub fn shrink_to(&mut self, size: u64) {
        while self.size > size && self.take_oldest().is_some() {}
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Ghosts::default();
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.slots.capacity() * size_of::<Slot>() + self.ring.capacity() * size_of::<(u32, u32)>()) as u64
    }

    #[inline]
    fn home(&self, key: u32) -> usize {
        // Multiplicative hashing: the high bits are the good ones. The table is never empty here.
        (key.wrapping_mul(0x9E37_79B1) >> (32 - self.slots.len().trailing_zeros())) as usize
    }

    #[inline]
    fn find(&self, key: u32) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut slot = self.home(key);
        loop {
            let found = self.slots[slot].key;
            if found == key {
                return Some(slot);
            }
            if found == EMPTY {
                return None;
            }
            slot = (slot + 1) & mask;
        }
    }

    fn place(&mut self, one: Slot) {
        let mask = self.slots.len() - 1;
        let mut slot = self.home(one.key);
        while self.slots[slot].key != EMPTY {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = one;
    }

    /// Empties a slot and moves those behind it up that would not be found otherwise.
    fn free(&mut self, mut hole: usize) {
        let mask = self.slots.len() - 1;
        let mut slot = hole;
        loop {
            slot = (slot + 1) & mask;
            let one = self.slots[slot];
            if one.key == EMPTY {
                break;
            }
            let distance = slot.wrapping_sub(self.home(one.key)) & mask;
            if distance >= slot.wrapping_sub(hole) & mask {
                self.slots[hole] = one;
                hole = slot;
            }
        }
        self.slots[hole] = FREE;
    }

    fn grow(&mut self) {
        let slots = (2 * self.slots.len()).max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, vec![FREE; slots]);
        for one in old.into_iter().filter(|one| one.key != EMPTY) {
            self.place(one);
        }
    }

    fn sweep(&mut self) {
        let mut kept = 0u32;
        for at in 0..self.ring.len() {
            let (key, size) = self.ring[at];
            let number = self.front.wrapping_add(at as u32);
            if let Some(slot) = self.find(key)
                && self.slots[slot].at == number
            {
                self.slots[slot].at = self.front.wrapping_add(kept);
                self.ring[kept as usize] = (key, size);
                kept += 1;
            }
        }
        self.ring.truncate(kept as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dense_numbers_are_folded_to_themselves() {
        assert_eq!(fold(7), 7);
        assert_eq!(fold(u64::from(u32::MAX) - 1), u32::MAX - 1);
        assert_ne!(fold(u64::from(u32::MAX)), EMPTY);
    }

    proptest! {
        #[test]
        fn equals_a_vector(ops in prop::collection::vec((0u8..8, 0u32..80, 1u32..9), 1..2000)) {
            let mut ghosts = Ghosts::default();
            let mut naive: Vec<(u32, u32)> = Vec::new();
            // Numbers of the ring wrap within the test.
            ghosts.front = u32::MAX - 50;
            for (what, key, size) in ops {
                match what {
                    0..=3 => {
                        ghosts.push(key, size);
                        naive.retain(|one| one.0 != key);
                        naive.push((key, size));
                    }
                    4 | 5 => {
                        let at = naive.iter().position(|one| one.0 == key);
                        prop_assert_eq!(ghosts.take(key), at.map(|at| naive.remove(at).1));
                    }
                    6 => {
                        let oldest = (!naive.is_empty()).then(|| naive.remove(0));
                        prop_assert_eq!(ghosts.take_oldest(), oldest);
                    }
                    _ => {
                        ghosts.shrink_to(100);
                        while naive.iter().map(|one| one.1).sum::<u32>() > 100 {
                            naive.remove(0);
                        }
                    }
                }
                prop_assert_eq!(ghosts.len(), naive.len());
                prop_assert_eq!(ghosts.size(), naive.iter().map(|one| u64::from(one.1)).sum::<u64>());
                prop_assert_eq!(ghosts.contains(key), naive.iter().any(|one| one.0 == key));
                prop_assert!(ghosts.ring.len() <= 2 * ghosts.len() + STALE_MIN + 80);
            }
        }
    }
}
