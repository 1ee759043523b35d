//! Copies in DRAM: the upper of the block cache's two tiers, without its bytes. It knows which units of the cache are in DRAM as
//! well, and where.
//!
//! It holds nothing but copies: every write goes to the cache's device, and a copy is brought up to date with it. So the tier can
//! be of any size, and losing it loses nothing. The decisions:
//!
//! - **Entry**: units that the device gave for a client's read. Written units are only kept current, since most of them are not
//!   read soon; no client asked for units that are read to be written back. Reads of more than 256 KiB pass through: they would
//!   drive out much and are seldom repeated.
//! - **Eviction**: the least recently read unit. A read moves a unit only when its turn to leave has come ([`Bump::AtTail`]), so
//!   a hit writes one word.
//! - **Hit**: a read of which every unit is here. A read that must wait for the device in part gains nothing from its other
//!   units.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use crate::Id;
use crate::evict::lru::{Bump, Lru};
use crate::evict::{Departure, Domain, Evict, Item, Origin, Touch};
use tiermem_base::Rng;

use super::geometry::UNIT_BYTES;

const ALL: Domain = Domain(0);
/// Longer reads pass through.
const UNITS_MAX: u64 = 64;
/// The unit of a place that was forgotten.
const NO_UNIT: u64 = u64::MAX;

/// Hashes a unit's number; the table is only asked, never walked.
#[derive(Default)]
struct UnitHasher(u64);

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

/// The units in DRAM and their places. A place is a number from 0 on, for one unit's bytes.
pub struct Copies {
    places: HashMap<u64, u32, BuildHasherDefault<UnitHasher>>,
    /// The unit at each place that was ever used.
    units: Vec<u64>,
    places_max: usize,
    order: Lru,
    rng: Rng,
    now: u64,
}

impl Copies {
    /// Room for `capacity_bytes` of copies, none of them in use yet.
    pub fn new(capacity_bytes: u64) -> Self {
        let places_max = (capacity_bytes / UNIT_BYTES).min(u64::from(Id::COUNT_MAX)) as usize;
        Copies {
            places: HashMap::default(),
            units: Vec::new(),
            places_max,
            order: Lru::new([1.0], Bump::AtTail),
            rng: Rng::seeded(0),
            now: 0,
        }
    }

    /// The place of a unit of the cache, if it is here.
    pub fn place(&self, unit: u64) -> Option<u32> {
        self.places.get(&unit).copied()
    }

    /// Whether there is room for none.
    pub fn is_none(&self) -> bool {
        self.places_max == 0
    }

    /// Whether none was ever here.
    pub fn is_unused(&self) -> bool {
        self.units.is_empty()
    }

    /// Units are asked for: whether all of them are here. Then they count as used, and `each` is told their places in their order.
    pub fn read(&mut self, units: Range<u64>, mut each: impl FnMut(u32)) -> bool {
        if self.units.is_empty() || !units.clone().all(|unit| self.places.contains_key(&unit)) {
            return false;
        }
        self.now += 1;
        for unit in units {
            if let Some(place) = self.place(unit) {
                each(place);
                self.order.hit(Id(place), Touch { now: self.now, write: false }, || ALL);
            }
        }
        true
    }

    /// The device gave these units: calls `each` with the places of those that have a copy from now on, in their order.
    pub fn insert(&mut self, units: Range<u64>, mut each: impl FnMut(u32)) {
        if self.is_none() || units.end - units.start > UNITS_MAX {
            return;
        }
        self.now += 1;
        for unit in units {
            let Some(place) = self.place_for(unit) else { return };
            each(place);
        }
    }

    /// Forgets copies of units whose content on the device is unknown.
    pub fn forget(&mut self, units: Range<u64>) {
        if self.units.is_empty() {
            return;
        }
        for unit in units {
            // The place stays taken until its turn comes, under a number that no unit has.
            if let Some(place) = self.places.remove(&unit) {
                self.units[place as usize] = NO_UNIT;
            }
        }
    }

    /// The place of a unit; that of another, if it has none.
    fn place_for(&mut self, unit: u64) -> Option<u32> {
        if let Some(place) = self.place(unit) {
            return Some(place);
        }
        let place = if self.units.len() < self.places_max {
            self.units.push(unit);
            self.units.len() as u32 - 1
        } else {
            let victim = self.order.victim(ALL, self.now, &mut self.rng, |_| true)?;
            self.order.remove(victim, ALL, Departure::Evicted);
            let old = std::mem::replace(&mut self.units[victim.0 as usize], unit);
            let before = self.places.remove(&old);
            debug_assert!(before == Some(victim.0) || old == NO_UNIT, "a place is its unit's");
            victim.0
        };
        let item = Item { key: unit, size: 1, dirty: false, now: self.now };
        self.order.insert(Id(place), ALL, Origin::Admitted(item));
        self.places.insert(unit, place);
        Some(place)
    }

    /// Bytes of copies.
    pub fn held_bytes(&self) -> u64 {
        self.places.len() as u64 * UNIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(copies: &mut Copies, units: Range<u64>) -> Vec<u32> {
        let mut places = Vec::new();
        copies.insert(units, |place| places.push(place));
        places
    }

    fn read(copies: &mut Copies, units: Range<u64>) -> Option<Vec<u32>> {
        let mut places = Vec::new();
        copies.read(units, |place| places.push(place)).then_some(places)
    }

    #[test]
    fn what_was_read_again_stays() {
        let mut copies = Copies::new(2 * UNIT_BYTES);
        assert!(copies.is_unused());
        assert_eq!(insert(&mut copies, 1..3), [0, 1]);
        assert_eq!(read(&mut copies, 1..2), Some(vec![0]));
        assert_eq!(insert(&mut copies, 3..4), [1], "the other was read again");
        assert_eq!((read(&mut copies, 1..2), read(&mut copies, 2..3)), (Some(vec![0]), None));
        assert_eq!(copies.held_bytes(), 2 * UNIT_BYTES);
    }

    #[test]
    fn a_read_of_which_something_is_missing_is_no_hit_and_uses_nothing() {
        let mut copies = Copies::new(2 * UNIT_BYTES);
        insert(&mut copies, 1..3);
        assert_eq!(read(&mut copies, 1..4), None);
        assert_eq!(insert(&mut copies, 5..6), [0], "the first was not used");
    }

    #[test]
    fn long_reads_pass_through_and_what_is_forgotten_frees_its_place_in_its_turn() {
        let mut copies = Copies::new(200 * UNIT_BYTES);
        // 64 units are 256 KiB.
        assert_eq!(insert(&mut copies, 0..65), []);
        assert_eq!(insert(&mut copies, 0..64).len(), 64);
        copies.forget(3..5);
        assert_eq!((copies.place(3), copies.held_bytes()), (None, (UNITS_MAX - 2) * UNIT_BYTES));
        assert_eq!(insert(&mut copies, 3..4), [UNITS_MAX as u32]);
        let mut none = Copies::new(UNIT_BYTES - 1);
        assert!(none.is_none() && insert(&mut none, 0..1).is_empty(), "room for none");
    }
}
