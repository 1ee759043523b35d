//! The upper of the cache's two tiers: units of the cache's device that are in DRAM as well.
//!
//! It holds copies and nothing else: whatever is stored goes to the device, and what is here of it is brought up to date. So it can
//! be of any size, and losing it loses nothing. What the device gives twice is here; what is written is only kept current, since most of
//! it is not read soon. Bytes are compared with their checksums when they come in.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use tiermem_base::Rng;
use tiermem_policy::Id;
use tiermem_policy::evict::lru::{Bump, Lru};
use tiermem_policy::evict::{Departure, Domain, Evict, Item, Origin, Touch};
use tiermem_policy::extents::UNIT_BYTES;
use tiermem_tier::block::AlignedBuffer;

const UNIT: usize = UNIT_BYTES as usize;
const ALL: Domain = Domain(0);
/// Longer reads pass through: they would drive out much and come back seldom.
const UNITS_MAX: u64 = 64;

/// Hashes a unit's number.
#[derive(Default)]
pub(super) struct UnitHasher(u64);

impl std::hash::Hasher for UnitHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The copies, by unit of the cache.
pub(super) struct Memory {
    places: HashMap<u64, u32, BuildHasherDefault<UnitHasher>>,
    /// The unit at each place that was ever used.
    units: Vec<u64>,
    bytes: Vec<AlignedBuffer>,
    places_max: usize,
    order: Lru,
    rng: Rng,
    now: u64,
}

impl Memory {
    /// One of so many bytes, none of them used yet.
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let places_max = (capacity_bytes / UNIT_BYTES).min(u64::from(Id::COUNT_MAX)) as usize;
        Memory {
            places: HashMap::default(),
            units: Vec::new(),
            bytes: Vec::new(),
            places_max,
            order: Lru::new([1.0], Bump::AtTail),
            rng: Rng::seeded(0),
            now: 0,
        }
    }

    /// Copies units out, if all of them are here.
    pub(super) fn read(&mut self, units: Range<u64>, into: &mut [u8]) -> bool {
        if self.units.is_empty() || !units.clone().all(|unit| self.places.contains_key(&unit)) {
            return false;
        }
        self.now += 1;
        for (unit, into) in units.zip(into.chunks_exact_mut(UNIT)) {
            if let Some(place) = self.places.get(&unit) {
                into.copy_from_slice(&self.bytes[*place as usize]);
                self.order.hit(Id(*place), Touch { now: self.now, write: false }, || ALL);
            }
        }
        true
    }

    /// The device gave these units.
    pub(super) fn insert(&mut self, units: Range<u64>, bytes: &[u8]) {
        if self.places_max == 0 || units.end - units.start > UNITS_MAX {
            return;
        }
        self.now += 1;
        for (unit, bytes) in units.zip(bytes.chunks_exact(UNIT)) {
            let Some(place) = self.place_for(unit) else { return };
            self.bytes[place as usize].copy_from_slice(bytes);
        }
    }

    /// The device holds these bytes there from now on.
    pub(super) fn update(&mut self, units: Range<u64>, bytes: &[u8]) {
        if self.units.is_empty() {
            return;
        }
        for (unit, bytes) in units.zip(bytes.chunks_exact(UNIT)) {
            if let Some(place) = self.places.get(&unit) {
                self.bytes[*place as usize].copy_from_slice(bytes);
            }
        }
    }

    /// Nobody knows what the device holds there.
    pub(super) fn forget(&mut self, units: Range<u64>) {
        if self.units.is_empty() {
            return;
        }
        for unit in units {
            // The place stays taken until its turn comes, under a number that no unit has.
            if let Some(place) = self.places.remove(&unit) {
                self.units[place as usize] = u64::MAX;
            }
        }
    }

    /// The place of a unit; that of another, if it has none.
    fn place_for(&mut self, unit: u64) -> Option<u32> {
        if let Some(place) = self.places.get(&unit) {
            return Some(*place);
        }
        let place = if self.units.len() < self.places_max {
            self.units.push(unit);
            self.bytes.push(AlignedBuffer::zeroed(UNIT));
            self.units.len() as u32 - 1
        } else {
            let victim = self.order.victim(ALL, self.now, &mut self.rng, |_| true)?;
            self.order.remove(victim, ALL, Departure::Evicted);
            let old = std::mem::replace(&mut self.units[victim.0 as usize], unit);
            self.places.remove(&old);
            victim.0
        };
        let item = Item { key: unit, size: 1, dirty: false, now: self.now };
        self.order.insert(Id(place), ALL, Origin::Admitted(item));
        self.places.insert(unit, place);
        Some(place)
    }

    /// Bytes of copies.
    pub(super) fn held_bytes(&self) -> u64 {
        self.places.len() as u64 * UNIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// It gives what the device has, or nothing; and it holds no more than it may.
        #[test]
        fn it_gives_what_the_device_has(
            places in 0u64..6, steps in prop::collection::vec((0u64..12, 1u64..4, 0u8..4), 1..200),
        ) {
            let mut memory = Memory::new(places * UNIT_BYTES);
            let mut device = [0u8; 16];
            for (at, (first, count, what)) in steps.into_iter().enumerate() {
                let units = first..first + count;
                let bytes_of = |device: &[u8; 16]| -> Vec<u8> {
                    units.clone().flat_map(|unit| vec![device[unit as usize]; UNIT]).collect()
                };
                match what {
                    0 => {
                        let mut read = vec![0; count as usize * UNIT];
                        if memory.read(units.clone(), &mut read) {
                            prop_assert_eq!(read, bytes_of(&device));
                        }
                    }
                    1 => memory.insert(units.clone(), &bytes_of(&device)),
                    2 => {
                        units.clone().for_each(|unit| device[unit as usize] = at as u8);
                        memory.update(units.clone(), &bytes_of(&device));
                    }
                    _ => {
                        units.clone().for_each(|unit| device[unit as usize] = at as u8);
                        memory.forget(units.clone());
                    }
                }
                prop_assert!(memory.held_bytes() <= places * UNIT_BYTES);
            }
        }
    }

    #[test]
    fn what_was_read_again_stays() {
        let mut memory = Memory::new(2 * UNIT_BYTES);
        memory.insert(1..2, &[1; UNIT]);
        memory.insert(2..3, &[2; UNIT]);
        let mut bytes = [0; UNIT];
        assert!(memory.read(1..2, &mut bytes) && bytes == [1; UNIT]);
        memory.insert(3..4, &[3; UNIT]);
        assert!(memory.read(1..2, &mut bytes), "it was read again");
        assert!(!memory.read(2..3, &mut bytes));
    }
}
