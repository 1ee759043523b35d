//! Recently seen keys without a node, and when they were last seen: a table of fixed size, four bytes a cell, that forgets by
//! overwriting.

/// Requests to which a time is known.
const TICK_REQUESTS: u64 = 256;
const TIME_BITS: u32 = 20;
const TIME_MASK: u32 = (1 << TIME_BITS) - 1;

/// The table. A cell holds twelve bits of a key's hash and the time; two keys of one cell drive each other out, and
/// one key in 4096 is taken for another of its cell.
#[derive(Clone, Debug)]
pub struct Recent {
    /// 0: no key yet.
    cells: Box<[u32]>,
}

impl Recent {
    /// A table of at least `cells` cells, all empty.
    pub fn new(cells: usize) -> Self {
        Recent { cells: vec![0; cells.next_power_of_two().max(64)].into_boxed_slice() }
    }

    /// Makes it a table of at least `cells` cells, which knows all that it knew. Of each cell it is not known to which of those that
    /// take its place its key belongs, so it comes to all of them.
    pub fn grow(&mut self, cells: usize) {
        let (cells, has) = (cells.next_power_of_two(), self.cells.len());
        if cells > has {
            self.cells = self.cells.repeat(cells / has).into_boxed_slice();
        }
    }

    /// Notes that the key of this hash was seen at request `now`; how long ago it was seen before, in requests, if
    /// that is known.
    pub fn note(&mut self, hash: u64, now: u64) -> Option<u64> {
        let tag = (hash as u32 & 0xFFF) << TIME_BITS;
        let at = (hash >> 12) as usize & (self.cells.len() - 1);
        // Time 0 is left out: a cell of 0 is empty.
        let time = (now / TICK_REQUESTS) as u32 % TIME_MASK + 1;
        let before = std::mem::replace(&mut self.cells[at], tag | time);
        let known = before != 0 && before & !TIME_MASK == tag;
        known.then(|| {
            let ticks = (time + TIME_MASK - (before & TIME_MASK)) % TIME_MASK;
            u64::from(ticks) * TICK_REQUESTS
        })
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.cells) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_sightings_are_known_to_a_tick() {
        let mut recent = Recent::new(1 << 10);
        for (hash, now) in [(7u64 << 12, 0), (9 << 12, 1_000_000_000)] {
            assert_eq!(recent.note(hash, now), None);
            let reuse = recent.note(hash, now + 100_000).unwrap();
            assert!((100_000 - TICK_REQUESTS..=100_000).contains(&reuse), "{reuse}");
        }
        // A larger table knows what it knew.
        let mut larger = recent.clone();
        larger.grow(1 << 14);
        assert_eq!((larger.bytes(), recent.bytes()), (4 << 14, 4 << 10));
        let reuse = larger.note(7 << 12, 200_000).unwrap();
        assert!(reuse.abs_diff(100_000) < TICK_REQUESTS, "{reuse}");
        larger.grow(1);
        assert_eq!(larger.bytes(), 4 << 14, "it does not shrink");
        // Another key of the same cell, then the first again: both are new.
        assert_eq!(recent.note(7 << 12 | 5, 200_000), None);
        assert_eq!(recent.note(7 << 12, 200_000), None);
    }
}
