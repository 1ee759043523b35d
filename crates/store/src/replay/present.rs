//! Present keys: those that the server held when it last answered for them.
//!
//! A look-up may be sent behind another of the same key only if the first is going to hit.
//! Otherwise the second misses as well, because the value follows the first one's reply, and the
//! hit ratio of a bursty trace comes out several points too low. Keys that were present a moment
//! ago are going to hit, and they are the hot ones, which must not wait for each other's replies.

const SLOT_BITS: u32 = 14;

/// A direct-mapped table of keys. A key that another one displaced counts as not present: then its look-ups
/// wait for each other, which costs time but no truth.
pub struct Present {
    slots: Box<[u64]>,
}

impl Present {
    /// An empty table.
    pub fn new() -> Self {
        // A free slot holds a key that belongs into another slot: 0 belongs into slot 0, 1 does not.
        let mut slots = vec![0; 1 << SLOT_BITS].into_boxed_slice();
        slots[0] = 1;
        Present { slots }
    }

    /// Whether the server held `key` lately.
    pub fn has(&self, key: u64) -> bool {
        self.slots[Self::slot(key)] == key
    }

    /// The server holds `key`, or will when it has read what was sent.
    pub fn add(&mut self, key: u64) {
        self.slots[Self::slot(key)] = key;
    }

    /// The server does not hold `key`.
    pub fn remove(&mut self, key: u64) {
        if self.has(key) {
            self.slots[Self::slot(key)] = if Self::slot(key) == 0 { 1 } else { 0 };
        }
    }

    fn slot(key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOT_BITS)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_present_from_adding_to_removing() {
        let mut present = Present::new();
        for key in [0, 1, 2, u64::MAX, 1 << 63] {
            assert!(!present.has(key), "{key}");
            present.add(key);
            assert!(present.has(key), "{key}");
            present.remove(key);
            assert!(!present.has(key), "{key}");
        }
    }
}
