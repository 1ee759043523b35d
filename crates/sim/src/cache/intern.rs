//! From keys to dense numbers: once for each request, for all caches that run over it.

/// Numbers 64-bit keys from 0 in the order in which they come: a table with linear probing, at most three quarters full,
/// 16 bytes a slot, so that a look-up touches one cache line nearly always.
#[derive(Clone, Debug)]
pub struct KeyTable {
    slots: Vec<Slot>,
    keys: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    number: u32,
}

/// No number: an empty slot.
const NONE: u32 = u32::MAX;
const SLOTS_MIN: usize = 1 << 12;
/// Keys looked up together: more than a core can wait for at once, few enough to stay in its nearest cache.
const GROUP: usize = 32;

impl Default for KeyTable {
    fn default() -> Self {
        KeyTable { slots: vec![Slot { key: 0, number: NONE }; SLOTS_MIN], keys: 0 }
    }
}

/// Spreads a key over 64 bits: the two halves of a product with an odd constant, folded.
#[inline]
fn spread(key: u64) -> u64 {
    let product = u128::from(key ^ 0x2d35_8dcc_aa6c_78a5) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

impl KeyTable {
    /// The most keys that can be numbered.
    pub const KEYS_MAX: u32 = u32::MAX - 1;

    /// How many keys have numbers.
    pub fn len(&self) -> u32 {
        self.keys
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// The key's number, a new one if it has none. `None`: all numbers are taken.
    #[inline]
    pub fn number(&mut self, key: u64) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = spread(key) as usize & mask;
        loop {
            let slot = &mut self.slots[at];
            if slot.number == NONE {
                break;
            }
            if slot.key == key {
                return Some(slot.number);
            }
            at = (at + 1) & mask;
        }
        if self.keys > Self::KEYS_MAX {
            return None;
        }
        let number = self.keys;
        self.slots[at] = Slot { key, number };
        self.keys += 1;
        if self.keys as usize * 4 > self.slots.len() * 3 {
            self.grow();
        }
        Some(number)
    }

    #[cold]
    fn grow(&mut self) {
        let slots = self.slots.len() * 2;
        let old = std::mem::replace(&mut self.slots, vec![Slot { key: 0, number: NONE }; slots]);
        for slot in old.into_iter().filter(|slot| slot.number != NONE) {
            let mut at = spread(slot.key) as usize & (slots - 1);
            while self.slots[at].number != NONE {
                at = (at + 1) & (slots - 1);
            }
            self.slots[at] = slot;
        }
    }

    /// The numbers of many keys, in their order, as from [`Self::number`].
    ///
    /// A group's slots are all read once before they are searched, so that the memory brings them at the same time.
    pub fn number_all(&mut self, keys: &[u64], mut each: impl FnMut(u32)) -> Option<()> {
        for group in keys.chunks(GROUP) {
            let mask = self.slots.len() - 1;
            let near =
                group.iter().fold(0, |near, key| near ^ self.slots[spread(*key) as usize & mask].number);
            std::hint::black_box(near);
            for key in group {
                each(self.number(*key)?);
            }
        }
        Some(())
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.slots.capacity() * size_of::<Slot>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn numbers_are_dense_and_stay() {
        let mut table = KeyTable::default();
        let mut naive = BTreeMap::new();
        // Keys of every kind: small, multiples of large powers of two, and spread over all bits.
        let keys = (0..30_000u64)
            .flat_map(|n| [n, n << 40, n.wrapping_mul(0x1234_5678_9abc_def1), u64::MAX - n % 7]);
        for key in keys {
            let next = naive.len() as u32;
            assert_eq!(table.number(key), Some(*naive.entry(key).or_insert(next)));
        }
        assert_eq!(table.len() as usize, naive.len());
        assert!(table.bytes() < 48 * u64::from(table.len()));
    }
}
