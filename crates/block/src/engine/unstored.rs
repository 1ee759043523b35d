//! Unstored units: those that the cache's device did not take, or whose record the log did not. Their bytes stay in DRAM until the
//! backing store has them; a flush waits for that.

use std::collections::BTreeMap;
use std::ops::Range;

use tiermem_policy::extents::UNIT_BYTES;

/// Bytes of dirty units that lie nowhere else, by unit of the cache.
#[derive(Debug, Default)]
pub(super) struct Unstored {
    units: BTreeMap<u64, Unit>,
    /// How often some were forgotten.
    forgotten: u64,
}

#[derive(Debug)]
struct Unit {
    /// The place of its volume.
    volume: usize,
    bytes: Box<[u8]>,
}

impl Unstored {
    /// Keeps the bytes of a volume's unit, in place of those that it had.
    pub fn keep(&mut self, unit: u64, volume: usize, bytes: &[u8]) {
        debug_assert_eq!(bytes.len() as u64, UNIT_BYTES);
        self.units.insert(unit, Unit { volume, bytes: bytes.into() });
    }

    /// Copies units out, if all of them are here.
    pub fn read(&self, units: Range<u64>, into: &mut [u8]) -> bool {
        let is_here = self.has(&units) && units.clone().all(|unit| self.units.contains_key(&unit));
        if is_here {
            for (unit, into) in self.units.range(units).zip(into.chunks_exact_mut(UNIT_BYTES as usize)) {
                into.copy_from_slice(&unit.1.bytes);
            }
        }
        is_here
    }

    /// Whether any of these units is here.
    pub fn has(&self, units: &Range<u64>) -> bool {
        !self.units.is_empty() && self.units.range(units.clone()).next().is_some()
    }

    /// The runs of these units that are here, and the runs that are not, in their order.
    pub fn runs(&self, units: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut was_here = None;
        for unit in units {
            let is_here = Some(self.units.contains_key(&unit));
            match runs.last_mut() {
                Some(run) if is_here == was_here => run.end = unit + 1,
                _ => runs.push(unit..unit + 1),
            }
            was_here = is_here;
        }
        runs
    }

    /// Whether any unit of the volume at a place is here.
    pub fn has_of(&self, volume: usize) -> bool {
        self.units.values().any(|unit| unit.volume == volume)
    }

    /// The store has these units, or they are somewhere else.
    pub fn forget(&mut self, units: Range<u64>) {
        if self.has(&units) {
            self.units.retain(|unit, _| !units.contains(unit));
            self.forgotten += 1;
        }
    }

    /// How often units were forgotten: who planned to read some before may find older bytes in their places.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Bytes of DRAM.
    pub fn bytes(&self) -> u64 {
        self.units.len() as u64 * UNIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: usize = UNIT_BYTES as usize;

    #[test]
    fn units_are_read_where_all_are_here_until_they_are_forgotten() {
        let mut unstored = Unstored::default();
        assert!(!unstored.has(&(0..4)));
        for (unit, value) in [(1, 7), (2, 8), (5, 9), (2, 6)] {
            unstored.keep(unit, usize::from(unit == 5), &[value; UNIT]);
        }
        assert_eq!((unstored.runs(0..6), unstored.bytes()), (vec![0..1, 1..3, 3..5, 5..6], 3 * UNIT_BYTES));
        let mut bytes = vec![0; 2 * UNIT];
        assert!(unstored.read(1..3, &mut bytes) && !unstored.read(2..4, &mut bytes));
        assert_eq!((bytes[0], bytes[UNIT]), (7, 6));
        assert!(unstored.has_of(0) && unstored.has_of(1));
        unstored.forget(4..9);
        assert!(!unstored.has_of(1) && unstored.has(&(0..2)) && !unstored.has(&(3..9)));
    }
}
